"""Small image sets (digits, CIFAR-10): held in memory and augmented on whole batches, so that a step computes.

The random numbers of a batch are drawn for the whole global batch, so that every device sees the same
augmentation of the same sample whatever the number of devices.
"""

import io
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy
import torch
from omegaconf import DictConfig
from timm.data.random_erasing import RandomErasing
from torch.nn import functional as F

from train.data.plan import BatchPlan, shard
from train.distributed import Place
from train.errors import UserError
from train.randomness import AUGMENT, SUBSET, generator, permutation, seed_everything

Batch = tuple[torch.Tensor, torch.Tensor]
CIFAR10_SHAPE = (32, 32, 3)


def digits() -> tuple[Batch, Batch]:
    """scikit-learn's handwritten digits: uint8 images [N, 1, 8, 8] and int64 labels, 1,438 / 359."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    data = load_digits()
    images = torch.from_numpy((data.images * (255 / 16)).round().astype(numpy.uint8))[:, None]
    labels = torch.from_numpy(data.target.astype(numpy.int64))
    train, test = train_test_split(numpy.arange(len(labels)), test_size=359, stratify=data.target, random_state=0)
    return (images[train], labels[train]), (images[test], labels[test])


def cifar10(root: Path) -> tuple[Batch, Batch]:
    """CIFAR-10 from the hub's parquet files: uint8 images [N, 3, 32, 32] and int64 labels, 50,000 / 10,000."""
    return _parquet(root / "cifar10", "train"), _parquet(root / "cifar10", "test")


def _decoded(cell: bytes) -> numpy.ndarray:
    from PIL import Image

    return numpy.asarray(Image.open(io.BytesIO(cell)).convert("RGB"))


def _parquet(folder: Path, split: str) -> Batch:
    import pyarrow.parquet

    files = sorted(folder.glob(f"{split}-*.parquet"))
    tables = []
    for file in files:
        try:
            tables.append(pyarrow.parquet.read_table(file))
        except (pyarrow.ArrowException, OSError) as error:
            raise UserError(f"{file} cannot be read as parquet: {str(error).splitlines()[0]}") from None
    images, labels = [], []
    for file, table in zip(files, tables, strict=True):
        column = next((name for name in ("img", "image") if name in table.column_names), None)
        if column is None or "label" not in table.column_names:
            raise UserError(f"{file} has columns {table.column_names}: img and label are needed")
        try:
            cells = table[column].combine_chunks().field("bytes").to_pylist()
            # Drawn one by one, so that the count of those before names the one that fails.
            images.extend(map(_decoded, cells))
            labels.append(table["label"].to_numpy().astype(numpy.int64, casting="safe"))
        except (pyarrow.ArrowException, KeyError, OSError, TypeError, ValueError, AttributeError) as error:
            kind = type(error).__name__
            raise UserError(f"{file}: image {len(images)} or a label cannot be read ({kind})") from None
    if not images or {image.shape for image in images} != {CIFAR10_SHAPE}:
        raise UserError(f"{folder}/{split}-*.parquet: every image must be 32 x 32, and there must be some")
    known = numpy.concatenate(labels)
    if known.min() < 0 or known.max() > 9:
        raise UserError(f"{folder}/{split}-*.parquet holds labels {known.min()}..{known.max()}, not 0..9")
    pixels = torch.from_numpy(numpy.stack(images)).permute(0, 3, 1, 2).contiguous()
    return pixels, torch.from_numpy(known)


