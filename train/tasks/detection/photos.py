"""One split of a set in COCO's format, read by mmdet, and what is refused before anything is trained on it.

<root>/annotations/instances_{train,val}2017.json and <root>/{train,val}2017/. A photo that is not there, a category
that the file does not list and a number used twice are errors at the start. mmdet itself leaves out objects marked
`ignore`, of no area, less than a pixel wide or outside their photo, and in training photos without objects and small
ones.
"""

import contextlib
import io
import os
from pathlib import Path

import numpy
import torch
from mmdet.datasets import CocoDataset
from mmdet.datasets.api_wrappers import COCO
from omegaconf import DictConfig

from train.errors import UserError


def annotations(root: Path, split: str) -> Path:
    """Where a split's annotations lie."""
    return root / "annotations" / f"instances_{split}2017.json"


def folder(root: Path, split: str) -> Path:
    """Where a split's photos lie."""
    return root / f"{split}2017"


def read(path: Path) -> COCO:
    """Read an annotation file.

    Raises:
        UserError: it cannot be read, or is not in COCO's format.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # pycocotools prints what it does
            coco = COCO(str(path))
        if lacking := [key for key in ("images", "annotations", "categories") if key not in coco.dataset]:
            raise UserError(f"{path} has no {', '.join(lacking)}: it is not in the format of COCO's instances")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, AssertionError, KeyError, TypeError, UnicodeDecodeError) as error:
        kind = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UserError(f"{path} is not in the format of COCO's instances ({kind})") from None
    return coco


class Photos(CocoDataset):
    """mmdet's data set of one split, with its categories as the file lists them.

    Args:
        root: the set's folder.
        split: train or val; of train, photos without objects and small ones are left out.
        pipeline: mmdet's transforms.
    """

    def __init__(self, root: Path, split: str, options: DictConfig, pipeline: list[dict]) -> None:
        self.root, self.split = root, split
        self.categories: list[dict] = []
        try:
            super().__init__(
                ann_file=str(annotations(root, split)),
                data_prefix={"img": str(folder(root, split))},
                metainfo={"classes": ()},  # all that the file lists
                filter_cfg={"filter_empty_gt": True, "min_size": options.min_side},
                test_mode=split != "train",
                pipeline=pipeline,
            )
        except (AssertionError, KeyError, TypeError, ValueError) as error:
            kind = f"{type(error).__name__}: {error}".splitlines()[0]
            raise UserError(f"{annotations(root, split)} is not in the format of COCO's instances ({kind})") from None
        there = set(os.listdir(folder(root, split)))
        names = [Path(self.get_data_info(index)["img_path"]).name for index in range(len(self))]
        if lacking := [name for name in names if name not in there]:
            raise UserError(
                f"{folder(root, split)} lacks {len(lacking)} of {len(names)} photos, the first: {lacking[0]} "
                "(make check-data lists them)"
            )
        if len(self.categories) != options.classes:
            raise UserError(
                f"{annotations(root, split)}: {len(self.categories)} categories, the config says {options.classes}"
            )

    def COCOAPI(self, path: str) -> COCO:
        """Read the annotations (mmdet calls this), and keep what the file lists."""
        coco = read(Path(path))
        self.categories = coco.dataset["categories"]
        known = {category["id"] for category in self.categories}
        images = {image["id"] for image in coco.dataset["images"]}
        if len(images) != len(coco.dataset["images"]):
            raise UserError(f"{path}: photos share a number (id)")
        for entry in coco.dataset["annotations"]:
            if entry["category_id"] not in known:
                raise UserError(
                    f"{path}: object {entry.get('id')} has category {entry['category_id']}, which the file does not "
                    "list (make check-data names all of them)"
                )
            if entry["image_id"] not in images:
                raise UserError(f"{path}: object {entry.get('id')} is in photo {entry['image_id']}, which is not there")
        return coco

    def filter_data(self) -> list[dict]:
        """What mmdet leaves in; nothing is an error."""
        left = super().filter_data()
        if not left:
            raise UserError(f"{annotations(self.root, self.split)}: no photo is left to use")
        return left

    def tall(self) -> torch.Tensor:
        """Which photos are taller than wide, bool [N]: mmdet keeps the two apart in a batch."""
        infos = (self.get_data_info(index) for index in range(len(self)))
        return torch.from_numpy(numpy.fromiter((info["width"] < info["height"] for info in infos), bool, len(self)))

    def image_ids(self) -> list[int]:
        """The photos' numbers, in order."""
        return [self.get_data_info(index)["img_id"] for index in range(len(self))]

    def name(self, index: int) -> str:
        """The file, beginning at its split."""
        path = Path(self.get_data_info(index)["img_path"])
        return f"{path.parent.name}/{path.name}"
