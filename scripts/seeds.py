"""Means over seeds and paired differences."""

import math
from dataclasses import dataclass

from scipy import stats


@dataclass(frozen=True)
class Paired:
    """The mean difference over the seeds that two settings share, with its 95 % interval (paired t)."""

    mean: float
    low: float
    high: float
    seeds: int

    @property
    def decided(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.low > 0 or self.high < 0


def mean_std(values: list[float]) -> tuple[float, float]:
    """Mean and sample standard deviation (nan for a single value, as it is not known)."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, math.nan
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def paired(baseline: dict[int, float], other: dict[int, float]) -> Paired:
    """`other` minus `baseline` over the seeds that both have.

    Args:
        baseline: seed → value; likewise `other`.

    Raises:
        ValueError: they share no seed.
    """
    shared = sorted(baseline.keys() & other.keys())
    if not shared:
        raise ValueError("the two settings share no seed")
    mean, std = mean_std([other[seed] - baseline[seed] for seed in shared])
    count = len(shared)
    reach = stats.t.ppf(0.975, count - 1) * std / math.sqrt(count) if count > 1 else math.inf
    return Paired(mean, mean - reach, mean + reach, count)


def shown(values: list[float], digits: int = 2) -> str:
    """`mean ± std`, or the value alone where there is one."""
    mean, std = mean_std(values)
    return f"{mean:.{digits}f}" if math.isnan(std) else f"{mean:.{digits}f} ± {std:.{digits}f}"
