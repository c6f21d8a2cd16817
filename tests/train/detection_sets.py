"""Small sets in COCO's format for the detection tests, written out by hand."""

import functools
import json

import numpy
from omegaconf import OmegaConf
from PIL import Image

from train.compose import resolve

CATEGORIES = [{"id": 3, "name": "left"}, {"id": 7, "name": "right"}]  # numbers with holes, as COCO's


def box(number, photo, x, y, width, height, category=3, crowd=False, size=(64, 64)):
    """An object that is a box; a crowd has run lengths (size: height, width of its photo)."""
    polygon = [x, y, x + width, y, x + width, y + height, x, y + height]
    mask = [polygon]
    if crowd:
        pixels = numpy.zeros(size, dtype=bool)
        pixels[y : y + height, x : x + width] = True
        flat = numpy.concatenate([[False], pixels.flatten(order="F")])
        changes = numpy.flatnonzero(flat[1:] != flat[:-1])
        mask = {"counts": numpy.diff(numpy.concatenate([[0], changes, [pixels.size]])).tolist(), "size": list(size)}
    return {
        "id": number,
        "image_id": photo,
        "category_id": category,
        "bbox": [x, y, width, height],
        "area": width * height,
        "iscrowd": int(crowd),
        "segmentation": mask,
    }


def write_split(root, split, photos, objects, categories=CATEGORIES):
    """A split of `photos`, each (number, width, height) with a last entry "L" where it is grey."""
    place = root / "coco" / f"{split}2017"
    place.mkdir(parents=True, exist_ok=True)
    draw = numpy.random.default_rng(len(photos))
    images = []
    for number, width, height, *grey in photos:
        shape = (height, width) if grey else (height, width, 3)
        Image.fromarray(draw.integers(0, 255, shape, dtype=numpy.uint8)).save(place / f"{number:012d}.png")
        images.append({"id": number, "file_name": f"{number:012d}.png", "width": width, "height": height})
    write_annotations(root, split, images, objects, categories)
    return root


def write_annotations(root, split, images, objects, categories=CATEGORIES):
    path = root / "coco" / "annotations" / f"instances_{split}2017.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"images": images, "annotations": objects, "categories": categories}))


WORDS = [
    "experiment=reduced/coco_xcit",
    "dataset=coco",
    "dataset.classes=2",
    "dataset.photos=null",
    "dataset.short_sides=[64]",
    "dataset.longest=96",
    "dataset.crop_sides=null",
    "dataset.test_side=64",
    "model.name=xcit_nano_12_p16_224",
    "model.args.embed_dim=32",
    "model.args.num_heads=2",
    "model.detector.neck.out_channels=16",
    "model.detector.rpn_head.feat_channels=16",
    "model.detector.roi_head.bbox_head.fc_out_channels=32",
    "model.detector.roi_head.mask_head.num_convs=1",
    "model.detector.roi_head.mask_head.conv_out_channels=16",
    "batch_size=4",
    "runtime.workers=0",
    "runtime.threads=1",
    "runtime.device=cpu",
    "runtime.precision=fp32",
    "runtime.wandb=off",
]
resolved = functools.cache(lambda *words: resolve(list(words)))


def small(root, *more):
    """The config of the reduced detector, smaller still, on a set of two categories; `more` are key=value words."""
    changes = OmegaConf.from_dotlist(list(more))
    return OmegaConf.merge(resolved(*WORDS), changes, {"data_root": str(root)})


def mixed_set(root, train=24, val=5):
    """Wide and tall photos, each with one or two objects; one of the validation photos has none."""
    for split, count in (("train", train), ("val", val)):
        photos = [(n, *((64, 48), (48, 64))[n % 3 == 0]) for n in range(1, count + 1)]
        objects = [box(n, n, 8, 8, 20, 16, (3, 7)[n % 2]) for n in range(1, count + (split == "train"))]
        objects += [box(100 + n, n, 20, 20, 12, 24, 7) for n in range(1, count, 3)]
        write_split(root, split, photos, objects)
    return root
