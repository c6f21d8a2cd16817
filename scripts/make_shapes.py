"""Draw the reduced COCO row's data: discs, boxes and triangles in COCO's format.

    python -m scripts.make_shapes [--into FOLDER] [key=value ...]

Every picture follows from (seed, split, index) alone. Most hold one to six objects that may hide parts of each other;
some hold a crowd (many small discs, one RLE, iscrowd), some nothing. What is stopped goes on where it was; the
manifest is written last. Without --into the set lies where the reduced row looks for it; `dataset.shapes.*` say what is
drawn. Exit status 0: the set is there, 2: a mistake.
"""

import argparse
import hashlib
import json
import math
import os
import sys
import time
from pathlib import Path

import numpy
from omegaconf import DictConfig, OmegaConf
from PIL import Image, ImageDraw
from shapely import Point, Polygon, unary_union

from train.compose import expand, resolve
from train.errors import USAGE, UserError
from train.folder import check_writable
from train.progress import clock
from train.record_files import write

CATEGORIES = ("disc", "box", "triangle")
FINE = 4  # pictures are drawn this many times finer and averaged: soft edges
EMPTY, CROWDED = 0.06, 0.06  # shares of the pictures
HIDDEN = 0.4  # at most this much of an object may be hidden
SPLITS = ("train", "val")


def outline(kind: int, draw: numpy.random.Generator, side: int) -> Polygon:
    """An object's outline in pixels: somewhere, of some size and turn."""
    radius = draw.uniform(0.1, 0.25) * side
    x, y = draw.uniform(0.6 * radius, side - 0.6 * radius, 2)
    turn = draw.uniform(0, 2 * math.pi)
    if kind == 0:
        return Point(x, y).buffer(radius, quad_segs=8)
    corners = 4 if kind == 1 else 3
    stretch = draw.uniform(0.6, 1.0) if kind == 1 else 1.0
    angles = turn + 2 * math.pi * numpy.arange(corners) / corners + (math.pi / 4 if kind == 1 else 0)
    along, across = radius * numpy.cos(angles - turn), radius * stretch * numpy.sin(angles - turn)
    points = numpy.stack(
        [along * math.cos(turn) - across * math.sin(turn), along * math.sin(turn) + across * math.cos(turn)]
    )
    return Polygon(points.T + numpy.array([x, y]))


def parts(shape: Polygon) -> list[Polygon]:
    """The polygons that a shape consists of."""
    return [part for part in getattr(shape, "geoms", [shape]) if part.geom_type == "Polygon" and part.area > 0.5]


def scene(
    draw: numpy.random.Generator, side: int
) -> tuple[list[tuple[int, Polygon]], tuple[int, list[Polygon]] | None]:
    """Objects from back to front as (category, whole outline), and a crowd as (category, outlines)."""
    frame = Polygon([(0, 0), (side, 0), (side, side), (0, side)])
    fate = draw.uniform()
    if fate < EMPTY:
        return [], None
    objects: list[tuple[int, Polygon]] = []
    for _ in range(draw.integers(1, 7)):
        kind = int(draw.integers(3))
        candidate = outline(kind, draw, side).intersection(frame)
        front = [*(shape for _, shape in objects), candidate]
        visible = [shape.difference(unary_union(front[i + 1 :])).area for i, shape in enumerate(front)]
        if all(seen >= (1 - HIDDEN) * shape.area for seen, shape in zip(visible, front, strict=True)):
            objects.append((kind, candidate))
    if fate >= EMPTY + CROWDED:
        return objects, None
    middle = draw.uniform(0.3 * side, 0.7 * side, 2)
    places = draw.normal(middle, 0.09 * side, (18, 2))
    crowd = [Point(*place).buffer(0.025 * side, quad_segs=4).intersection(frame) for place in places]
    return objects[:2], (0, [member for member in crowd if not member.is_empty])


def painted(draw: numpy.random.Generator, side: int, shapes: list[Polygon]) -> Image.Image:
    """The picture: a shaded ground, the shapes from back to front each in a colour of its own, and noise."""
    ground = draw.uniform(40, 215, 3)
    picture = Image.new("RGB", (FINE * side, FINE * side), tuple(map(int, ground)))
    brush = ImageDraw.Draw(picture)
    for shape in shapes:
        colour = draw.uniform(0, 255, 3)
        while numpy.abs(colour - ground).max() < 70:
            colour = draw.uniform(0, 255, 3)
        for part in parts(shape):
            brush.polygon([(FINE * x, FINE * y) for x, y in part.exterior.coords], fill=tuple(map(int, colour)))
    pixels = numpy.asarray(picture.reduce(FINE), dtype=numpy.float64)
    slope = draw.uniform(-25, 25, 2)
    row = numpy.linspace(-1, 1, side)
    pixels = pixels + (slope[0] * row[:, None] + slope[1] * row[None, :])[..., None] + draw.normal(0, 8, pixels.shape)
    return Image.fromarray(pixels.clip(0, 255).round().astype(numpy.uint8))


def crowd_mask(members: list[Polygon], side: int) -> numpy.ndarray:
    """The pixels of a crowd, bool [side, side]."""
    canvas = Image.new("1", (side, side))
    brush = ImageDraw.Draw(canvas)
    for member in members:
        for part in parts(member):
            brush.polygon([(x - 0.5, y - 0.5) for x, y in part.exterior.coords], fill=1)
    return numpy.asarray(canvas)


