"""kill -9 at random moments, resuming each time: does the run end as if it had been left alone?

Runs a reduced experiment once undisturbed and once killed `--kills` times, then compares weights, average,
optimizer and metrics bit for bit (what a clock or allocator says aside).

    python -m scripts.bench_kill [--devices 2] [--kills 10]
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from train import checkpoint
from train.compose import distinguishing, resolve
from train.folder import run_folder
from train.record_files import read_metrics

WORDS = [
    "experiment=reduced/digits_vit",
    "conditioning=svd",
    "ema.decay=0.9",
    "optimizer.clip_grad=1.0",
    "dataset.pad=1",
    "runtime.threads=1",
    "runtime.save_steps=7",
    "runtime.wandb=offline",
    "runtime.log_steps=1",
]


def start(words: list[str]) -> subprocess.Popen:
    """A run in the background, silent."""
    return subprocess.Popen(
        [sys.executable, "-m", "train", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def reached(metrics: Path) -> int:
    """The last step that is recorded."""
    events = read_metrics(metrics)
    return events[-1]["step"] if events else 0


def end_of(words: list[str]) -> tuple[dict, list[dict]]:
    """The last checkpoint and the metrics without clocks."""
    folder = run_folder(resolve(words), distinguishing(words))
    events = read_metrics(folder / "metrics.jsonl")
    for event in events:
        event.pop("timing", None)
    return checkpoint.load(checkpoint.checkpoints(folder)[-1]), events


def differences(one: object, other: object, path: str = "") -> list[str]:
    """Where two checkpoints differ in any bit; `seconds` is a clock."""
    if path.endswith("/seconds"):
        return []
    if isinstance(one, torch.Tensor):
        return [] if torch.equal(one, other) else [path]
    if isinstance(one, dict):
        missing = [f"{path}/{key}" for key in one.keys() ^ other.keys()]
        return missing + [d for key in one if key in other for d in differences(one[key], other[key], f"{path}/{key}")]
    if isinstance(one, (list, tuple)):
        if len(one) != len(other):
            return [path]
        pairs = enumerate(zip(one, other, strict=True))
        return [d for index, (a, b) in pairs for d in differences(a, b, f"{path}[{index}]")]
    return [] if one == other else [path]


def main() -> int:
    """Print where each kill fell and whether the ends agree; returns 1 where they do not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="of the random moments")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as root:
        alone, killed = (
            [*WORDS, f"runtime.devices={options.devices}", f"output_root={root}/{name}"] for name in ("alone", "killed")
        )
        if start(alone).wait():
            raise SystemExit("the undisturbed run failed: run it by hand to see why")
        last = end_of(alone)[0]["step"]
        metrics = run_folder(resolve(killed), distinguishing(killed)) / "metrics.jsonl"
        for kill in range(options.kills):
            # A random moment of its life: a quarter of them while it starts or resumes, the others past a random step.
            process, target = start(killed), draw.randrange(last)
            if draw.random() < 0.25:
                time.sleep(draw.uniform(0.2, 5))
            else:
                while process.poll() is None and reached(metrics) < target * (kill + 1) / options.kills:
                    time.sleep(0.01)
            time.sleep(draw.uniform(0, 0.5))
            process.kill()
            process.wait()
            print(f"kill {kill + 1} at step {reached(metrics)} of {last}", flush=True)
        if start(killed).wait():
            raise SystemExit("the resumed run failed: run it by hand to see why")
        (one, events), (other, others) = end_of(alone), end_of(killed)
        apart = differences(one, other)
        if events != others:
            apart.append("metrics.jsonl")
    same = "bit-identical to the run left alone" if not apart else f"DIFFERENT in {', '.join(apart[:5])}"
    print(f"{options.devices} device(s), {options.kills} kills, {one['step']} steps, {len(events)} events: {same}")
    return bool(apart)


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.exit(main())
