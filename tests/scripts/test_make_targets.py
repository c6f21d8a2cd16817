"""The ablations' targets: what `make` would run is what the tables look for."""

import shlex
import subprocess

import pytest
from conftest import REPOSITORY

from train.compose import distinguishing, expand, resolve
from train.folder import run_folder

NORM = ",model.norm=False"


def would_run(*words: str) -> list[str]:
    """The words of `python -m train -m` that make would run."""
    shown = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", *words],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.replace("\\\n", " ")
    [line] = [line for line in shown.splitlines() if "-m train -m" in line]
    return shlex.split(line.partition("-m train -m")[2])


@pytest.mark.parametrize(
    ("target", "experiments", "tags"),
    [
        (
            ["ablation-lambda", "SCALE=reduced"],
            ["reduced/imagenet_vit"],
            ["baseline", "identity-lam0.1", "identity-lam1", "identity-lam10"],
        ),
        (["ablation-lambda", "LAM=0,3"], ["paper/imagenet_vit"], ["baseline", "identity-lam3"]),
        (
            ["ablation-layernorm", "SCALE=reduced", "METHOD=svd"],
            ["reduced/imagenet_vit"],
            ["baseline", "svd-lam1", "baseline" + NORM, "svd-lam1" + NORM],
        ),
        (
            ["conditioning-curves", "SCALE=reduced"],
            ["reduced/curves_vit", "reduced/curves_xcit"],
            ["baseline", "identity-lam10", "svd-lam1"],
        ),
        (["conditioning-curves"], ["paper/imagenet_vit", "paper/imagenet_xcit"], ["baseline", "identity-lam10"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_a_target_runs_the_settings_of_its_table(tmp_path, target, experiments, tags):
    runs = expand([*would_run(*target), f"output_root={tmp_path}"])
    configs = [resolve(run) for run in runs]
    folders = {run_folder(config, distinguishing(run)) for config, run in zip(configs, runs, strict=True)}
    assert folders == {tmp_path / name / tag / "seed0" for name in experiments for tag in tags}
    if target[0] == "conditioning-curves":  # the figures draw what the probe records
        assert all(config.probe.epochs and config.probe.jacobian for config in configs)


def test_seeds_jobs_and_words_are_handed_on():
    words = would_run("ablation-layernorm", "SEEDS=0,1,2", "JOBS=2", "ARGS=optimizer.lr=1e-3")
    assert {"seed=0,1,2", "runtime.jobs=2", "optimizer.lr=1e-3", "model.norm=true,false"} <= set(words)
