"""The report's figure: κ and σ_min of the weights, and what attention does, by depth, plain beside conditioned."""

from __future__ import annotations

import math
from pathlib import Path

# Width falls from q to v, so that lines that lie on one another stay visible.
_STYLE = {
    "q": {"color": "#0072B2", "linewidth": 4},
    "k": {"color": "#D55E00", "linewidth": 2.2},
    "v": {"color": "#009E73", "linewidth": 1},
}
_LINE = {"plain": "-", "conditioned": "--"}


def draw(records: list[dict], title: str, path: Path) -> None:
    """Writes a PNG of four panels. Needs matplotlib.

    Raises:
        ValueError: matplotlib is missing, or the file cannot be written.
    """
    try:
        import matplotlib
    except ImportError:
        raise ValueError("--plot needs matplotlib: pip install matplotlib") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.lines import Line2D

    canvas, ((kappa, sigma), (largest, gradient)) = pyplot.subplots(2, 2, figsize=(10, 7), layout="constrained")
    for when, line in _LINE.items():
        for which, style in _STYLE.items():
            rows = [r for r in records if r["projection"] == which]
            depth = [r["layer"] for r in rows]
            suffix = "" if when == "plain" else "_conditioned"
            keys = (kappa, f"kappa{suffix}"), (sigma, f"sigma_min{suffix}"), (gradient, f"gradient_{which}_{when}")
            for axis, key in keys:
                axis.plot(depth, [_drawable(r[key]) for r in rows], linestyle=line, **style)
        rows = [r for r in records if r["projection"] == "q"]
        values = [_drawable(r[f"max_probability_{when}"]) for r in rows]
        largest.plot([r["layer"] for r in rows], values, "k", linestyle=line)
    largest.set_ylim(0, 1)
    for axis, name in (
        (kappa, "condition number of W and W + C"),
        (sigma, "smallest singular value of W and W + C"),
        (largest, "mean largest attention probability"),
        (gradient, "gradient norm"),
    ):
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("attention layer")
        axis.spines[["top", "right"]].set_visible(False)
        if axis is not largest:
            axis.set_yscale("log")
    handles = [Line2D([], [], label=f"W_{which.upper()}", **style) for which, style in _STYLE.items()]
    handles += [Line2D([], [], color="k", linestyle=line, label=when) for when, line in _LINE.items()]
    canvas.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, handlelength=4)
    canvas.suptitle(title)
    try:
        canvas.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise ValueError(f"--plot: {path} cannot be written ({str(error).splitlines()[0]})") from None
    finally:
        pyplot.close(canvas)


def _drawable(value: float | None) -> float:
    """Infinite and absent values, and zeros on a logarithmic axis, as gaps."""
    return value if value is not None and math.isfinite(value) and value > 0 else math.nan
