"""One look for every picture: readable in print and for the colour-blind (Okabe and Ito's colours).

What differs in colour differs in its line and its marker as well, so that a grey print tells them apart.
"""

import io
from pathlib import Path
from xml.etree import ElementTree

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

matplotlib.rcParams["svg.hashsalt"] = "specattn"  # ids in an SVG that do not change from run to run
COLOURS = ("#000000", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def style(place: int, points: int = 2) -> dict:
    """How the curve in the n-th place looks: colour, line, and a marker about eight times along its points."""
    place %= len(COLOURS)
    return {
        "color": COLOURS[place],
        "linestyle": LINES[place],
        "marker": MARKERS[place],
        "markersize": 4,
        "markevery": max(1, points // 8),
        "linewidth": 1.2,
    }


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


def finish(canvas: Figure, labelled: Axes | list[Axes], *paths: Path, made_from: str = "") -> None:
    """Put one legend beneath all panels and write the picture, the same bytes each time, whole or not at all.

    Args:
        labelled: the panels whose labels the legend shows, each label once.
        made_from: a digest of what was drawn, kept in the file (`source_of` reads it).
    """
    handles = {}
    for axis in labelled if isinstance(labelled, list) else [labelled]:
        for handle, name in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    canvas.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=min(4, len(handles)) or 1, frameon=False
    )
    for path in paths:
        about = {"Date": None} if path.suffix == ".svg" else {"Software": None}
        drawn = io.BytesIO()
        canvas.savefig(
            drawn,
            format=path.suffix[1:],
            dpi=150,
            metadata=about | ({"Description": f"{MARK}{made_from}"} if made_from else {}),
        )
        temporary = path.with_name(f".{path.name}.tmp")
        try:
            temporary.write_bytes(drawn.getvalue())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    pyplot.close(canvas)


MARK = "records sha256 "


def source_of(path: Path) -> str:
    """The digest of what a picture was drawn from; empty where it has none."""
    _, found, rest = path.read_bytes().partition(MARK.encode())
    return rest[:64].decode("ascii", errors="replace") if found else ""


def whole(path: Path) -> bool:
    """Whether a picture can be read to its end."""
    try:
        if path.suffix == ".svg":
            ElementTree.parse(path)
        else:
            with Image.open(path) as picture:
                picture.load()
    except (OSError, SyntaxError, ValueError):
        return False
    return True
