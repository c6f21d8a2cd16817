"""`python -m train` as a person types it: one clear line for a mistake, nothing created, the right exit status."""

import json

import pytest
from conftest import TINY, command_line

from train.errors import FAILED, USAGE


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["experiment=reduced/digits_vit", "conditioning.lamb=1"], "conditioning.lam"),
        (["experiment=reduced/digits_vit", "conditioning.lam=ten"], "conditioning.lam"),
        (["experiment=reduced/digitz_vit"], "reduced/digits_vit"),
        (["-m", "experiment=glob(paper/nothing_*)"], "matches nothing"),
        (["experiment=reduced/imagenet_vit"], "DATA_ROOT"),
        (["-m", "experiment=reduced/imagenet_vit", "seed=0,1", "data_root=/nowhere"], "DATA_ROOT"),
    ],
)
def test_a_mistake_ends_with_one_line_and_status_2(tmp_path, words, names):
    ended = command_line(*words, f"output_root={tmp_path / 'outputs'}")
    assert ended.returncode == USAGE
    assert len(ended.stderr.splitlines()) == 1
    assert names in ended.stderr
    assert ended.stderr.startswith("error: ")
    assert not ended.stdout
    assert not (tmp_path / "outputs").exists()


def test_help_and_cfg():
    assert "experiments: " in command_line("--help").stdout
    shown = command_line("experiment=reduced/digits_vit", "--cfg", "conditioning=svd")
    assert shown.returncode == 0
    assert "method: svd" in shown.stdout


def test_a_dry_run_creates_nothing(tiny, tmp_path):
    ended = command_line(*tiny, "runtime.dry=true", "conditioning=identity")
    assert ended.returncode == 0, ended.stderr
    assert "identity-lam10" in ended.stdout
    assert not (tmp_path / "outputs").exists()


def test_a_sweep_goes_on_past_a_failure_names_it_and_does_only_what_is_missing(tmp_path):
    words = ["-m", *TINY, f"output_root={tmp_path}", "runtime.jobs=2", "schedule.steps=3"]
    # 400 is more than the 320 training samples: that run alone fails.
    ended = command_line(*words, "batch_size=32,400")
    assert ended.returncode == FAILED
    assert "1 of 2 complete, 1 failed" in ended.stdout
    assert "batch_size=400 is larger than the 320 training samples" in ended.stdout
    again = command_line(*words, "batch_size=32,16")
    assert again.returncode == 0, again.stderr
    assert "2 runs, 1 complete already" in again.stderr
    summaries = [json.loads(path.read_text())["status"] for path in tmp_path.rglob("summary.json")]
    assert sorted(summaries) == ["complete", "complete", "failed"]
