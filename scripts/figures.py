"""`make figures`: conditioning along training as the paper draws it, from records alone.

For each experiment with records: σ_min and κ of W_Q, W_K, W_V (of W + C, what the model computes with), κ of the
attention Jacobian, Theorem 3.4's bound, and the metric, the original beside the conditioned models. Seeds are thin
lines of one colour. Written as PNG and SVG; without new records no byte changes.
"""

import argparse
import math
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

from scripts.plotting import COLOURS, figure, finish
from scripts.records import Recorded, by_tag, complete

Series = list[tuple[int, float]]


def main() -> int:
    """Draw what there are records for; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default=Path("results/runs"), help="where the records are")
    parser.add_argument("--output", type=Path, default=Path("results/figures"))
    options = parser.parse_args()
    drawn = 0
    for experiment in sorted({str(path.parents[2].relative_to(options.runs)) for path in summaries(options.runs)}):
        runs = by_tag(complete(options.runs, experiment))
        runs = {tag: seeds for tag, seeds in runs.items() if any(run.events("spectra") for run in seeds.values())}
        if "baseline" in runs:
            for path in draw(experiment, runs, options.output):
                print(path)
            drawn += 1
    if not drawn:
        print(
            f"error: no records with weight spectra under {options.runs}: run a row, then make collect", file=sys.stderr
        )
        return 2
    return 0


def summaries(root: Path) -> list[Path]:
    """Every summary.json below a root."""
    return sorted(root.glob("**/seed*/summary.json"))


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


def draw(experiment: str, runs: dict[str, dict[int, Recorded]], output: Path) -> list[Path]:
    """One figure; returns the files written."""
    canvas, axes = figure(len(panels()), columns=3)
    tags = ["baseline", *sorted(tag for tag in runs if tag != "baseline")][: len(COLOURS)]
    for axis, (title, logarithmic, series) in zip(axes, panels(), strict=True):
        finite = False
        for tag, colour in zip(tags, COLOURS, strict=False):
            for index, run in enumerate(runs[tag].values()):
                points = [(step, value) for step, value in series(run) if math.isfinite(value)]
                finite |= bool(points)
                axis.plot(*zip(*points, strict=True) if points else ([], []), color=colour, linewidth=1.2,
                          label=f"{tag} (n = {len(runs[tag])})" if index == 0 else None)  # fmt: skip
        axis.set(title=title, xlabel="step")
        if logarithmic and finite:
            axis.set_yscale("log")
        if not finite:
            axis.text(0.5, 0.5, "no finite value recorded", ha="center", transform=axis.transAxes, color="grey")
    canvas.suptitle(f"{experiment}: conditioning along training")
    name = experiment.replace("/", "_")
    output.mkdir(parents=True, exist_ok=True)
    files = [output / f"conditioning_{name}.{kind}" for kind in ("png", "svg")]
    finish(canvas, axes[0], *files)
    return files


if __name__ == "__main__":
    sys.exit(main())
