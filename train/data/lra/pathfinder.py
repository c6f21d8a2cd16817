"""Pathfinder: one level's folder with metadata/*.npy (text: one line an image) and imgs/<batch>/*.png.

Pixels are their own tokens, row by row; the black background is the padding token and masked, as in the original.
`split` is "nystromformer" (all images pooled, shuffled, cut 80/10/10; there without a seed, here with a fixed one) or
"google" (cut 80/10/10 in order; TensorFlow's data set has an order of its own, ours is that of the files [I]).
The official release holds some PNGs of zero bytes: they are left out, as in the original, and counted.
"""

import re
import sys
from pathlib import Path

import numpy
import torch
from omegaconf import DictConfig
from PIL import Image

from train.data.lra.image import PIXELS, check_length, token_set
from train.data.lra.lines import opened, quoted
from train.data.lra.tokens import TokenSet, chosen
from train.errors import UserError
from train.randomness import SUBSET, permutation

SIDE = 32
FIELDS = 4  # folder, file, index, label; what follows describes how the image was drawn
SPLITS = ("nystromformer", "google")
EMPTY_LIMIT = 1e-3  # of the images may have zero bytes

Entry = tuple[str, int]  # file below the level's folder, label


def entries(folder: Path) -> list[Entry]:
    """What the metadata lists, in the order of batches and lines, without files of zero bytes; opens no image.

    Raises:
        UserError: a line or a file is not what it should be, or more than 0.1 % of the files have zero bytes.
    """
    found, empty = [], []
    files = sorted(
        (folder / "metadata").glob("*.npy"), key=lambda path: [int(n) for n in re.findall(r"\d+", path.name)]
    )
    if not files:
        raise UserError(f"{folder / 'metadata'} holds no .npy file")
    for path in files:
        for number, line in opened(path):
            fields = line.split()
            if len(fields) < FIELDS:
                raise UserError(f"{path}, line {number}: {len(fields)} fields, at least {FIELDS} are needed")
            if fields[3] not in (b"0", b"1"):
                raise UserError(f"{path}, line {number}: the label is {quoted(fields[3])}, not 0 or 1")
            name = b"/".join(fields[:2]).decode("utf-8", "replace")
            try:
                size = (folder / name).stat().st_size
            except OSError as error:
                raise UserError(f"{path}, line {number}: {folder / name}: {error.strerror}") from None
            (found if size else empty).append((name, int(fields[3])))
    total = len(found) + len(empty)
    if len(empty) > EMPTY_LIMIT * total:
        raise UserError(
            f"{folder / empty[0][0]} has zero bytes, as have {len(empty) - 1} more of {total} images, more than "
            f"{EMPTY_LIMIT:.1%}: unpack or copy them again"
        )
    if empty:
        print(f"{folder}: {len(empty)} of {total} images have zero bytes and are left out", file=sys.stderr)
    return found


def splits(count: int, how: str) -> dict[str, torch.Tensor]:
    """Which of `count` images belong to train, dev and test."""
    if how not in SPLITS:
        raise UserError(f"dataset.split={how}: there are {', '.join(SPLITS)}")
    order = permutation(count, SUBSET) if how == "nystromformer" else torch.arange(count)
    train, dev = count * 8 // 10, count * 9 // 10
    return {"train": order[:train], "dev": order[train:dev], "test": order[dev:]}


def pixels(path: Path) -> numpy.ndarray:
    """One image, uint8 [PIXELS].

    Raises:
        UserError: it cannot be read, or is not a grey image of 32 x 32.
    """
    try:
        with Image.open(path) as image:
            if image.size != (SIDE, SIDE) or image.mode != "L":
                raise UserError(f"{path} is {image.size[0]} x {image.size[1]}, mode {image.mode}: not a grey 32 x 32")
            return numpy.asarray(image).ravel()
    except (OSError, SyntaxError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path} cannot be read: {reason}: unpack or copy it again") from None


def load(options: DictConfig, root: Path) -> dict[str, TokenSet]:
    """The three splits; only the images that are asked for are decoded."""
    check_length(options)
    folder = root / options.folder
    listed = entries(folder)
    found = {}
    for split, members in splits(len(listed), options.split).items():
        key = "train_size" if split == "train" else "eval_size"
        indices = chosen(len(members), getattr(options, key), key)
        members = (members if indices is None else members[indices]).tolist()
        images = numpy.empty((len(members), PIXELS), dtype=numpy.uint8)
        for row, index in zip(images, members, strict=True):
            row[:] = pixels(folder / listed[index][0])
        labels = torch.tensor([listed[index][1] for index in members], dtype=torch.int64)
        found[split] = token_set(torch.from_numpy(images), labels, options.padded_length)
    return found
