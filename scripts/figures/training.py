"""Training curves: loss and metric over steps, for each row of a table and each conditioning that it is run with."""

import math
import statistics
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scripts.figures.picture import Picture
from scripts.plotting import figure, style
from scripts.records import Recorded, experiments
from scripts.tables.names import row_name
from scripts.tables.rows import Settings
from scripts.tables.settings import EXPECTED, Source, label, settings

Series = list[tuple[int, float]]


def pictures(source: Source) -> list[Picture]:
    """One picture for each table and scale that has records: imagenet, lra, coco, glue, and conditioning's curves."""
    groups: dict[str, dict[str, Settings]] = {}
    for experiment in experiments(source.records):
        found = settings(source, experiment)
        if any(found[tag].runs for tag in EXPECTED if tag in found):
            scale, name = experiment.split("/")
            groups.setdefault(f"{name.split('_')[0]}_{scale}", {})[row_name(source, experiment)] = found
    return [
        Picture(
            f"training_{group}",
            f"Training, {group.replace('_', ', ')} scale",
            "Mean over seeds; the band is from the least to the greatest. Left the loss on batches, right the metric.",
            tuple(run for found in rows.values() for tag in shown(found) for run in found[tag].runs.values()),
            partial(draw, rows),
        )
        for group, rows in groups.items()
    ]


def shown(found: Settings) -> list[str]:
    """The settings that are drawn, each in its own colour, line and marker throughout."""
    return [tag for tag in EXPECTED if tag in found and found[tag].runs]


def losses(run: Recorded) -> Series:
    """The mean loss on the batches since the line before."""
    return [(event["step"], number(event["loss"])) for event in run.events("train")]


def metrics(run: Recorded) -> Series:
    """The metric at each evaluation: dev accuracy where a test set is kept for the end."""
    return [(event["step"], number(event[key])) for event in run.events("evaluate") if (key := measured(run)) in event]


def measured(run: Recorded) -> str:
    """What is evaluated along training."""
    return run.summary["primary"].replace("test_", "dev_")


def number(value: float | None) -> float:
    """Records write null for a number that is not finite."""
    return math.nan if value is None else value


def draw(rows: dict[str, Settings]) -> tuple[Figure, list[Axes]]:
    """Two panels a row."""
    canvas, axes = figure(2 * len(rows))
    for place, (name, found) in enumerate(rows.items()):
        left, right = axes[2 * place : 2 * place + 2]
        for tag in shown(found):
            runs = list(found[tag].runs.values())
            band(left, [losses(run) for run in runs], tag)
            band(right, [metrics(run) for run in runs], tag)
            right.set(title=f"{name}: {measured(runs[0])}", xlabel="step")
        right.set_xlim(left.get_xlim())  # one evaluation alone is a point at its step, not in the middle
        left.set(title=f"{name}: training loss", xlabel="step")
    return canvas, axes


def band(axis: Axes, series: list[Series], tag: str) -> None:
    """The mean over seeds at the steps that all have, and the range between the least and the greatest."""
    at = [dict(one) for one in series]
    steps = sorted(set.intersection(*(set(one) for one in at)))
    columns = [[one[step] for one in at] for step in steps]
    kept = [(step, column) for step, column in zip(steps, columns, strict=True) if all(map(math.isfinite, column))]
    place = EXPECTED.index(tag)
    look = style(place, len(kept))
    axis.plot(
        [step for step, _ in kept], [statistics.fmean(column) for _, column in kept], label=label(tag), zorder=3, **look
    )
    if len(at) > 1:
        axis.fill_between(
            [step for step, _ in kept],
            [min(column) for _, column in kept],
            [max(column) for _, column in kept],
            color=look["color"],
            alpha=0.15,
            linewidth=0,
        )
