"""Batches of photos of like aspect, as a pure function of (seed, step)."""

from dataclasses import dataclass, field

import torch

from train.data.plan import BatchPlan
from train.randomness import ORDER, permutation


@dataclass(frozen=True)
class AspectPlan(BatchPlan):
    """mmdet's AspectRatioBatchSampler on one stream of photos for all devices.

    An epoch's order is walked through once; wide and tall photos wait apart until `group` of them are together, which
    then follow in the stream. A global batch is consecutive groups, divided as `BatchPlan` divides it. What does not
    fill a group or a batch is left out of that epoch (mmdet trains on it, in groups of mixed aspect or short ones).
    """

    tall: torch.Tensor = field(default=None, repr=False, compare=False)  # bool [size]
    group: int = 2

    @property
    def epoch_size(self) -> int:
        """Positions in an epoch's stream: all whole groups, the same number in each epoch."""
        tall = int(self.tall.sum())
        return sum(kind // self.group * self.group for kind in (tall, self.size - tall))

    def stream(self, epoch: int) -> torch.Tensor:
        """The order of an epoch's photos, int64 [epoch_size], groups one after the other as they become whole."""
        order = permutation(self.size, self.seed, ORDER, epoch)
        groups, complete = [], []
        for tall in (False, True):
            places = (self.tall[order] == tall).nonzero()[:, 0]
            places = places[: len(places) // self.group * self.group].view(-1, self.group)
            groups.append(order[places])
            complete.append(places[:, -1])
        return torch.cat(groups)[torch.cat(complete).argsort()].flatten()
