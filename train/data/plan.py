"""Which samples make up which batch: a pure function of (seed, step), the same for any number of devices."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from train.distributed import Place
from train.errors import UserError
from train.randomness import ORDER, permutation


@dataclass(frozen=True)
class BatchPlan:
    """How a global batch is divided: rank r of w takes the r-th w-th of it, in `accumulation` micro-batches.

    Position p of an epoch's stream is `stream(epoch)[p]`; a global batch is `batch` consecutive positions.
    What does not fill a last batch is left out of that epoch (another part in each, since the order changes).
    """

    size: int  # training samples
    batch: int  # global batch
    seed: int
    place: Place
    micro: int | None = None  # largest micro-batch on a device
    repeats: int = 1  # repeated augmentation: consecutive copies of each sample

    def __post_init__(self) -> None:
        if self.batch % self.place.world:
            raise UserError(f"batch_size={self.batch} is not divisible by the {self.place.world} devices")
        if self.batch > self.size:
            raise UserError(f"batch_size={self.batch} is larger than the {self.size} training samples")

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in one epoch."""
        return self.size // self.batch

    @property
    def per_device(self) -> int:
        """Samples of one global batch on each device."""
        return self.batch // self.place.world

    @property
    def accumulation(self) -> int:
        """Micro-batches per device and step: the fewest equal ones that are small enough."""
        limit = self.micro or self.per_device
        return next(
            n for n in range(1, self.per_device + 1) if self.per_device % n == 0 and self.per_device // n <= limit
        )

    def stream(self, epoch: int) -> torch.Tensor:
        """The order of an epoch's samples, int64, of length `size`.

        With repeats the permuted samples come `repeats` times in a row and the stream is cut to `size`, so
        that an epoch stays as long and holds a third of the distinct images (repeated augmentation as in
        DeiT's RASampler).
        """
        order = permutation(self.size, self.seed, ORDER, epoch)
        return order.repeat_interleave(self.repeats)[: self.size] if self.repeats > 1 else order

    def micro_batches(self, start: int, stop: int) -> Iterator[tuple[int, int, list[tuple[slice, torch.Tensor]]]]:
        """For each step its epoch, its first position, and this rank's micro-batches.

        Yields:
            epoch, position of the global batch in the epoch, and for each micro-batch its slice within the
            global batch and its sample indices.
        """
        epoch, stream = -1, None
        micro = self.per_device // self.accumulation
        for step in range(start, stop):
            if step // self.steps_per_epoch != epoch:
                epoch = step // self.steps_per_epoch
                stream = self.stream(epoch)
            position = step % self.steps_per_epoch * self.batch
            indices = stream[position : position + self.batch]
            first = self.place.rank * self.per_device
            slices = [slice(first + i * micro, first + (i + 1) * micro) for i in range(self.accumulation)]
            yield epoch, position, [(part, indices[part]) for part in slices]


def shard(size: int, place: Place) -> range:
    """This rank's share of an evaluation set: every sample on exactly one rank, none twice, no padding."""
    return range(place.rank, size, place.world)
