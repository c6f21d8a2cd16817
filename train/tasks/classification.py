"""Image classification: timm models, mixup and label smoothing, top-1 and top-5."""

from collections.abc import Iterator

import torch
from omegaconf import DictConfig
from timm.data import Mixup
from torch import nn
from torch.nn import functional as F

from train.data.imagenet import FolderImages
from train.data.small import Batch, SmallImages
from train.distributed import Place, summed
from train.errors import UserError

EVALUATION_BATCH = 256


class Classification:
    """One row of the ImageNet table, at either scale."""

    primary = "top1"

    def __init__(self, config: DictConfig, place: Place) -> None:
        self.config, self.place, self.options = config, place, config.task
        in_memory = config.dataset.name in ("digits", "cifar10")
        self.data = (SmallImages if in_memory else FolderImages)(config, place)
        self.mixup = None
        if self.options.mixup or self.options.cutmix:
            if config.mode == "train" and self.data.plan.micro % 2:
                raise UserError(
                    f"mixup and cutmix pair images: {self.data.plan.micro} at a time on a device (batch_size, "
                    "runtime.devices, runtime.micro_batch) must be even"
                )
            self.mixup = Mixup(
                self.options.mixup,
                self.options.cutmix,
                prob=self.options.mix_probability,
                switch_prob=self.options.cutmix_probability,
                label_smoothing=self.options.label_smoothing,
                num_classes=config.dataset.classes,
            )

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in an epoch."""
        return self.data.plan.steps_per_epoch

    def batches(self, start: int, stop: int) -> Iterator[list[Batch]]:
        """For each step this rank's micro-batches of images and labels."""
        return self.data.batches(start, stop)

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """Cross-entropy with smoothing; on mixed batches against the mixed, smoothed targets.

        Mixing draws from the global generators, which the loop has seeded for this micro-batch.

        Args:
            batch: images [B, C, H, W] and labels [B].
        """
        images, labels = batch
        if self.mixup is None:
            return F.cross_entropy(model(images), labels, label_smoothing=self.options.label_smoothing)
        images, targets = self.mixup(images, labels)
        return F.cross_entropy(model(images), targets)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, details: list[torch.Tensor] | None = None) -> dict[str, float]:
        """Top-1 and top-5 in percent and the mean loss, over the whole test set.

        Args:
            details: where given, this rank's rows [B, 3] are appended: label, prediction, its probability.
        """
        totals = torch.zeros(3, dtype=torch.int64, device=self.place.device)
        loss = torch.zeros((), dtype=torch.float64, device=self.place.device)
        for images, labels in self.data.evaluation_batches(EVALUATION_BATCH):
            logits = model(images).float()
            if details is not None:
                probability, predicted = logits.double().softmax(1).max(1)
                details.append(torch.stack([labels.double(), predicted.double(), probability], 1))
            best = logits.topk(min(5, logits.shape[1])).indices == labels[:, None]
            totals += torch.stack([best[:, 0].sum(), best.any(1).sum(), labels.new_tensor(len(labels))])
            loss += F.cross_entropy(logits, labels, reduction="none").double().sum()
        top1, top5, count = summed(totals, self.place).tolist()
        return {
            "top1": 100 * top1 / count,
            "top5": 100 * top5 / count,
            "loss": summed(loss, self.place).item() / count,
            "correct": top1,
            "count": count,
        }

    def probe_batch(self, size: int) -> Batch:
        """A fixed batch for diagnostics: the first test images of this rank's share, with their labels."""
        return next(iter(self.data.evaluation_batches(size)))

    def notices(self) -> list[dict[str, str]]:
        """What happened since the last call that the record should keep: images that could not be read."""
        return self.data.broken.notices() if isinstance(self.data, FolderImages) else []

    def class_names(self) -> list[str]:
        """The classes' identifiers, in the order of the labels."""
        return self.data.class_names()

    def image_name(self, index: int) -> str:
        """What an image of the test set is called."""
        return self.data.image_name(index)
