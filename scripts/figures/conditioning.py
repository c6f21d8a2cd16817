"""Conditioning along training as the paper draws it.

For each experiment that was probed along the way: σ_min and κ of W_Q, W_K, W_V (of W + C, what the model computes
with), κ of the attention Jacobian, Theorem 3.4's bound, and the metric, the original beside the conditioned models.
Each seed is a line.
"""

import math
import statistics
from collections.abc import Callable, Iterable
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scripts.figures.picture import Picture
from scripts.plotting import COLOURS, figure, style
from scripts.records import Recorded, experiments
from scripts.tables.rows import Settings
from scripts.tables.settings import Source, label, settings

Series = list[tuple[int, float]]
ALONG = 3  # probes from which on a curve is one


def pictures(source: Source) -> list[Picture]:
    """One picture for each experiment with a baseline whose spectra were probed along training."""
    found = []
    for experiment in experiments(source.records):
        rows = {tag: held for tag, held in settings(source, experiment).items() if probed(held.runs.values())}
        if "baseline" in rows:
            found.append(
                Picture(
                    f"conditioning_{experiment.replace('/', '_')}",
                    f"{experiment}: conditioning along training",
                    "Of W + C, what the model computes with: medians over layers. The original beside the conditioned.",
                    tuple(run for held in rows.values() for run in held.runs.values()),
                    partial(draw, rows),
                )
            )
    return found


def probed(runs: Iterable[Recorded]) -> bool:
    """Whether a setting's weights were looked at along training, not at its ends alone."""
    return any(len(run.events("spectra")) >= ALONG for run in runs)


def weights(run: Recorded, figure_name: str, which: str) -> Series:
    """Median over layers of σ_min or κ of W + C, for one projection, at each probed step."""
    return [
        (event["step"], statistics.median(number(w[f"{figure_name}_conditioned"]) for w in chosen))
        for event in run.events("spectra")
        if (chosen := [w for w in event["weights"] if w["projection"] == which])
    ]


def jacobian(run: Recorded, name: str) -> Series:
    """Median over the probed layers of one figure of the Jacobian events."""
    return [
        (event["step"], statistics.median(number(layer[name]) for layer in event["layers"]))
        for event in run.events("jacobian")
        if event["layers"] and name in event["layers"][0]
    ]


def metric(run: Recorded) -> Series:
    """The primary metric at each evaluation."""
    return [(event["step"], event[run.summary["primary"]]) for event in run.events("evaluate")]


def number(value: float | None) -> float:
    """Records write null for an infinite number."""
    return math.inf if value is None else value


def panels() -> list[tuple[str, bool, Callable[[Recorded], Series]]]:
    """Title, logarithmic or not, and what a run gives for it."""
    drawn: list[tuple[str, bool, Callable[[Recorded], Series]]] = []
    for symbol, name in (("σ_min", "sigma_min"), ("κ", "kappa")):
        drawn += [
            (f"{symbol}(W_{w.upper()} + C)", True, lambda run, name=name, w=w: weights(run, name, w)) for w in "qkv"
        ]
    return [
        *drawn,
        ("κ of the Jacobian (non-zero values)", True, lambda run: jacobian(run, "kappa_nonzero")),
        ("Theorem 3.4's bound on κ", True, lambda run: jacobian(run, "bound")),
        ("primary metric", False, metric),
    ]


def draw(rows: Settings) -> tuple[Figure, list[Axes]]:
    """Nine panels."""
    canvas, axes = figure(len(panels()), columns=3)
    tags = list(rows)[: len(COLOURS)]
    for axis, (title, logarithmic, series) in zip(axes, panels(), strict=True):
        finite = False
        for place, tag in enumerate(tags):
            for index, run in enumerate(rows[tag].runs.values()):
                points = [(step, value) for step, value in series(run) if math.isfinite(value)]
                finite |= bool(points)
                steps, values = zip(*points, strict=True) if points else ((), ())
                name = f"{label(tag)} (n = {len(rows[tag].runs)})" if index == 0 else None
                axis.plot(steps, values, label=name, **style(place, len(points)))
        axis.set(title=title, xlabel="step")
        if logarithmic and finite:
            axis.set_yscale("log")
        if not finite:
            axis.text(0.5, 0.5, "no finite value recorded", ha="center", transform=axis.transAxes, color="grey")
    return canvas, axes[:1]
