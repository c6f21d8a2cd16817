"""The paper-scale COCO config takes real steps at full resolution on real photos, on the CPU: the proof that it runs.

    DATA_ROOT=<folder with coco> python -m scripts.coco_proof [--steps 3] [key=value ...]

Mask R-CNN on XCiT-S12/16 as configs/experiment/paper/coco_xcit.yaml has it, its augmentation, optimizer and losses,
with two photos a step and in float32, conditioned with svd; no weights are fetched (model.pretrained=null). One photo
is evaluated at the end. Record: results/coco_proof.json.
"""

import argparse
import json
import math
import os
import resource
import sys
import time
from pathlib import Path

import torch

from train import randomness, tasks
from train.compose import resolve
from train.distributed import join
from train.optimizer import Length, Schedule, build_optimizer
from train.record_files import write

RECORD = Path("results/coco_proof.json")
WORDS = [
    "experiment=paper/coco_xcit",
    "conditioning=svd",
    "model.pretrained=null",
    "batch_size=2",
    "runtime.workers=0",
    "runtime.threads=1",
    "runtime.device=cpu",
    "runtime.precision=fp32",
]


def prove(words: list[str], steps: int) -> dict:
    """Steps of the recipe as the loop takes them, and an evaluation of one photo; returns what was seen."""
    config = resolve(words)
    place = join("cpu")
    torch.set_num_threads(config.runtime.threads)
    task = tasks.build(config, place)
    randomness.seed_everything(config.seed, randomness.BUILD)
    model = tasks.build_model(config).train()
    optimizer = build_optimizer(config, model)
    schedule = Schedule(config, optimizer, Length.of(config.schedule, task.steps_per_epoch))
    from train.tasks.detection.task import by_name

    taken = []
    for step, batches in enumerate(task.batches(0, steps)):
        began = time.perf_counter()
        lr = schedule.set(step)
        randomness.seed_everything(config.seed, randomness.MODEL, step, 0, 0)
        losses = by_name(model(**batches[0], mode="loss"))
        loss = sum(losses.values())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        parts = {name: value.item() for name, value in losses.items()}
        size = list(batches[0]["inputs"].shape)
        objects = sum(len(sample.gt_instances) for sample in batches[0]["data_samples"])
        seconds = time.perf_counter() - began
        taken.append(
            {
                "step": step + 1,
                "lr": lr,
                "loss": loss.item(),
                "losses": parts,
                "input": size,
                "objects": objects,
                "seconds": seconds,
            }
        )
        print(f"step {step + 1}: loss {loss.item():.4f}, input {size}, {objects} objects, {seconds:.1f} s", flush=True)
    began = time.perf_counter()
    with torch.no_grad():
        batch = next(iter(task.data.evaluation_batches(1)))
        [sample] = model.eval()(**batch, mode="predict")
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "photos": [len(task.data.train), len(task.data.test)],
        "steps": taken,
        "evaluated": {
            "input": list(batch["inputs"].shape),
            "detections": len(sample.pred_instances),
            "seconds": time.perf_counter() - began,
        },
        "threads": config.runtime.threads,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "sound": all(math.isfinite(step["loss"]) for step in taken),
    }


def main() -> int:
    """Prove, write the record, and say whether every loss was finite."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="key=value words for the config")
    parser.add_argument("--steps", type=int, default=3)
    chosen = parser.parse_intermixed_args()
    if not os.environ.get("DATA_ROOT"):
        print("error: set DATA_ROOT to the folder that holds coco/", file=sys.stderr)
        return 2
    found = prove([*WORDS, *chosen.words], chosen.steps)
    write(RECORD, json.dumps({"words": [*WORDS, *chosen.words], **found}, indent=1) + "\n")
    print(f"peak memory {found['peak_memory_bytes'] / 2**30:.2f} GiB; record: {RECORD}")
    return 0 if found["sound"] else 1


if __name__ == "__main__":
    sys.exit(main())
