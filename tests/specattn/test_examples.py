"""The examples run as they are typed, learn, and export what they have trained."""

import re
import runpy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run_example(tmp_path, monkeypatch, capsys):
    def run(name, *arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("sys.argv", [name, *arguments])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    state = torch.get_rng_state()
    yield run
    torch.set_rng_state(state)


def test_every_example_is_tested():
    assert sorted(p.name for p in EXAMPLES.glob("*.py")) == [
        "plain_loop.py",
        "timm_training.py",
        "transformers_trainer.py",
    ]


def last_accuracy(printed):
    return float(re.findall(r"test accuracy (\d\.\d+)", printed)[-1])


def test_plain_loop(run_example, tmp_path):
    printed = run_example("plain_loop.py", "--epochs", "4")
    assert last_accuracy(printed) > 0.6
    assert float(re.search(r"differ by at most (\S+)", printed)[1]) < 1e-4
    assert (tmp_path / "digit_reader.safetensors").is_file()


def test_timm_training(run_example, tmp_path):
    printed = run_example("timm_training.py", "--epochs", "8")
    trained, loaded = re.findall(r"test accuracy (\d\.\d+)", printed)[-2:]
    assert float(trained) > 0.6
    assert float(loaded) == pytest.approx(float(trained), abs=0.01)


def test_transformers_trainer(run_example, tmp_path):
    printed = run_example("transformers_trainer.py", "--epochs", "8")
    assert last_accuracy(printed) > 0.6
    assert float(re.search(r"differ by at most (\S+)", printed)[1]) < 1e-4
    assert (tmp_path / "bert-digits" / "export" / "model.safetensors").is_file()
    # The resumed run went on with the corrections of the first, not with those of its own fresh weights.
    checkpoints = sorted((tmp_path / "bert-digits").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    first, last = (load_file(path / "model.safetensors") for path in (checkpoints[0], checkpoints[-1]))
    corrections = [key for key in first if key.endswith("specattn.weight_correction")]
    assert len(corrections) == 6
    assert all(torch.equal(first[key], last[key]) for key in corrections)
