"""Means over seeds and paired differences."""

import math
from dataclasses import dataclass

from scipy import stats


@dataclass(frozen=True)
class Paired:
    """The mean difference over the seeds that two settings share, with its 95 % interval and p-value (paired t)."""

    mean: float
    low: float
    high: float
    seeds: int
    p: float  # two-sided; nan for one seed

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
    if count == 1:
        return Paired(mean, -math.inf, math.inf, 1, math.nan)
    error = std / math.sqrt(count)
    reach = stats.t.ppf(0.975, count - 1) * error
    p = 2 * stats.t.sf(abs(mean) / error, count - 1) if error else float(mean == 0)
    return Paired(mean, mean - reach, mean + reach, count, float(p))


def holm(p_values: list[float]) -> list[float]:
    """Holm's step-down adjustment of p-values that are looked at together, in their order."""
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


def shown(values: list[float], digits: int = 2) -> str:
    """`mean ± std`, or the value alone where there is one."""
    mean, std = mean_std(values)
    return f"{mean:.{digits}f}" if math.isnan(std) else f"{mean:.{digits}f} ± {std:.{digits}f}"
