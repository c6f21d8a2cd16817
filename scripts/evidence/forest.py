"""Every setting's paired difference with its interval, one beneath another."""

from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scripts.evidence.findings import Compared, Study
from scripts.evidence.plan import PLAN
from scripts.figures.picture import Picture
from scripts.plotting import COLOURS, figure

NEAR = 5.0  # points: the second panel shows what is nearer to zero than this
HEIGHT = 0.24  # inches a setting


def pictures(study: Study) -> list[Picture]:
    """The picture of a scale; none without a comparison."""
    every = [study.compared(asked.name, asked.against) for asked in PLAN if asked.against]
    found = [one for one in every if one is not None and one.told.seeds > 1]
    if not found:
        return []
    names = dict.fromkeys(name for one in found for name in (one.name, one.against))
    runs = tuple(run for name in names for run in study.runs[name].values())
    caption = (
        "Paired difference of top-1 to each setting's reference (the baseline where none is said) with its 95 % "
        f"interval; filled: zero lies outside. Right: the same within {NEAR:g} points of zero."
    )
    title = "What each setting changes"
    return [Picture(f"evidence_differences_{study.scale}", title, caption, runs, partial(draw, found))]


def draw(found: list[Compared]) -> tuple[Figure, list[Axes]]:
    """Two panels of the same lines: whole, and around zero."""
    canvas, axes = figure(2, columns=2)
    canvas.set_size_inches(10.5, 1.4 + HEIGHT * len(found))
    names = [one.name if one.against == "baseline" else f"{one.name}  (to {one.against})" for one in found]
    for axis in axes:
        for place, one in enumerate(found):
            told, colour = one.told, COLOURS[2] if one.told.mean > 0 else COLOURS[1]
            reach = [[told.mean - told.low], [told.high - told.mean]]
            face = colour if told.decided else "white"
            axis.errorbar(told.mean, place, xerr=reach, fmt="o", color=colour, markerfacecolor=face, markersize=4,
                          linewidth=1.2, capsize=2)  # fmt: skip
        axis.axvline(0, color="black", linewidth=0.8)
        axis.set(xlabel="points of top-1", ylim=(len(found) - 0.5, -0.5))
        axis.set_yticks(range(len(found)), names if axis is axes[0] else [""] * len(found), fontsize=7)
    axes[1].set_xlim(-NEAR, NEAR)
    return canvas, axes
