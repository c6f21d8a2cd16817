"""Does a lower condition number go with a better accuracy? Rank correlations over the settings of the ViT."""

import math
from dataclasses import dataclass
from functools import partial

import numpy
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from scripts.evidence.findings import Study
from scripts.evidence.measures import NAMES, mean_of
from scripts.evidence.plan import PLAN, VIT
from scripts.figures.picture import Picture
from scripts.plotting import COLOURS, figure
from scripts.tables.model import Table, cell

LOOKED_AT = (("kappa", 0), ("kappa", -1), ("kappa_jacobian", 0), ("kappa_jacobian", -1))
SATURATED = 0.1  # share of rows at the start, from which on a setting counts as saturated
RESAMPLES, SEED = 10_000, 0
FEWEST = 5  # settings that a correlation is taken over


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


def spearman(x: list[float], y: list[float]) -> tuple[float, float, float]:
    """Spearman's rank correlation and the 95 % interval of a bootstrap over the pairs (percentiles)."""
    drawn = numpy.random.default_rng(SEED).integers(0, len(x), (RESAMPLES, len(x)))
    ranked = [stats.rankdata(numpy.asarray(values)[drawn], axis=1) for values in (x, y)]
    one, other = (ranks - ranks.mean(1, keepdims=True) for ranks in ranked)
    scale = numpy.sqrt((one**2).sum(1) * (other**2).sum(1))
    resampled = ((one * other).sum(1)[scale > 0]) / scale[scale > 0]
    low, high = numpy.percentile(resampled, (2.5, 97.5))
    return float(stats.spearmanr(x, y).statistic), float(low), float(high)


def table(study: Study) -> Table:
    """A line for each measure, over all settings and without the saturated ones."""
    rows = []
    for which, chosen in (("all", points(study)), ("not saturated", [p for p in points(study) if not p.saturated])):
        for measure, place in LOOKED_AT:
            known = [(p.measures[measure, place], p.accuracy) for p in chosen if p.measures[measure, place] is not None]
            measured, accuracies = [k for k, _ in known], [a for _, a in known]
            if len(known) < FEWEST or 1 in (len(set(measured)), len(set(accuracies))):
                continue  # too few, or one of them is the same everywhere: no correlation is defined
            rho, low, high = spearman(measured, accuracies)
            sure = "decided" if low > 0 or high < 0 else "not told from none"
            rows.append(
                (
                    cell(f"{NAMES[measure]}, {'start' if place == 0 else 'end'}"),
                    cell(which),
                    cell(str(len(known))),
                    cell(f"{rho:+.2f}"),
                    cell(f"{low:+.2f} to {high:+.2f}"),
                    cell(sure),
                )
            )
    titles = ("measure", "settings", "how many", "Spearman's ρ with top-1", "95 % interval (bootstrap)", "verdict")
    caption = "κ against accuracy over the ViT's settings; below zero: a lower κ goes with a better accuracy."
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
            if value is None or not math.isfinite(value):
                continue
            colour = "grey" if point.saturated else COLOURS[2]
            axis.plot(value, point.accuracy, "o", color=colour, markersize=3, label=f"{number} {point.name}")
            axis.annotate(str(number), (value, point.accuracy), fontsize=7, xytext=(2, 2), textcoords="offset points")
        axis.set_xscale("log")
        axis.set(xlabel=f"{NAMES[measure]}, {'start' if place == 0 else 'end'}", ylabel="top-1, percent")
    return canvas, axes
