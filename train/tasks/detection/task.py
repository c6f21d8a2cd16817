"""Detection and instance segmentation: mmdet's model and data, our loop, COCO's own evaluation."""

import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from train.distributed import Place, summed
from train.record_files import write
from train.tasks.detection import evaluation, photos
from train.tasks.detection.data import Batch, CocoPhotos


def by_name(losses: dict[str, Tensor | list[Tensor]]) -> dict[str, Tensor]:
    """Mask R-CNN's losses as scalars: those of each level are added up, what is no loss (accuracy) is left out."""
    listed = {name: value if isinstance(value, list) else [value] for name, value in losses.items() if "loss" in name}
    return {name: sum(part.mean() for part in parts) for name, parts in listed.items()}


class Detection:
    """The COCO row, at either scale."""

    primary = "ap_box"

    def __init__(self, config: DictConfig, place: Place) -> None:
        self.config, self.place = config, place
        self.data = CocoPhotos(config, place)

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in an epoch."""
        return self.data.plan.steps_per_epoch

    def batches(self, start: int, stop: int) -> Iterator[list[Batch]]:
        """For each step this rank's micro-batches of photos and objects."""
        return self.data.batches(start, stop)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The sum of Mask R-CNN's five losses: objectness and boxes of regions, classes, boxes and masks of objects.

        Which anchors and regions are looked at is drawn from the global generators, which the loop has seeded.
        """
        return sum(by_name(model(**batch, mode="loss")).values())

    @torch.no_grad()
    def evaluate(self, model: nn.Module, details: list[evaluation.Detections] | None = None) -> dict[str, float]:
        """COCO's AP of boxes and masks in percent over the whole validation set, on every rank.

        Photos are let go of as soon as their masks are encoded: what grows is the list of detections.

        Args:
            details: where given, rank 0 appends all detections.
        """
        detections: evaluation.Detections = {kind: [] for kind in evaluation.KINDS.values()}
        seen = 0
        for batch in self.data.evaluation_batches(self.config.task.evaluation_batch):
            for sample in model(**batch, mode="predict"):
                seen += 1
                for kind, entries in evaluation.entries(sample, self.data.test.cat_ids).items():
                    detections[kind] += entries
        seen = int(summed(torch.tensor(seen), self.place))
        whole = evaluation.gathered(detections, self.data.test.image_ids(), self.place)
        numbers = None
        if self.place.first:
            numbers = evaluation.metrics(self.truth, whole)
            numbers |= {"photos": seen, "detections": len(whole["bbox"])}
            if details is not None:
                details.append(whole)
        return evaluation.shared(numbers, self.place)

    @cached_property
    def truth(self) -> photos.COCO:
        """The validation set's annotations, as pycocotools reads them; rank 0 alone asks."""
        return photos.read(photos.annotations(self.data.root, "val"))

    def per_class(self, details: list[evaluation.Detections]) -> dict[str, dict[str, float | None]]:
        """Each category's AP; empty on ranks other than 0."""
        return evaluation.per_category(self.truth, details[0]) if details else {}

    def write_predictions(self, path: Path, details: list[evaluation.Detections]) -> None:
        """Two files in COCO's result format: <path>.bbox.json and <path>.segm.json (a .json at its end is left out).

        Raises:
            WriteError: they cannot be written.
        """
        stem = path.with_suffix("") if path.suffix == ".json" else path
        for kind, entries in details[0].items():
            target = stem.with_name(f"{stem.name}.{kind}.json")
            write(target, json.dumps(entries))

    def notices(self) -> list[dict[str, str]]:
        """What happened since the last call that the record should keep: photos that could not be read."""
        return self.data.broken.notices()

    def probe_batch(self, size: int) -> tuple[Tensor, list]:
        """A fixed batch for diagnostics: the first training photos of the plan, as its first step would see them."""
        batch = next(self.data.batches(0, 1))[0]
        return batch["inputs"][:size], batch["data_samples"][:size]

    def probe_loss(self, model: nn.Module, batch: tuple[Tensor, list]) -> Tensor:
        """The loss of a batch of `probe_batch`."""
        return self.loss(model, {"inputs": batch[0], "data_samples": batch[1]})
