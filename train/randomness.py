"""Where randomness comes from: pure functions of (seed, what for, where), never of a process's history.

Data depends on (seed, epoch, position); the model on (seed, step, rank). A run that is stopped and resumed,
or that uses another number of loader workers, therefore sees the same numbers.
"""

import random

import numpy
import torch

ORDER, AUGMENT, MODEL, BUILD, SUBSET = range(5)  # what a stream is for


def mixed(*numbers: int) -> int:
    """A 63-bit seed that depends on every one of the (non-negative) numbers."""
    high, low = numpy.random.SeedSequence(numbers).generate_state(2, numpy.uint32)
    return (int(high) << 31) ^ int(low)


def generator(*numbers: int) -> torch.Generator:
    """A CPU generator seeded by the numbers."""
    return torch.Generator().manual_seed(mixed(*numbers))


def seed_everything(*numbers: int) -> None:
    """Seed Python's, NumPy's and torch's global generators, for code that draws from those."""
    seed = mixed(*numbers)
    random.seed(seed)
    numpy.random.seed(seed % 2**32)  # noqa: NPY002 - timm's mixup and transforms draw from this generator
    # torch.manual_seed takes 100 µs where no GPU is in use (it queues the seeding with a formatted stack).
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed(seed)


def permutation(size: int, *numbers: int) -> torch.Tensor:
    """A permutation of `size` indices, int64."""
    return torch.randperm(size, generator=generator(*numbers))
