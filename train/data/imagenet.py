"""ImageNet (or any set laid out like it) from `<data_root>/<name>/{train,val}/<class>/*`, decoded by loader workers.

Every sample's randomness is seeded by (seed, epoch, position): which worker decodes it changes nothing.
"""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import torch
from omegaconf import DictConfig
from timm.data import create_transform
from timm.data.transforms import str_to_interp_mode
from torch.utils.data import DataLoader, Dataset, Subset
from torchvision import transforms
from torchvision.datasets import ImageFolder

from train.data.plan import BatchPlan, shard
from train.data.small import Batch
from train.distributed import Place
from train.errors import UserError
from train.launch import threads
from train.randomness import AUGMENT, seed_everything
from train.signals import leave_to_parent


def train_transform(options: DictConfig) -> transforms.Compose:
    """The recipe's training transform: torchvision's for 'ra' or none, timm's for a timm auto-augment string."""
    if options.auto_augment not in (None, "ra"):
        return create_transform(
            options.image_size,
            is_training=True,
            scale=tuple(options.scale),
            ratio=tuple(options.ratio),
            hflip=options.flip,
            auto_augment=options.auto_augment,
            interpolation=options.interpolation,
            mean=tuple(options.mean),
            std=tuple(options.std),
            re_prob=options.random_erasing,
            re_mode="pixel",
        )
    mode = str_to_interp_mode(options.interpolation)
    steps = [
        transforms.RandomResizedCrop(options.image_size, tuple(options.scale), tuple(options.ratio), mode),
        transforms.RandomHorizontalFlip(options.flip),
    ]
    if options.auto_augment == "ra":
        steps.append(transforms.RandAugment(interpolation=mode))
    steps += [transforms.ToTensor(), transforms.Normalize(options.mean, options.std)]
    if options.random_erasing:
        steps.append(transforms.RandomErasing(options.random_erasing))
    return transforms.Compose(steps)


def evaluation_transform(options: DictConfig) -> transforms.Compose:
    """Resize so that the centre crop of `image_size` is `crop_ratio` of the short side, and normalise."""
    return create_transform(
        options.image_size,
        crop_pct=options.crop_ratio,
        interpolation=options.interpolation,
        mean=tuple(options.mean),
        std=tuple(options.std),
    )


class Seeded(Dataset):
    """An image folder whose items are asked for by (epoch, position, index) and drawn from that seed alone."""

    def __init__(self, images: Dataset, seed: int) -> None:
        self.images, self.seed = images, seed

    def __getitem__(self, key: tuple[int, int, int]) -> tuple[torch.Tensor, int]:
        epoch, position, index = key
        seed_everything(self.seed, AUGMENT, epoch, position)
        return self.images[index]


class FolderImages:
    """An image set in class folders."""

    def __init__(self, config: DictConfig, place: Place) -> None:
        options = config.dataset
        root = Path(config.data_root).expanduser() / options.name
        self.config, self.place = config, place
        try:
            self.train = ImageFolder(root / "train", train_transform(options))
            self.test = ImageFolder(root / "val", evaluation_transform(options))
        except FileNotFoundError as error:
            raise UserError(str(error).splitlines()[0]) from None
        if self.train.classes != self.test.classes:
            odd = sorted(set(self.train.classes) ^ set(self.test.classes))
            raise UserError(f"{root}: train and val hold different classes: {', '.join(odd[:5])}")
        if len(self.train.classes) != options.classes:
            raise UserError(f"{root}/train holds {len(self.train.classes)} classes, the config says {options.classes}")
        if options.train_size is not None:
            raise UserError("dataset.train_size is for sets held in memory; folders take every image")

    @cached_property
    def plan(self) -> BatchPlan:
        """Which samples make up which training batch; an evaluation never asks."""
        config = self.config
        return BatchPlan(
            len(self.train),
            config.batch_size,
            config.seed,
            self.place,
            config.runtime.micro_batch,
            config.dataset.repeats,
        )

    def batches(self, start: int, stop: int) -> Iterator[list[Batch]]:
        """This rank's micro-batches for the steps start..stop-1: float images [B, C, H, W], int64 labels [B]."""
        keys = (
            [
                (epoch, position + offset, index)
                for offset, index in zip(range(self.plan.batch)[part], indices.tolist(), strict=True)
            ]
            for epoch, position, parts in self.plan.micro_batches(start, stop)
            for part, indices in parts
        )
        loader = iter(self._loader(Seeded(self.train, self.config.seed), batch_sampler=keys))
        for _ in range(start, stop):
            yield [self._moved(next(loader)) for _ in range(self.plan.accumulation)]

    def evaluation_batches(self, size: int) -> Iterator[Batch]:
        """This rank's share of the validation set, in order, without padding or augmentation."""
        share = Subset(self.test, shard(len(self.test), self.place))
        for batch in self._loader(share, batch_size=size):
            yield self._moved(batch)

    def _loader(self, dataset: Dataset, **how: object) -> DataLoader:
        workers = self.config.runtime.workers
        return DataLoader(
            dataset,
            num_workers=threads(self.config) if workers is None else workers,
            pin_memory=self.place.device.type == "cuda",
            worker_init_fn=leave_to_parent,
            **how,
        )

    def _moved(self, batch: Batch) -> Batch:
        return tuple(part.to(self.place.device, non_blocking=True) for part in batch)
