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
    ("words", "tags"),
    [
        (["ablation-lambda"], ["baseline", "identity-lam0.1", "identity-lam1", "identity-lam10"]),
        (["ablation-layernorm", "METHOD=svd"], ["baseline", "svd-lam1", "baseline" + NORM, "svd-lam1" + NORM]),
    ],
    ids=["lambda", "layernorm"],
)
def test_an_ablation_runs_the_settings_of_its_table(tmp_path, words, tags):
    runs = expand([*would_run(*words, "SCALE=reduced"), f"output_root={tmp_path}"])
    folders = {run_folder(resolve(run), distinguishing(run)) for run in runs}
    assert folders == {tmp_path / "reduced" / "imagenet_vit" / tag / "seed0" for tag in tags}


@pytest.mark.parametrize(
    "words", [["reduced", "DRY=1"], ["evidence", "ARGS=--plan"], ["evidence", "ARGS=runtime.dry=true"]]
)
def test_what_only_prints_installs_no_more_and_makes_nothing_anew(tmp_path, words):
    """Told of a checkout whose COCO packages are not there."""
    shown = subprocess.run(
        [
            "make",
            "--dry-run",
            "--no-print-directory",
            f"VENV={tmp_path}",
            "--old-file",
            f"{tmp_path}/.installed",
            *words,
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "mmdet" not in shown
    assert "openmmlab" not in shown
    for made in ("scripts.collect", "scripts.tables", "scripts.figures", "scripts.report"):
        assert made not in shown


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["ablation-lambda"], ["experiment=paper/imagenet_vit", "conditioning.lam=0,0.1,1,10"]),
        (["ablation-lambda", "LAM=0,3"], ["conditioning.lam=0,3"]),
        (["ablation-layernorm", "SEEDS=0,1", "JOBS=2"], ["model.norm=true,false", "seed=0,1", "runtime.jobs=2"]),
        (
            ["conditioning-curves", "SCALE=reduced", "ARGS=optimizer.lr=1"],
            ["conditioning=off,identity,svd", "optimizer.lr=1"],
        ),
        (["conditioning-curves", "METHOD=svd"], ["conditioning=off,svd"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_variables_are_handed_on(words, asked):
    assert set(asked) <= set(would_run(*words))


@pytest.mark.parametrize("scale", ["paper", "reduced"])
def test_the_curves_are_of_runs_that_are_probed(scale):
    [word] = [word for word in would_run("conditioning-curves", f"SCALE={scale}") if word.startswith("experiment=")]
    [run, other] = expand([word])
    for words in (run, other):
        config = resolve(words)
        assert config.row.scale == scale
        assert config.probe.epochs
        assert config.probe.jacobian
