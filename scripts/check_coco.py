"""Check a set in COCO's format: numbers, files, sizes, categories, boxes, polygons and crowds' run lengths.

Reached through `python -m scripts.check_data coco-xcit [--all]`. Objects that mmdet leaves out (of no area, less than a
pixel wide, outside their photo) are counted, not complained about: the official files hold a few.
"""

import collections
import json
import math
from collections.abc import Iterator
from pathlib import Path

from omegaconf import DictConfig
from PIL import Image

from train.data.broken import reason
from train.data.photographs import UNREADABLE
from train.errors import UserError
from train.randomness import SUBSET, permutation

SAMPLE = 1000
PEOPLE_TO_TOOTHBRUSH = 90  # the official numbers run from 1 to this, with ten of them unused


def coco_problems(config: DictConfig, whole: bool) -> list[str]:
    """What is wrong with both splits, a line for each thing.

    Args:
        config: the row's.
        whole: decode every photo, not a sample.

    Raises:
        UserError: an annotation file cannot be read as JSON.
    """
    root = Path(config.data_root).expanduser() / config.dataset.name
    expected = dict(zip(("train", "val"), config.dataset.photos or (None, None), strict=True))
    problems, listed = [], {}
    for split in ("train", "val"):
        path = root / "annotations" / f"instances_{split}2017.json"
        try:
            content = json.loads(path.read_bytes())
            images, objects, listed[split] = (content[key] for key in ("images", "annotations", "categories"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} cannot be read as COCO's instances: {type(error).__name__}: {error}") from None
        well_formed(path, images, objects, listed[split])
        print(f"{split}: {len(images)} photos, {len(objects)} objects, {len(listed[split])} categories")
        if expected[split] not in (None, len(images)):
            problems.append(f"{split}: {len(images)} photos, not {expected[split]}")
        found = [
            *category_problems(config, listed[split]),
            *number_problems(images, objects),
            *object_problems(images, objects, {category["id"] for category in listed[split]}),
            *photo_problems(root / f"{split}2017", images, whole),
        ]
        problems += [f"{split}: {problem}" for problem in found]
    if listed["train"] != listed["val"]:
        problems.append("train and val list different categories")
    return problems


def well_formed(path: Path, images: list, objects: list, categories: list) -> None:
    """Refuse entries that have no number, size or name of their own.

    Raises:
        UserError: naming the file and the first such entry.
    """
    needed = {"images": {"id": int, "file_name": str, "width": int, "height": int}, "annotations": {"id": int},
              "categories": {"id": int, "name": str}}  # fmt: skip
    for (what, keys), entries in zip(needed.items(), (images, objects, categories), strict=True):
        for place, entry in enumerate(entries if isinstance(entries, list) else [None]):
            for key, kind in keys.items():
                if not isinstance(entry, dict) or not isinstance(entry.get(key), kind):
                    raise UserError(f"{path}: entry {place} of its {what} has no {key} that is of type {kind.__name__}")


def category_problems(config: DictConfig, categories: list[dict]) -> Iterator[str]:
    """How many there are, and for COCO itself which."""
    if len(categories) != config.dataset.classes:
        yield f"{len(categories)} categories, not {config.dataset.classes}"
    if config.dataset.name == "coco":
        from train.tasks.detection.operators import load_mmdet

        load_mmdet()
        from mmdet.datasets import CocoDataset

        wanted, found = list(CocoDataset.METAINFO["classes"]), [category["name"] for category in categories]
        if found != wanted:
            odd = next((pair for pair in zip(found, wanted, strict=False) if len(set(pair)) > 1), None)
            where = f": {odd[0]!r} where {odd[1]!r} should be" if odd else ""
            yield f"categories are not COCO's in COCO's order{where}"
        elif [category["id"] for category in categories][::79] != [1, PEOPLE_TO_TOOTHBRUSH]:
            yield "categories have COCO's names but not its numbers"


def number_problems(images: list[dict], objects: list[dict]) -> Iterator[str]:
    """Numbers that two photos or two objects share."""
    for what, entries in (("photo", images), ("object", objects)):
        counts = collections.Counter(entry.get("id") for entry in entries)
        yield from (f"{count} {what}s have the number {number}" for number, count in counts.items() if count > 1)


def object_problems(images: list[dict], objects: list[dict], categories: set[int]) -> Iterator[str]:
    """Objects of unknown photos or categories, and boxes, polygons and run lengths that are not what they should be."""
    photos = {image["id"]: image for image in images}
    left_out = 0
    for entry in objects:
        name = f"object {entry.get('id')}"
        photo = photos.get(entry.get("image_id"))
        if photo is None:
            yield f"{name} is in photo {entry.get('image_id')}, which is not listed"
            continue
        if entry.get("category_id") not in categories:
            yield f"{name} has category {entry.get('category_id')}, which is not listed"
        box = entry.get("bbox")
        if not (isinstance(box, list) and len(box) == 4 and all(map(number, box))):
            yield f"{name}: its box {box} is not x, y, width, height"
            continue
        x, y, width, height = box
        if (
            width < 0
            or height < 0
            or x < -1
            or y < -1
            or x + width > photo["width"] + 1
            or y + height > photo["height"] + 1
        ):
            yield f"{name}: its box {box} leaves photo {photo['id']} of {photo['width']} x {photo['height']}"
        left_out += width < 1 or height < 1 or not entry.get("area")
        if entry.get("iscrowd") not in (0, 1):
            yield f"{name}: iscrowd is {entry.get('iscrowd')}"
        elif problem := mask_problem(entry, photo):
            yield f"{name}: {problem}"
    if left_out:
        print(f"note: {left_out} objects of no extent: training leaves them out")


def mask_problem(entry: dict, photo: dict) -> str | None:
    """What is wrong with an object's polygons, or with a crowd's run lengths."""
    mask = entry.get("segmentation")
    if isinstance(mask, list) and not entry["iscrowd"]:
        if not mask:
            return "it has no polygon"
        for polygon in mask:
            if not (
                isinstance(polygon, list) and len(polygon) >= 6 and len(polygon) % 2 == 0 and all(map(number, polygon))
            ):
                return "a polygon is not three or more pairs of numbers"
        return None
    if not isinstance(mask, dict):
        return (
            f"its mask is a {type(mask).__name__}, {'a crowd has run lengths' if entry['iscrowd'] else 'not polygons'}"
        )
    size = [photo["height"], photo["width"]]
    if mask.get("size") != size:
        return f"its run lengths are for {mask.get('size')}, the photo is {size} (height, width)"
    counts = mask.get("counts")
    if isinstance(counts, str):
        from pycocotools import mask as rle

        try:
            return None if rle.area({"size": mask["size"], "counts": counts.encode()}) > 0 else "its mask is empty"
        except (ValueError, TypeError) as error:
            return f"its run lengths cannot be read ({error})"
    if not (isinstance(counts, list) and all(isinstance(count, int) and count >= 0 for count in counts)):
        return "its run lengths are not whole numbers"
    if sum(counts) != photo["height"] * photo["width"]:
        return f"its run lengths cover {sum(counts)} pixels of {photo['height'] * photo['width']}"
    return None


def photo_problems(folder: Path, images: list[dict], whole: bool) -> Iterator[str]:
    """Photos that are not there, cannot be decoded, or have another size than the annotations say."""
    there = {path.name for path in folder.iterdir()}
    lacking = [image["file_name"] for image in images if image["file_name"] not in there]
    yield from (f"{folder.name}/{name} is not there" for name in lacking)
    chosen = range(len(images)) if whole else permutation(len(images), SUBSET)[:SAMPLE].tolist()
    for index in chosen:
        image = images[index]
        if image["file_name"] not in there:
            continue
        try:
            with Image.open(folder / image["file_name"]) as photo:
                photo.load()
                size = photo.size
        except UNREADABLE as error:
            yield f"{folder.name}/{image['file_name']} cannot be decoded: {reason(error)}"
            continue
        if size != (image["width"], image["height"]):
            wanted = f"{image['width']} x {image['height']}"
            yield f"{folder.name}/{image['file_name']} is {size[0]} x {size[1]}, the annotations say {wanted}"


def number(value: object) -> bool:
    """Whether a value is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
