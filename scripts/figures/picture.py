"""What a picture is: a name, the runs that it shows, and how it is drawn."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scripts.plotting import finish
from scripts.records import Recorded

KINDS = ("svg", "png")


@dataclass(frozen=True)
class Picture:
    """`draw` gives the canvas and the panels whose labels the legend shows."""

    name: str
    title: str
    caption: str
    runs: tuple[Recorded, ...]
    draw: Callable[[], tuple[Figure, list[Axes]]]

    @property
    def digest(self) -> str:
        """Of what the picture is made from: the metrics and the summary of every run that it shows."""
        whole = hashlib.sha256(self.name.encode())
        for run in sorted(self.runs, key=lambda run: run.folder):
            for name in ("summary.json", "metrics.jsonl"):
                path = run.folder / name
                whole.update(path.read_bytes() if path.exists() else b"")
        return whole.hexdigest()

    def write(self, folder: Path) -> list[Path]:
        """Draw it and write each kind; returns the files."""
        paths = [folder / f"{self.name}.{kind}" for kind in KINDS]
        canvas, labelled = self.draw()
        canvas.suptitle(self.title)
        finish(canvas, labelled, *paths, made_from=self.digest)
        return paths