def run_lengths(mask: numpy.ndarray) -> list[int]:
    """COCO's uncompressed RLE: column by column, how many pixels are out, in, out, ..."""
    flat = numpy.concatenate([[False], mask.flatten(order="F")])
    changes = numpy.flatnonzero(flat[1:] != flat[:-1])
    return numpy.diff(numpy.concatenate([[0], changes, [mask.size]])).tolist()


def example(shapes: dict, split: str, index: int) -> tuple[list[dict], Image.Image]:
    """One picture and its objects, without their numbers."""
    side = shapes["side"]
    draw = numpy.random.default_rng([shapes["seed"], SPLITS.index(split), index])
    objects, crowd = scene(draw, side)
    order = [shape for _, shape in objects] + (crowd[1] if crowd else [])
    entries = []
    for place, (kind, shape) in enumerate(objects):
        visible = parts(shape.difference(unary_union(order[place + 1 :])))
        x1, y1 = (min(part.bounds[axis] for part in visible) for axis in (0, 1))
        x2, y2 = (max(part.bounds[axis] for part in visible) for axis in (2, 3))
        polygons = [[round(value, 2) for point in part.exterior.coords[:-1] for value in point] for part in visible]
        box = [round(value, 2) for value in (x1, y1, x2 - x1, y2 - y1)]
        area = round(sum(part.area for part in visible), 2)
        entries.append({"category_id": kind + 1, "iscrowd": 0, "segmentation": polygons, "bbox": box, "area": area})
    if crowd:
        mask = crowd_mask(crowd[1], side)
        rows, columns = numpy.flatnonzero(mask.any(1)), numpy.flatnonzero(mask.any(0))
        box = [int(columns[0]), int(rows[0]), int(columns[-1] - columns[0] + 1), int(rows[-1] - rows[0] + 1)]
        code = {"counts": run_lengths(mask), "size": [side, side]}
        entries.append(
            {"category_id": crowd[0] + 1, "iscrowd": 1, "segmentation": code, "bbox": box, "area": int(mask.sum())}
        )
    return entries, painted(draw, side, order)


def draw_split(folder: Path, shapes: dict, split: str) -> str:
    """Draw what is not there of a split, and write its annotations; returns their sha256."""
    place = folder / f"{split}2017"
    place.mkdir(parents=True, exist_ok=True)
    images, annotations = [], []
    began = shown = time.monotonic()
    for index in range(shapes[split]):
        name = f"{index + 1:012d}.png"
        entries, picture = example(shapes, split, index)
        if not (place / name).exists():
            temporary = place / f".{name}.tmp"
            picture.save(temporary, format="png")
            os.replace(temporary, place / name)
        images.append({"id": index + 1, "file_name": name, "width": shapes["side"], "height": shapes["side"]})
        for entry in entries:
            annotations.append({"id": len(annotations) + 1, "image_id": index + 1, **entry})
        if time.monotonic() - shown > 2 or index + 1 == shapes[split]:
            shown = time.monotonic()
            left = (shown - began) / (index + 1) * (shapes[split] - index - 1)
            print(f"{split}: {index + 1} of {shapes[split]} drawn, left {clock(left)}", file=sys.stderr, flush=True)
    categories = [{"id": number, "name": name, "supercategory": "shape"} for number, name in enumerate(CATEGORIES, 1)]
    text = json.dumps(
        {"info": {}, "licenses": [], "images": images, "annotations": annotations, "categories": categories}
    )
    (folder / "annotations").mkdir(exist_ok=True)
    write(folder / "annotations" / f"instances_{split}2017.json", text)
    return hashlib.sha256(text.encode()).hexdigest()


def draw(folder: Path, shapes: dict) -> bool:
    """Draw a set; returns whether anything was to be done.

    Raises:
        UserError: the folder holds something else, or cannot be written.
    """
    manifest = folder / "manifest.json"
    check_writable(folder)
    if folder.exists() and any(folder.iterdir()) and not manifest.exists():
        raise UserError(f"{folder} holds something that was not drawn here: name another folder with --into")
    if manifest.exists():
        try:
            held = json.loads(manifest.read_text())
            begun, complete = held["shapes"], held["complete"]
        except (OSError, ValueError, KeyError, TypeError):
            raise UserError(f"{manifest} is damaged: move {folder} away") from None
        if begun != shapes:
            raise UserError(f"{folder} was drawn with other settings ({begun}): name another folder with --into")
        if complete:
            return False
    folder.mkdir(parents=True, exist_ok=True)
    write(manifest, json.dumps({"shapes": shapes, "complete": False}) + "\n")
    sums = {split: draw_split(folder, shapes, split) for split in SPLITS}
    write(manifest, json.dumps({"shapes": shapes, "complete": True, "annotations_sha256": sums}, indent=1) + "\n")
    return True


def asked(words: list[str]) -> list[DictConfig]:
    """The configs of the runs that the words ask for, a sweep's too."""
    return [resolve(run) for run in expand(["experiment=reduced/coco_xcit", *words])]


def main() -> int:
    """Draw what the words ask for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="key=value words for the config, dataset.shapes.train=400")
    parser.add_argument("--into", type=Path, help="the set's folder")
    chosen = parser.parse_intermixed_args()
    try:
        for config in asked(chosen.words):
            if config.dataset.shapes is None:
                print(f"dataset {config.dataset.name} is not drawn: nothing to do")
                continue
            folder = chosen.into or Path(config.data_root).expanduser() / config.dataset.name
            done = draw(folder, OmegaConf.to_container(config.dataset.shapes))
            print(f"shapes: {folder}" + ("" if done else ", there already"))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    return 0


if __name__ == "__main__":
    sys.exit(main())
