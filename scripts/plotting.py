"""One look for every picture: readable in print and for the colour-blind (Okabe and Ito's colours)."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

matplotlib.rcParams["svg.hashsalt"] = "specattn"  # ids in an SVG that do not change from run to run
COLOURS = ("#000000", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def figure(panels: int, columns: int = 2) -> tuple[Figure, list[Axes]]:
    """A figure of equal panels."""
    rows = -(-panels // columns)
    canvas, axes = pyplot.subplots(
        rows, columns, figsize=(4.6 * columns, 3.1 * rows), squeeze=False, layout="constrained"
    )
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25, linewidth=0.6)
    for axis in list(axes.flat)[panels:]:
        axis.set_visible(False)
    return canvas, list(axes.flat)[:panels]


def finish(canvas: Figure, labelled: Axes, *paths: Path) -> None:
    """Put one legend beneath all panels and write the picture, the same bytes each time."""
    handles, labels = labelled.get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    for path in paths:
        canvas.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else {"Software": None})
    pyplot.close(canvas)
