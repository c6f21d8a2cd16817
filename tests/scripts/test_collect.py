"""What is collected: every finished run, failures too, and of each the small files alone."""

import json

from scripts.collect import collect
from tests.scripts.recorded import record, results


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
