"""Photos for the loop: transformed by loader workers, the same batches for any number of them.

Every photo's randomness is seeded by (seed, epoch, position): which worker transforms it changes nothing.
"""

import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import cv2
from mmdet.registry import MODELS
from omegaconf import DictConfig, OmegaConf
from torch.utils.data import DataLoader, Dataset

from train.data.broken import Broken, Problem, reason
from train.data.plan import shard
from train.distributed import Place
from train.errors import UserError
from train.launch import threads
from train.randomness import AUGMENT, seed_everything
from train.signals import leave_to_parent
from train.tasks.detection import pipeline
from train.tasks.detection.photos import Photos
from train.tasks.detection.plan import AspectPlan

Batch = dict[
    str, object
]  # inputs: float [B, 3, height, width], normalised and padded; data_samples: mmdet's, B of them
UNREADABLE = (OSError, AssertionError, ValueError, cv2.error)  # what mmdet raises for a file that is no photo
MANIFEST = "manifest.json"


class Augmented(Dataset):
    """Training photos asked for by (epoch, position, index), each drawn from that seed alone.

    A photo that cannot be read is replaced by the next one that can; the problem goes along with it.
    """

    def __init__(self, photos: Photos, seed: int) -> None:
        self.photos, self.seed = photos, seed

    def __getitem__(self, key: tuple[int, int, int]) -> tuple[dict, list[Problem]]:
        epoch, position, index = key
        problems = []
        for _ in range(len(self.photos)):
            seed_everything(self.seed, AUGMENT, epoch, position)
            try:
                return self.photos.prepare_data(index), problems
            except UNREADABLE as error:
                problems.append((self.photos.name(index), reason(error)))
                index = (index + 1) % len(self.photos)
        raise UserError(f"none of the training photos can be read; {problems[0][0]}: {problems[0][1]}")


class Plain(Dataset):
    """Validation photos, each as it is; one that cannot be read is an error."""

    def __init__(self, photos: Photos) -> None:
        self.photos = photos

    def __getitem__(self, index: int) -> tuple[dict | None, list[Problem]]:
        try:
            return self.photos.prepare_data(index), []
        except UNREADABLE as error:
            return None, [(self.photos.name(index), reason(error))]


def collated(samples: list[tuple[dict | None, list[Problem]]]) -> tuple[dict, list[Problem]]:
    """Photos of different sizes stay a list, and mmdet's samples beside them."""
    problems = [problem for _, found in samples for problem in found]
    whole = [sample for sample, _ in samples if sample is not None]
    return {key: [sample[key] for sample in whole] for key in ("inputs", "data_samples")}, problems


def alone_in_worker(worker: int) -> None:
    """A loader worker is one thread, and dies with the trainer."""
    cv2.setNumThreads(0)
    leave_to_parent(worker)


class CocoPhotos:
    """Both splits of a set in COCO's format."""

    def __init__(self, config: DictConfig, place: Place) -> None:
        options = config.dataset
        self.config, self.place = config, place
        self.root = Path(config.data_root).expanduser() / options.name
        if options.shapes is not None:
            check_manifest(self.root, OmegaConf.to_container(options.shapes))
        cv2.setNumThreads(0)
        trains = config.mode == "train"
        self.train = Photos(self.root, "train", options, pipeline.training(options)) if trains else None
        self.test = Photos(self.root, "val", options, pipeline.evaluation(options))
        if trains and self.train.categories != self.test.categories:
            raise UserError(f"{self.root}: the training and validation annotations list different categories")
        self.preprocess = MODELS.build(
            {
                "type": "DetDataPreprocessor",
                "mean": list(options.mean),
                "std": list(options.std),
                "bgr_to_rgb": True,
                "pad_mask": True,
                "pad_size_divisor": options.pad,
            }
        ).to(place.device)
        self.broken = Broken(len(self.train) if trains else 0)
        self._evaluation: dict[int, DataLoader] = {}

    @cached_property
    def plan(self) -> AspectPlan:
        """Which photos make up which training batch; an evaluation never asks."""
        config = self.config
        return AspectPlan(
            len(self.train),
            config.batch_size,
            config.seed,
            self.place,
            config.runtime.micro_batch,
            tall=self.train.tall(),
            group=config.task.group,
        )

    def batches(self, start: int, stop: int) -> Iterator[list[Batch]]:
        """This rank's micro-batches for the steps start..stop-1.

        Raises:
            UserError: more than 0.1 % of the training photos could not be read (counted by each rank for itself).
        """
        augmented = Augmented(self.train, self.config.seed)
        loader = iter(self._loader(augmented, batch_sampler=self.plan.keys(start, stop)))
        for _ in range(start, stop):
            batches = []
            for _ in range(self.plan.accumulation):
                batch, problems = next(loader)
                self.broken.note(problems)
                batches.append(self.preprocess(batch, True))
            yield batches

    def evaluation_batches(self, size: int) -> Iterator[Batch]:
        """This rank's share of the validation photos, in order, each once.

        Whole batches are dealt out, so that what is padded together does not depend on the number of ranks.

        Raises:
            UserError: a photo cannot be read.
        """
        if size not in self._evaluation:
            photos = list(range(len(self.test)))
            batches = [photos[first : first + size] for first in range(0, len(photos), size)]
            share = [batches[place] for place in shard(len(batches), self.place)]
            self._evaluation[size] = self._loader(Plain(self.test), batch_sampler=share)
        for batch, problems in self._evaluation[size]:
            if problems:
                raise UserError(f"{problems[0][0]} cannot be read: {problems[0][1]}; an evaluation takes every photo")
            yield self.preprocess(batch, False)

    def _loader(self, dataset: Dataset, **how: object) -> DataLoader:
        runtime = self.config.runtime
        workers = threads(self.config) if runtime.workers is None else runtime.workers
        return DataLoader(
            dataset,
            num_workers=workers,
            collate_fn=collated,
            persistent_workers=runtime.persistent_workers and workers > 0,
            prefetch_factor=runtime.prefetch if workers else None,
            worker_init_fn=alone_in_worker,
            **how,
        )


def check_manifest(root: Path, wanted: dict) -> None:
    """Refuse a drawn set that was drawn otherwise than the config says.

    Raises:
        UserError: naming what differs.
    """
    command = f"python -m scripts.make_shapes --into '{root}'"
    try:
        held = json.loads((root / MANIFEST).read_text())
        drawn = held["shapes"] if held["complete"] else None
    except (OSError, ValueError, KeyError, TypeError):
        drawn = None
    if drawn is None:
        raise UserError(f"{root / MANIFEST} is missing, damaged or not complete: {command} draws the set") from None
    if changed := [key for key in wanted if drawn.get(key) != wanted[key]]:
        shown = "; ".join(f"{key}: {drawn.get(key)} there, {wanted[key]} asked" for key in changed)
        raise UserError(f"{root} was drawn with other settings ({shown}): name another folder, or draw it again")
