"""Does a lower condition number go with a better accuracy? Rank correlations over the settings of the ViT.

Over settings, each the mean over its seeds, and over single runs, of the seeds that every setting has. The bootstrap
draws settings in both: runs of one setting are not independent of each other.
"""

from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from scripts.evidence.findings import Study
from scripts.evidence.measures import NAMES, at, mean_of
from scripts.evidence.plan import PLAN, VIT
from scripts.figures.picture import Picture
from scripts.plotting import COLOURS, figure
from scripts.tables.model import Table, cell

LOOKED_AT = (("kappa", 0), ("kappa", -1), ("kappa_jacobian", 0), ("kappa_jacobian", -1))
SATURATED = 0.1  # share of rows at the start, from which on a setting counts as saturated
RESAMPLES, SEED = 10_000, 0
FEWEST = 5  # settings that a correlation is taken over
DECIDED = "decided"


@dataclass(frozen=True)
class Point:
    """A setting: its mean accuracy, the measures, and whether its attention was saturated at the start."""

    name: str
    accuracy: float
    measures: dict[tuple[str, int], float | None]
    saturated: bool


def points(study: Study) -> list[Point]:
    """The settings that differ in weights, correction or attention, not in learning rate or length."""
    found = []
    for asked in PLAN:
        numbers = list(study.numbers(asked.name).values())
        if asked.model != VIT or asked.part not in ("primary", "factor") or asked.rate != 1 or not numbers:
            continue
        runs = study.runs[asked.name].values()
        measures = {key: mean_of(runs, *key) for key in LOOKED_AT}
        saturated = (mean_of(runs, "saturated", 0) or 0.0) > SATURATED
        found.append(Point(asked.name, sum(numbers) / len(numbers), measures, saturated))
    return found


def spearman(x: list[list[float]], y: list[list[float]]) -> tuple[float, float, float]:
    """Spearman's rank correlation of all pairs and the 95 % interval of a bootstrap over settings (percentiles).

    Args:
        x, y: (settings, runs of each).
    """
    drawn = numpy.random.default_rng(SEED).integers(0, len(x), (RESAMPLES, len(x)))
    flat = [numpy.asarray(values)[drawn].reshape(RESAMPLES, -1) for values in (x, y)]
    one, other = (stats.rankdata(values, axis=1) for values in flat)
    one, other = (ranks - ranks.mean(1, keepdims=True) for ranks in (one, other))
    scale = numpy.sqrt((one**2).sum(1) * (other**2).sum(1))
    resampled = ((one * other).sum(1)[scale > 0]) / scale[scale > 0]
    low, high = numpy.percentile(resampled, (2.5, 97.5))
    return float(stats.spearmanr(numpy.ravel(x), numpy.ravel(y)).statistic), float(low), float(high)


def of_settings(chosen: list[Point], measure: str, place: int) -> list[tuple[list[float], list[float]]]:
    """(measure, accuracy) of each setting: means over its seeds."""
    known = [(point.measures[measure, place], point.accuracy) for point in chosen]
    return [([value], [accuracy]) for value, accuracy in known if value is not None]


def of_runs(study: Study, chosen: list[Point], measure: str, place: int) -> list[tuple[list[float], list[float]]]:
    """(measures, accuracies) of each setting, a number a run, of the seeds that all of them have."""
    numbers = {}
    for point in chosen:
        runs, accuracies = study.runs[point.name], study.numbers(point.name)
        measured = {seed: getattr(at(runs[seed], place), measure) for seed in accuracies}
        if known := {seed: (value, accuracies[seed]) for seed, value in measured.items() if value is not None}:
            numbers[point.name] = known
    shared = sorted(set.intersection(*map(set, numbers.values()))) if numbers else []
    return [
        tuple(map(list, zip(*(known[seed] for seed in shared), strict=True))) for known in numbers.values() if shared
    ]


def table(study: Study) -> Table:
    """A line for each measure, over settings and over runs, of all and without the saturated ones."""
    every = points(study)
    chosen = {"all": every, "not saturated": [point for point in every if not point.saturated]}
    units = {"settings": of_settings, "runs": partial(of_runs, study)}
    rows = []
    for which, unit, (measure, place) in product(chosen, units, LOOKED_AT):
        pairs = units[unit](chosen[which], measure, place)
        x, y = [measured for measured, _ in pairs], [accuracies for _, accuracies in pairs]
        if len(pairs) < FEWEST or 1 in (numpy.unique(x).size, numpy.unique(y).size):
            continue  # too few, or one of them is the same everywhere: no correlation is defined
        rho, low, high = spearman(x, y)
        rows.append(
            (
                cell(f"{NAMES[measure]}, {'start' if place == 0 else 'end'}"),
                cell(which),
                cell(f"{numpy.size(x)} {unit}"),
                cell(f"{rho:+.2f}"),
                cell(f"{low:+.2f} to {high:+.2f}"),
                cell(DECIDED if low > 0 or high < 0 else "not told from none"),
            )
        )
    titles = ("measure", "which", "how many", "Spearman's ρ with top-1", "95 % interval (bootstrap)", "verdict")
    caption = (
        "κ against accuracy, over the ViT's settings (means over seeds) and over their single runs (the seeds that all "
        "have); below zero: a lower κ goes with a better accuracy."
    )
    return Table("correlation", titles, tuple(rows), caption=caption)


def pictures(study: Study) -> list[Picture]:
    """Accuracy against each measure, a dot a setting; none where there are too few."""
    found = points(study)
    if len(found) < FEWEST:
        return []
    runs = tuple(run for point in found for run in study.runs[point.name].values())
    caption = "Means over seeds, a number a setting; grey: attention saturated at the start. Numbers as in the key."
    return [Picture(f"evidence_kappa_{study.scale}", "κ against accuracy", caption, runs, partial(draw, found))]


def draw(found: list[Point]) -> tuple[Figure, list[Axes]]:
    """A panel a measure; settings are numbered, and the key is the legend."""
    canvas, axes = figure(len(LOOKED_AT), columns=2)
    for axis, (measure, place) in zip(axes, LOOKED_AT, strict=True):
        for number, point in enumerate(found, 1):
            value = point.measures[measure, place]
            if value is None:
                continue
            colour = "grey" if point.saturated else COLOURS[2]
            axis.plot(value, point.accuracy, "o", color=colour, markersize=3, label=f"{number} {point.name}")
            axis.annotate(str(number), (value, point.accuracy), fontsize=7, xytext=(2, 2), textcoords="offset points")
        axis.set_xscale("log")
        axis.set(xlabel=f"{NAMES[measure]}, {'start' if place == 0 else 'end'}", ylabel="top-1, percent")
    return canvas, axes
