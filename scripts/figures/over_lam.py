"""The primary metric over λ, one panel for each row with more than two values of it."""

from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scripts.figures.picture import Picture
from scripts.plotting import figure, style
from scripts.records import experiments
from scripts.seeds import mean_std
from scripts.tables.names import row_name
from scripts.tables.rows import Settings, is_ablation, values
from scripts.tables.settings import Source, label, lam, overrides, settings

COMPARED = ("svd-lam1",)  # drawn as a level: its λ is in other units


def pictures(source: Source) -> list[Picture]:
    """One picture a scale that has such a row."""
    found = []
    for scale in ("paper", "reduced"):
        rows = {name: settings(source, name) for name in experiments(source.records) if name.startswith(f"{scale}/")}
        rows = {row_name(source, name): held for name, held in rows.items() if is_ablation(held) and numbered(held)}
        if rows:
            runs = [run for held in rows.values() for tag in shown(held) for run in held[tag].runs.values()]
            found.append(
                Picture(
                    f"over_lambda_{scale}",
                    f"Accuracy over λ, {scale} scale",
                    "Mean over seeds, the bars one sample standard deviation; each seed a dot. λ = 0 is the baseline.",
                    tuple(runs),
                    partial(draw, rows),
                )
            )
    return found


def numbered(found: Settings) -> bool:
    """Whether any λ of a row has a number to draw: a sweep may have failed whole."""
    return any(values(found[tag].runs, lambda run: run.value) for tag in shown(found) if tag not in COMPARED)


def shown(found: Settings) -> list[str]:
    """The settings of a row that are drawn."""
    swept = [tag for tag in found if not overrides(tag) and lam(tag) is not None and found[tag].runs]
    return sorted(swept, key=lam) + [tag for tag in COMPARED if tag in found and found[tag].runs]


def draw(rows: dict[str, Settings]) -> tuple[Figure, list[Axes]]:
    """A panel a row."""
    canvas, axes = figure(len(rows), columns=min(2, len(rows)))
    for axis, (name, found) in zip(axes, rows.items(), strict=True):
        tags = [tag for tag in shown(found) if tag not in COMPARED]
        numbers = [list(values(found[tag].runs, lambda run: run.value).values()) for tag in tags]
        places = [lam(tag) for tag, listed in zip(tags, numbers, strict=True) if listed]
        numbers = [listed for listed in numbers if listed]
        spreads = [mean_std(listed)[1] if len(listed) > 1 else 0.0 for listed in numbers]
        axis.errorbar(
            places,
            [mean_std(listed)[0] for listed in numbers],
            yerr=spreads,
            capsize=3,
            label="identity, λI",
            **style(0),
        )
        for place, listed in zip(places, numbers, strict=True):
            axis.plot([place] * len(listed), listed, "o", color="grey", markersize=2.5, zorder=0)
        for index, tag in enumerate(tag for tag in shown(found) if tag in COMPARED):
            if listed := list(values(found[tag].runs, lambda run: run.value).values()):
                look = style(index + 1) | {"marker": ""}
                axis.axhline(mean_std(listed)[0], label=label(tag), **look)
        least = min((place for place in places if place > 0), default=1.0)
        axis.set_xscale("symlog", linthresh=least)
        axis.set_xlim(-0.4 * least, 1.5 * max(places))
        axis.set_xticks(places, [f"{place:g}" for place in places])
        axis.minorticks_off()
        axis.set(title=name, xlabel="λ", ylabel="percent")
    return canvas, axes
