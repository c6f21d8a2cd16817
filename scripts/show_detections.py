"""Draw detections with their masks over photos, for a person to look at.

    python -m scripts.show_detections detections.segm.json --set <folder of the set> [--split val] [--into picture.png]
        [--photos 8] [--threshold 0.5]

The detections are what `mode=evaluate predictions=detections.json` writes. Each photo is shown twice: beside it the
annotated objects.
"""

import argparse
import contextlib
import io
import json
import sys
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy
from PIL import Image
from pycocotools import mask as rle
from pycocotools.coco import COCO

from train.errors import USAGE, UserError

HEIGHT = 2.6  # inches of a photo


def overlay(axes: plt.Axes, image: Image.Image, entries: list[tuple[numpy.ndarray, str, int]], title: str) -> None:
    """A photo with masks, each with its outline and label.

    Args:
        entries: mask bool [height, width], label, and a number that picks the colour.
    """
    axes.imshow(image)
    colours = matplotlib.colormaps["tab20"]
    tint = numpy.zeros((image.height, image.width, 4))
    for mask, _, number in entries:
        tint[mask] = (*colours(number % 20)[:3], 0.45)
    axes.imshow(tint)
    for mask, label, number in entries:
        if not mask.any():
            continue
        axes.contour(mask, levels=[0.5], colors=[colours(number % 20)], linewidths=0.8)
        row, column = numpy.argwhere(mask)[0]
        box = {"facecolor": colours(number % 20), "alpha": 0.8, "pad": 0.6, "linewidth": 0}
        axes.text(column, row, label, fontsize=4.5, color="white", va="bottom", bbox=box)
    axes.set_title(title, fontsize=6, loc="left")
    axes.axis("off")


def picture(detections: list[dict], root: Path, split: str, count: int, threshold: float) -> plt.Figure:
    """The first `count` photos with any detection above the threshold: annotated left, detected right.

    Raises:
        UserError: the set cannot be read, or no photo has such a detection.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # pycocotools prints what it does
            truth = COCO(str(root / "annotations" / f"instances_{split}2017.json"))
    except (OSError, ValueError, AssertionError) as error:
        raise UserError(f"{root} is not a set in COCO's format ({error})") from None
    names = {category["id"]: category["name"] for category in truth.dataset["categories"]}
    found = defaultdict(list)
    for entry in detections:
        if entry["score"] >= threshold:
            found[entry["image_id"]].append(entry)
    chosen = [image for image in truth.dataset["images"] if image["id"] in found][:count]
    if not chosen:
        raise UserError(f"no photo of {root} has a detection of score {threshold:g} or more")
    columns = 2 if len(chosen) > 1 else 1
    rows = -(-len(chosen) // columns)
    figure, grid = plt.subplots(rows, 2 * columns, figsize=(2 * columns * HEIGHT * 1.3, rows * HEIGHT), squeeze=False)
    for axes in grid.flat:
        axes.axis("off")
    for place, image in enumerate(chosen):
        with Image.open(root / f"{split}2017" / image["file_name"]) as opened:
            photo = opened.convert("RGB")
        row, column = divmod(place, columns)
        annotated = [
            (truth.annToMask(entry).astype(bool), names[entry["category_id"]], number)
            for number, entry in enumerate(truth.imgToAnns[image["id"]])
        ]
        overlay(grid[row][2 * column], photo, annotated, f"{image['file_name']}: annotated, {len(annotated)} objects")
        detected = []
        for number, entry in enumerate(sorted(found[image["id"]], key=lambda entry: entry["score"])):
            code = entry["segmentation"]
            mask = rle.decode({"size": code["size"], "counts": code["counts"].encode()}).astype(bool)
            detected.append((mask, f"{names[entry['category_id']]} {entry['score']:.2f}", number))
        overlay(grid[row][2 * column + 1], photo, detected, f"detected, {len(detected)} of score {threshold:g} or more")
    figure.tight_layout(pad=0.4)
    return figure


def main() -> int:
    """Draw and say where."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("detections", type=Path, help="a .segm.json in COCO's result format")
    parser.add_argument("--set", type=Path, required=True, help="the folder with annotations/ and {train,val}2017/")
    parser.add_argument("--split", choices=("train", "val"), default="val")
    parser.add_argument("--into", type=Path, default=Path("detections.png"))
    parser.add_argument("--photos", type=int, default=8)
    parser.add_argument("--threshold", type=float, default=0.5)
    chosen = parser.parse_args()
    try:
        try:
            detections = json.loads(chosen.detections.read_text())
            if detections and not {"image_id", "score", "segmentation"} <= detections[0].keys():
                raise ValueError("no masks")
        except (OSError, ValueError, AttributeError, KeyError) as error:
            raise UserError(f"{chosen.detections} is not a file of detected masks ({error})") from None
        figure = picture(detections, chosen.set, chosen.split, chosen.photos, chosen.threshold)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    temporary = chosen.into.with_name(f".tmp.{chosen.into.name}")  # its ending says which format
    figure.savefig(temporary, dpi=150)
    temporary.replace(chosen.into)
    print(f"picture: {chosen.into}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
