"""Which samples make up which batch: a pure function of (seed, step), the same for any number of devices."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from train.distributed import Place
from train.errors import UserError
from train.randomness import ORDER, permutation


@dataclass(frozen=True)
class BatchPlan:
    """How a global batch is divided: rank r of w takes a w-th of it, in `accumulation` micro-batches.

    Position p of an epoch's stream is `stream(epoch)[p]`; a global batch is `batch` consecutive positions, the same
    for any number of devices. What does not fill a last batch is left out of that epoch (another part in each, since
    the order changes).

    Repeated augmentation follows DeiT's RASampler (timm's RepeatAugSampler, which tests compare with): each sample
    comes `repeats` times in a row, rank r takes positions r, r + w, r + 2w, ..., so that copies meet on different
    devices, and an epoch keeps floor(N / 256) · 256 positions. It differs in that the permutation depends on the
    seed as well as the epoch, and that one device does it too (DeiT turns it off there): the copies then share a
    batch.
    """

    size: int  # training samples
    batch: int  # global batch
    seed: int
    place: Place
    largest: int | None = None  # micro-batch on a device
    repeats: int = 1  # repeated augmentation: consecutive copies of each sample

    def __post_init__(self) -> None:
        if self.batch % self.place.world:
            raise UserError(f"batch_size={self.batch} is not divisible by the {self.place.world} devices")
        if self.batch > self.epoch_size:
            raise UserError(f"batch_size={self.batch} is larger than the {self.epoch_size} training samples")

    @property
    def epoch_size(self) -> int:
        """Positions in an epoch's stream: the samples; where they repeat, as many as whole blocks of 256."""
        return self.size // 256 * 256 if self.repeats > 1 and self.size >= 256 else self.size

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in one epoch."""
        return self.epoch_size // self.batch

    @property
    def per_device(self) -> int:
        """Samples of one global batch on each device."""
        return self.batch // self.place.world

    @property
    def accumulation(self) -> int:
        """Micro-batches per device and step: the fewest equal ones that are small enough."""
        limit = self.largest or self.per_device
        return next(
            n for n in range(1, self.per_device + 1) if self.per_device % n == 0 and self.per_device // n <= limit
        )

    @property
    def micro(self) -> int:
        """Samples of a micro-batch."""
        return self.per_device // self.accumulation

    def stream(self, epoch: int) -> torch.Tensor:
        """The order of an epoch's samples, int64 [epoch_size].

        With repeats an epoch stays as long and holds a `repeats`-th of the distinct samples.
        """
        order = permutation(self.size, self.seed, ORDER, epoch)
        if self.repeats == 1:
            return order
        return order[: -(-self.epoch_size // self.repeats)].repeat_interleave(self.repeats)[: self.epoch_size]

    def micro_batches(self, start: int, stop: int) -> Iterator[tuple[int, int, list[tuple[slice, torch.Tensor]]]]:
        """For each step its epoch, its first position, and this rank's micro-batches.

        Yields:
            epoch, position of the global batch in the epoch, and for each micro-batch its slice within the
            global batch and its sample indices.
        """
        epoch, stream = -1, None
        micro = self.micro
        for step in range(start, stop):
            if step // self.steps_per_epoch != epoch:
                epoch = step // self.steps_per_epoch
                stream = self.stream(epoch)
            position = step % self.steps_per_epoch * self.batch
            indices = stream[position : position + self.batch]
            if self.repeats > 1:
                first, stride = self.place.rank, self.place.world
            else:
                first, stride = self.place.rank * self.per_device, 1
            starts = [first + i * micro * stride for i in range(self.accumulation)]
            slices = [slice(start, start + micro * stride, stride) for start in starts]
            yield epoch, position, [(part, indices[part]) for part in slices]

    def keys(self, start: int, stop: int) -> Iterator[list[tuple[int, int, int]]]:
        """For each micro-batch of the steps start..stop-1 its samples as (epoch, position, index).

        A sample's randomness is seeded by the first two, so that no loader worker changes it.
        """
        for epoch, position, parts in self.micro_batches(start, stop):
            for part, indices in parts:
                places = range(self.batch)[part]
                yield [(epoch, position + place, index) for place, index in zip(places, indices.tolist(), strict=True)]


def shard(size: int, place: Place) -> range:
    """This rank's share of an evaluation set: every sample on exactly one rank, none twice, no padding."""
    return range(place.rank, size, place.world)