class SmallImages:
    """An image set in memory, on the device that trains."""

    def __init__(self, config: DictConfig, place: Place) -> None:
        self.config, self.options, self.place = config, config.dataset, place
        if self.options.auto_augment is not None:
            raise UserError(f"dataset.auto_augment is for image folders; {self.options.name} is augmented in memory")
        self.erase = None
        if self.options.random_erasing:
            self.erase = RandomErasing(self.options.random_erasing, mode="pixel", device=place.device)
        if config.dataset.name == "digits":
            train, test = digits()
        else:
            train, test = cifar10(Path(config.data_root).expanduser())
        if self.options.train_size is not None:
            if not 0 < self.options.train_size <= len(train[1]):
                raise UserError(f"dataset.train_size={self.options.train_size}: there are {len(train[1])} images")
            chosen = permutation(len(train[1]), SUBSET)[: self.options.train_size]  # the same for every seed
            train = train[0][chosen], train[1][chosen]
        self.train = tuple(part.to(place.device) for part in train)
        self.test = tuple(part.to(place.device) for part in test)
        shape = (1, -1, 1, 1)
        self.mean = 255 * torch.tensor(self.options.mean, device=place.device).view(shape)
        self.std = 255 * torch.tensor(self.options.std, device=place.device).view(shape)

    @cached_property
    def plan(self) -> BatchPlan:
        """Which samples make up which training batch; an evaluation never asks."""
        config = self.config
        return BatchPlan(
            len(self.train[1]),
            config.batch_size,
            config.seed,
            self.place,
            config.runtime.micro_batch,
            config.dataset.repeats,
        )

    def batches(self, start: int, stop: int) -> Iterator[list[Batch]]:
        """This rank's micro-batches for the steps start..stop-1: float images [B, C, H, W], int64 labels [B]."""
        for epoch, position, parts in self.plan.micro_batches(start, stop):
            window, mirrored = self._draw(epoch, position)
            batch = []
            for part, indices in parts:
                images = self.train[0][indices.to(self.place.device)]
                images = self._normalised(augment(images, self.options.pad, window[part], mirrored[part]))
                if self.erase is not None:
                    for image, offset in zip(images, range(self.plan.batch)[part], strict=True):
                        seed_everything(self.config.seed, AUGMENT, epoch, position + offset)
                        self.erase(image)
                batch.append((images, self.train[1][indices.to(self.place.device)]))
            yield batch

    def evaluation_batches(self, size: int) -> Iterator[Batch]:
        """This rank's share of the test set, in order, without padding or augmentation."""
        share = torch.tensor(list(shard(len(self.test[1]), self.place)), device=self.place.device)
        for indices in share.split(size):
            yield self._normalised(self.test[0][indices]), self.test[1][indices]

    def class_names(self) -> list[str]:
        """The classes' numbers: these sets carry no names."""
        return [str(label) for label in range(self.options.classes)]

    def image_name(self, index: int) -> str:
        """What a test image is called."""
        return f"test row {index}"

    def _draw(self, epoch: int, position: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Crop offsets [B, 2] and mirror flags [B] of one global batch."""
        stream = generator(self.config.seed, AUGMENT, epoch, position)
        window = torch.randint(0, 2 * self.options.pad + 1, (self.plan.batch, 2), generator=stream)
        mirrored = torch.rand(self.plan.batch, generator=stream) < self.options.flip
        return window.to(self.place.device), mirrored.to(self.place.device)

    def _normalised(self, images: torch.Tensor) -> torch.Tensor:
        return (images.float() - self.mean) / self.std


def augment(images: torch.Tensor, pad: int, window: torch.Tensor, mirrored: torch.Tensor) -> torch.Tensor:
    """Random crop after zero padding, and mirroring, of a whole batch at once.

    Args:
        images: uint8 [B, C, H, W].
        pad: pixels of zero padding on every side.
        window: int64 [B, 2], top and left of the crop within the padded image, 0..2·pad.
        mirrored: bool [B].
    """
    if pad:
        height, width = images.shape[-2:]
        windows = F.pad(images, [pad] * 4).unfold(2, height, 1).unfold(3, width, 1)
        rows = torch.arange(len(images), device=images.device)
        images = windows[rows, :, window[:, 0], window[:, 1]]
    return torch.where(mirrored[:, None, None, None], images.flip(-1), images)
