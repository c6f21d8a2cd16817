"""The detector overfits eight real photos: AP^b_50 of at least 50 on the photos it was trained on.

    DATA_ROOT=<folder with coco> python -m scripts.bench_coco_overfit [--work outputs/overfit] [key=value ...]

The small detector of the reduced row with COCO's 80 categories, through `python -m train`, on the training split's
first eight photos with an object of some size; evaluated on the same eight. Record: results/coco_overfit.json;
picture of the detections: results/figures/coco_overfit.jpg.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from train.compose import distinguishing, resolve
from train.errors import FAILED
from train.folder import run_folder, summary
from train.record_files import write

PHOTOS, GOAL = 8, 50.0
RECORD, PICTURE = Path("results/coco_overfit.json"), Path("results/figures/coco_overfit.jpg")
WORDS = [
    "experiment=reduced/coco_xcit",
    "dataset=coco",
    "dataset.short_sides=[160]",
    "dataset.longest=224",
    "dataset.crop_sides=null",
    "dataset.test_side=160",
    "dataset.flip=0",
    "batch_size=4",
    "schedule.epochs=null",
    "schedule.steps=300",
    "schedule.milestones=[130]",
    "schedule.warmup_epochs=null",
    "schedule.warmup_steps=20",
    "evaluate.epochs=null",
    "evaluate.steps=300",
    "task.group=1",
    "task.evaluation_batch=1",
    "runtime.workers=0",
    "runtime.threads=1",
    "runtime.device=cpu",
    "runtime.precision=fp32",
    "runtime.wandb=off",
]


def few(source: Path, target: Path) -> None:
    """A set in COCO's format of eight photos, linked, the same for training and validation."""
    content = json.loads((source / "annotations" / "instances_train2017.json").read_text())
    large = {entry["image_id"] for entry in content["annotations"] if entry["area"] > 64**2}
    images = sorted((image for image in content["images"] if image["id"] in large), key=lambda image: image["id"])[
        :PHOTOS
    ]
    chosen = {image["id"] for image in images}
    kept = [entry for entry in content["annotations"] if entry["image_id"] in chosen]
    (target / "annotations").mkdir(parents=True, exist_ok=True)
    for split in ("train", "val"):
        place = target / f"{split}2017"
        place.mkdir(exist_ok=True)
        for image in images:
            link = place / image["file_name"]
            link.unlink(missing_ok=True)
            link.symlink_to((source / "train2017" / image["file_name"]).absolute())
        text = json.dumps(content | {"images": images, "annotations": kept})
        write(target / "annotations" / f"instances_{split}2017.json", text)


def main() -> int:
    """Train, evaluate, draw, and say whether the goal is reached."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="key=value words for the config")
    parser.add_argument("--work", type=Path, default=Path("outputs/overfit"))
    chosen = parser.parse_intermixed_args()
    root = os.environ.get("DATA_ROOT")
    if not root or not (Path(root) / "coco").is_dir():
        print("error: set DATA_ROOT to the folder that holds coco/", file=sys.stderr)
        return 2
    few(Path(root) / "coco", chosen.work / "data" / "coco")
    words = [*WORDS, *chosen.words, f"data_root={chosen.work / 'data'}", f"output_root={chosen.work}"]
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "train", *words], check=True)
    seconds = time.perf_counter() - began
    found = summary(run_folder(resolve(words), distinguishing(words)))
    detections = chosen.work / "detections.json"
    evaluation = [*words, "mode=evaluate", f"predictions={detections}"]
    subprocess.run([sys.executable, "-m", "train", *evaluation], check=True, stdout=subprocess.DEVNULL)
    drawing = [
        str(detections.with_suffix(".segm.json")),
        "--set",
        str(chosen.work / "data" / "coco"),
        "--into",
        str(PICTURE),
    ]
    subprocess.run([sys.executable, "-m", "scripts.show_detections", *drawing], check=True)
    reached = found["metrics"]["ap_box_50"] >= GOAL
    record = {
        "photos": PHOTOS,
        "goal_ap_box_50": GOAL,
        "reached": reached,
        "steps": found["step"],
        "parameters": found["parameters"],
        "metrics": found["metrics"],
        "seconds": seconds,
        "peak_memory_bytes": found["timing"]["peak_memory_bytes"],
    }
    write(RECORD, json.dumps(record, indent=1) + "\n")
    print(
        f"AP^b_50 {found['metrics']['ap_box_50']:.1f} on the {PHOTOS} photos: {'reached' if reached else 'NOT reached'}"
    )
    return 0 if reached else FAILED


if __name__ == "__main__":
    sys.exit(main())
