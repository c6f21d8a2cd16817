"""Image: CIFAR-10 in grey, a row of 1,024 pixels; the first 45,000 training images train, the last 5,000 are dev.

Pixels are their own tokens, so that black is the padding token and masked, as in the original. Its training loader
repeats the 45,000 without end; here an epoch ends after them. The order is the parquet files', where the original's
is that of TensorFlow's data set: which 5,000 images are dev differs.
"""

from pathlib import Path

import numpy
import torch
from omegaconf import DictConfig

from train.data.lra.tokens import TokenSet, limited
from train.data.small import cifar10
from train.errors import UserError

GREY = (0.2989, 0.587, 0.114)
TRAIN = 45000
PIXELS = 1024


def grey(images_NCHW: torch.Tensor) -> torch.Tensor:
    """uint8 [N, 3, H, W] → uint8 [N, H·W], row by row.

    Rounded as tf.image does it [M]: to [0, 1], times 255.5, cut.
    """
    weights = torch.tensor(GREY) / 255
    parts = [(part.float() * weights.view(3, 1, 1)).sum(1) for part in images_NCHW.split(5000)]
    return (torch.cat(parts) * 255.5).clamp(0, 255).to(torch.uint8).flatten(1)


def token_set(images: torch.Tensor, labels: torch.Tensor, padded_length: int) -> TokenSet:
    """Images of `PIXELS` pixels, uint8 [n, PIXELS]."""
    offsets = numpy.arange(len(images) + 1, dtype=numpy.int64) * PIXELS
    return TokenSet(images.numpy().reshape(-1), offsets, labels, padded_length)


def check_length(options: DictConfig) -> None:
    """Refuse lengths that an image of `PIXELS` pixels does not have: a cut image would be another task."""
    if options.max_length != PIXELS or options.padded_length < PIXELS:
        raise UserError(
            f"dataset.max_length={options.max_length}, padded_length={options.padded_length}: an image has {PIXELS}"
        )


def load(options: DictConfig, root: Path) -> dict[str, TokenSet]:
    """The three splits."""
    check_length(options)
    if options.folder != "cifar10":
        raise UserError(f"dataset.folder={options.folder}: CIFAR-10 lies in cifar10")
    (images, labels), (test, test_labels) = cifar10(root)
    if len(labels) <= TRAIN:
        raise UserError(
            f"{root / options.folder}: {len(labels)} training images, where {TRAIN} and some for dev are needed"
        )
    train = grey(images)
    parts = {
        "train": (train[:TRAIN], labels[:TRAIN]),
        "dev": (train[TRAIN:], labels[TRAIN:]),
        "test": (grey(test), test_labels),
    }
    found = {}
    for split, (pixels, known) in parts.items():
        key = "train_size" if split == "train" else "eval_size"
        found[split] = limited(token_set(pixels, known, options.padded_length), getattr(options, key), key)
    return found
