"""`make doctor`: it says what is here, without a data root too, quickly, without secrets, and changes nothing."""

import json
import subprocess

import pytest

from scripts import doctor
from tests.scripts.recorded import told
from train.errors import USAGE


@pytest.fixture
def two_rows(monkeypatch, tmp_path):
    """Two experiments in place of all, no committed records, no data root."""
    monkeypatch.setattr(doctor, "options", lambda group: ["reduced/imagenet_vit", "reduced/lra_listops"])
    monkeypatch.setattr(doctor, "RECORDS", tmp_path / "records")
    monkeypatch.delenv("DATA_ROOT", raising=False)
    return f"output_root={tmp_path / 'outputs'}"


def line(text, start):
    [found] = [line for line in text.splitlines() if line.startswith(start)]
    return found


def test_it_says_what_is_here_without_a_data_root(two_rows, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("WANDB_API_KEY", "not-to-be-shown")
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    assert doctor.main([two_rows]) == 0
    said = capsys.readouterr().out
    assert "not-to-be-shown" not in said
    assert "a key in WANDB_API_KEY" in line(said, "W&B")
    assert "torch " in line(said, "packages")
    assert "fp32" in line(said, "device    CPU")
    assert "GiB free, is not there yet" in line(said, "disk")
    assert "DATA_ROOT is not set" in line(said, "data")
    assert "no sbatch here" in line(said, "SLURM")
    assert "set DATA_ROOT" in line(said, "reduced/imagenet_vit")
    assert "scripts.make_listops" in line(said, "reduced/lra_listops")
    assert not (tmp_path / "outputs").exists()


def test_a_row_needs_what_is_not_complete(two_rows, monkeypatch, tmp_path, capsys):
    data = tmp_path / "data" / "cifar10"
    data.mkdir(parents=True)
    for split in ("train", "test"):
        (data / f"{split}-0.parquet").touch()
    words = [two_rows, f"data_root={tmp_path / 'data'}"]
    doctor.main(words)
    assert "a baseline and a conditioned run (data found)" in line(capsys.readouterr().out, "reduced/imagenet_vit")
    kept = {"outputs/reduced/imagenet_vit/baseline": (0, 1), "records/reduced/imagenet_vit/baseline": (1, 2)}
    for place, seeds in kept.items():
        for seed in seeds:
            folder = tmp_path / place / f"seed{seed}"
            folder.mkdir(parents=True)
            (folder / "summary.json").write_text(json.dumps(told("reduced/imagenet_vit", seed)))
    doctor.main(words)
    found = line(capsys.readouterr().out, "reduced/imagenet_vit").split()
    assert " ".join(found[1:]) == "baseline 3 a conditioned run (data found)"


def test_slurms_partitions_are_listed_and_a_silent_controller_is_said(monkeypatch):
    monkeypatch.setattr(doctor.shutil, "which", lambda name: "/usr/bin/sbatch")

    def answers(code, out, err):
        done = subprocess.CompletedProcess([], code, out, err)
        monkeypatch.setattr(doctor.subprocess, "run", lambda *words, **options: done)
        return doctor.slurm()

    assert (
        answers(0, "gpu* 4 gpu:8\ncpu 10 (null)\n", "") == "partitions: gpu* (4 nodes, gpu:8); cpu (10 nodes, (null))"
    )
    assert answers(1, "", "slurm_load:\n refused") == "sbatch is here, sinfo fails: slurm_load: refused"


def test_a_mistake_is_one_line(capsys):
    assert doctor.main(["data_rot=/x"]) == USAGE
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "data_root" in said
