"""What is collected: every finished run, failures too, and of each the small files alone."""

import json
import shutil

import pytest

from scripts.collect import collect
from tests.scripts.recorded import record, results
from train.errors import UserError


def test_failed_runs_are_collected_and_running_ones_are_not(tmp_path):
    made = results(tmp_path)
    for seed, status in enumerate(("complete", "failed", "diverged", "running", "stopped")):
        run = record(made, "reduced/imagenet_vit", "baseline", seed, status=status)
        (run / "last.pt").write_bytes(b"weights")
    (made / "runs/reduced/imagenet_vit/baseline/seed1/environment.json").unlink()  # it failed before it began
    assert collect(made / "runs", tmp_path / "into", "reduced/imagenet_*") == {"reduced/imagenet_vit": 3}
    held = {path.parent.name: json.loads(path.read_text())["status"] for path in tmp_path.glob("into/**/summary.json")}
    assert held == {"seed0": "complete", "seed1": "failed", "seed2": "diverged"}
    names = {path.name for path in tmp_path.glob("into/**/seed0/*")}
    assert names == {"config.yaml", "environment.json", "metrics.jsonl", "summary.json"}


def test_a_run_again_leaves_no_file_of_the_earlier_record(tmp_path):
    made = results(tmp_path)
    run = record(made, "reduced/imagenet_vit", "baseline", 0, status="failed")
    collect(made / "runs", tmp_path / "into", "reduced/*")
    (run / "metrics.jsonl").unlink()
    collect(made / "runs", tmp_path / "into", "reduced/*")
    held = {path.name for path in tmp_path.glob("into/**/seed0/*")}
    assert held == {"config.yaml", "environment.json", "summary.json"}


def test_a_failure_takes_the_place_of_no_complete_record_and_damage_is_named(tmp_path):
    made = results(tmp_path)
    record(made, "reduced/imagenet_vit", "baseline", 0)
    collect(made / "runs", tmp_path / "into", "reduced/*")
    before = {path: path.read_bytes() for path in tmp_path.glob("into/**/*") if path.is_file()}
    shutil.rmtree(made / "runs/reduced/imagenet_vit/baseline/seed0")
    record(made, "reduced/imagenet_vit", "baseline", 0, status="failed")
    record(made, "reduced/imagenet_vit", "baseline", 1)
    with pytest.raises(UserError, match=r"is complete and .* has failed"):
        collect(made / "runs", tmp_path / "into", "reduced/*")
    (made / "runs/reduced/imagenet_vit/baseline/seed0/summary.json").write_text('{"sta')
    with pytest.raises(UserError, match="cannot be read"):
        collect(made / "runs", tmp_path / "into", "reduced/*")
    assert {path: path.read_bytes() for path in tmp_path.glob("into/**/*") if path.is_file()} == before
