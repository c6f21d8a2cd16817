"""Long Range Arena: sequences of small integers, or pairs of them, and their classes."""

from collections.abc import Iterator
from pathlib import Path

import torch
from omegaconf import DictConfig
from torch import nn
from torch.nn import functional as F

from train.data import lra
from train.data.lra.tokens import TokenSet
from train.data.plan import BatchPlan, shard
from train.data.presence import root_of
from train.distributed import Place, summed

Batch = tuple[torch.Tensor, torch.Tensor]
EVALUATION_TOKENS = 2**17  # at a time, padding included


class LongRange:
    """One task of the Long Range Arena, at either scale.

    As in the original, the model of best dev accuracy is tested, and training is an endless stream that is reshuffled
    each epoch. Unlike there, dev and test set are evaluated whole (the original drops a last partial batch).
    """

    primary = "dev_accuracy"
    reported = "test_accuracy"

    def __init__(self, config: DictConfig, place: Place) -> None:
        self.config, self.place = config, place
        self.sets = lra.load(config.dataset, Path(root_of(config)).expanduser())
        self.plan = BatchPlan(
            len(self.sets["train"]), config.batch_size, config.seed, place, config.runtime.micro_batch
        )

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in an epoch."""
        return self.plan.steps_per_epoch

    def batches(self, start: int, stop: int) -> Iterator[list[Batch]]:
        """This rank's micro-batches for the steps start..stop-1: tokens [B, N] or [B, 2, N], labels [B], int64."""
        for _, _, parts in self.plan.micro_batches(start, stop):
            yield [self._batch(self.sets["train"], indices) for _, indices in parts]

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """Cross-entropy.

        Args:
            batch: tokens [B, N] or [B, 2, N] and labels [B].
        """
        tokens, labels = batch
        return F.cross_entropy(model(tokens), labels)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Accuracy in percent and mean loss on the dev set."""
        return {f"dev_{key}": value for key, value in self._measured(model, "dev").items()}

    def test(self, model: nn.Module) -> dict[str, float]:
        """Accuracy in percent and mean loss on the test set; and what always naming the commonest class reaches."""
        labels = self.sets["test"].labels
        majority = 100 * labels.bincount().max().item() / len(labels)
        numbers = self._measured(model, "test")
        return {f"test_{key}": value for key, value in numbers.items()} | {"test_majority": majority}

    def probe_batch(self, size: int) -> Batch:
        """A fixed batch for diagnostics: the first test sequences, with their labels."""
        return self._batch(self.sets["test"], torch.arange(min(size, len(self.sets["test"]))))

    @torch.no_grad()
    def _measured(self, model: nn.Module, split: str) -> dict[str, float]:
        data = self.sets[split]
        share = torch.tensor(list(shard(len(data), self.place)))
        correct = torch.zeros(2, dtype=torch.int64, device=self.place.device)
        loss = torch.zeros((), dtype=torch.float64, device=self.place.device)
        size = max(1, EVALUATION_TOKENS // (self.config.dataset.padded_length * (1 + self.config.dataset.pair)))
        for indices in share.split(size):
            tokens, labels = self._batch(data, indices)
            logits = model(tokens).float()
            correct += torch.stack([(logits.argmax(1) == labels).sum(), labels.new_tensor(len(labels))])
            loss += F.cross_entropy(logits, labels, reduction="sum").double()
        right, count = summed(correct, self.place).tolist()
        return {
            "accuracy": 100 * right / count,
            "loss": summed(loss, self.place).item() / count,
            "correct": right,
            "count": count,
        }

    def _batch(self, data: TokenSet, indices: torch.Tensor) -> Batch:
        device = self.place.device
        return data.batch(indices).to(device), data.labels[indices].to(device)
