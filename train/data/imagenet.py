"""Photographs for the loop: decoded and augmented by loader workers, the same batches for any number of them.

Every sample's randomness is seeded by (seed, epoch, position): which worker decodes it changes nothing.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

import torch
from omegaconf import DictConfig
from PIL import Image
from torch.utils.data import DataLoader, Dataset, default_collate

from train.data.broken import Broken, Problem, reason
from train.data.photographs import UNREADABLE, Folder, Parquet, photographs
from train.data.plan import BatchPlan, shard
from train.data.small import Batch
from train.data.transforms import evaluation_transform, train_transform
from train.distributed import Place, barrier
from train.errors import UserError
from train.launch import threads
from train.randomness import AUGMENT, seed_everything
from train.signals import leave_to_parent


class Augmented(Dataset):
    """Training samples asked for by (epoch, position, index), each drawn from that seed alone.

    An image that cannot be read is replaced by the next one that can; the problem goes along with the sample.
    """

    def __init__(self, images: Folder | Parquet, transform: Callable[[Image.Image], torch.Tensor], seed: int) -> None:
        self.images, self.transform, self.seed = images, transform, seed

    def __getitem__(self, key: tuple[int, int, int]) -> tuple[torch.Tensor, int, list[Problem]]:
        epoch, position, index = key
        problems = []
        for _ in range(len(self.images)):
            try:
                image = self.images.read(index)
                break
            except UNREADABLE as error:
                problems.append((self.images.name(index), reason(error)))
                index = (index + 1) % len(self.images)
        else:
            raise UserError(f"none of the training images can be read; {problems[0][0]}: {problems[0][1]}")
        seed_everything(self.seed, AUGMENT, epoch, position)
        return self.transform(image), self.images.label(index), problems


class Plain(Dataset):
    """Validation samples, each as it is; one that cannot be read is an error."""

    def __init__(self, images: Folder | Parquet, transform: Callable[[Image.Image], torch.Tensor]) -> None:
        self.images, self.transform = images, transform

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int, list[Problem]]:
        try:
            image = self.images.read(index)
        except UNREADABLE as error:
            return torch.empty(0), -1, [(self.images.name(index), reason(error))]
        return self.transform(image), self.images.label(index), []


def collated(
    samples: list[tuple[torch.Tensor, int, list[Problem]]],
) -> tuple[torch.Tensor, torch.Tensor, list[Problem]]:
    """Images [B, C, H, W], labels int64 [B], and what could not be read."""
    problems = [problem for _, _, found in samples for problem in found]
    if any(label < 0 for _, label, _ in samples):
        return torch.empty(0), torch.empty(0), problems
    images, labels = default_collate([(image, label) for image, label, _ in samples])
    return images, labels, problems


class FolderImages:
    """A set of photographs, in any of the layouts."""

    def __init__(self, config: DictConfig, place: Place) -> None:
        options = config.dataset
        root = Path(config.data_root).expanduser() / options.name
        self.config, self.place = config, place
        prepares = options.layout != "folder"
        if prepares and not place.first:
            barrier(place)  # the first unpacks archives or writes a cache
        self.train = photographs(options, config.data_root, "train") if config.mode == "train" else None
        self.test = photographs(options, config.data_root, "val")
        if prepares and place.first:
            barrier(place)
        for images, split in ((self.train, "train"), (self.test, "val")):
            if images is not None and len(images.identifiers) != options.classes:
                found = len(images.identifiers)
                raise UserError(f"{root}, {split}: holds {found} classes, the config says {options.classes}")
        if self.train is not None and self.train.identifiers != self.test.identifiers:
            odd = sorted(set(self.train.identifiers) ^ set(self.test.identifiers))
            raise UserError(f"{root}: train and val hold different classes: {', '.join(odd[:5])}")
        if options.train_size is not None:
            raise UserError("dataset.train_size is for sets held in memory; folders take every image")
        self.broken = Broken(len(self.train) if self.train is not None else 0)
        self._evaluation: dict[int, DataLoader] = {}

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
        """This rank's micro-batches for the steps start..stop-1: float images [B, C, H, W], int64 labels [B].

        Raises:
            UserError: more than 0.1 % of the training images could not be read (counted by each rank for itself).
        """
        dataset = Augmented(self.train, train_transform(self.config.dataset), self.config.seed)
        loader = iter(self._loader(dataset, batch_sampler=self.plan.keys(start, stop)))
        for _ in range(start, stop):
            batch = []
            for _ in range(self.plan.accumulation):
                images, labels, problems = next(loader)
                self.broken.note(problems)
                batch.append(self._moved(images, labels))
            yield batch

    def evaluation_batches(self, size: int) -> Iterator[Batch]:
        """This rank's share of the validation set, in order, without padding or augmentation.

        Raises:
            UserError: an image cannot be read.
        """
        if size not in self._evaluation:
            self._evaluation[size] = self._loader(
                Plain(self.test, evaluation_transform(self.config.dataset)),
                batch_size=size,
                sampler=shard(len(self.test), self.place),
            )
        for images, labels, problems in self._evaluation[size]:
            if problems:
                raise UserError(f"{problems[0][0]} cannot be read: {problems[0][1]}; an evaluation takes every image")
            yield self._moved(images, labels)

    def class_names(self) -> list[str]:
        """The classes' identifiers, in the order of the labels."""
        return self.test.identifiers

    def image_name(self, index: int) -> str:
        """What a validation image is called."""
        return self.test.name(index)

    def _loader(self, dataset: Dataset, **how: object) -> DataLoader:
        runtime = self.config.runtime
        workers = threads(self.config) if runtime.workers is None else runtime.workers
        return DataLoader(
            dataset,
            num_workers=workers,
            collate_fn=collated,
            pin_memory=self.place.device.type == "cuda" if runtime.pin is None else runtime.pin,
            persistent_workers=runtime.persistent_workers and workers > 0,
            prefetch_factor=runtime.prefetch if workers else None,
            worker_init_fn=leave_to_parent,
            **how,
        )

    def _moved(self, images: torch.Tensor, labels: torch.Tensor) -> Batch:
        memory = torch.channels_last if self.config.runtime.channels_last else torch.preserve_format
        device = self.place.device
        return images.to(device, non_blocking=True, memory_format=memory), labels.to(device, non_blocking=True)
