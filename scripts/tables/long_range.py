"""The Long Range Arena table: test accuracy of the Nyströmformer on five tasks, at the paper's scale and reduced."""

from scripts.records import Recorded
from scripts.seeds import mean_std
from scripts.tables.model import Cell, Page, Piece, cell, sentence
from scripts.tables.notes import left_out, provenance, verdicts
from scripts.tables.rows import (
    TEST,
    Line,
    columns,
    is_elsewhere,
    papers,
    runs_of,
    table,
    tags,
)
from scripts.tables.settings import Source, command, settings

ROWS = ("listops", "text", "retrieval", "image", "pathfinder")


def page(source: Source, scale: str) -> Page:
    """The page of one scale."""
    lines = [asked for row in ROWS for asked in of(source, scale, row)]
    name = "lra" if scale == "paper" else "lra_reduced"
    return Page(
        name,
        "Long Range Arena, Nyströmformer" if scale == "paper" else "The Long Range Arena, reduced",
        scale,
        intro(scale),
        (table(name, columns(scale, ("majority class", "tokens", "steps")), lines),),
        (*learning(lines), *verdicts(lines), *left_out(lines, is_elsewhere)),
        provenance(runs_of(lines)),
    )


def of(source: Source, scale: str, row: str) -> list[Line]:
    """The lines of one task."""
    experiment, target = f"{scale}/lra_{row}", f"lra-{row}"
    found, paper = settings(source, experiment), source.paper("lra")["rows"][target]
    return [
        Line(
            paper["name"],
            experiment,
            found,
            tag,
            command(target, scale, tag),
            paper=papers(paper, tag),
            before=size(Line("", experiment, found, tag, "")),
        )
        for tag in tags(found, scale)
    ]


def size(asked: Line) -> tuple[Cell, Cell, Cell]:
    """The majority class's accuracy, the padded length and the steps, as recorded."""
    for run in asked.runs.values():
        length, steps = run.config["dataset"]["padded_length"], run.summary["steps"]
        return (
            cell(f"{majority(run):.2f}", majority=majority(run)),
            cell(f"{length:,}", tokens=length),
            cell(f"{steps:,}", steps=steps),
        )
    return cell("", majority=None), cell("", tokens=None), cell("", steps=None)


def intro(scale: str) -> str:
    """What the numbers are."""
    if scale == "paper":
        what = (
            "Accuracy in percent on the whole test set of the model of best dev accuracy; the paper's over five seeds."
        )
    else:
        what = (
            "Not the paper's scale: the same Nyströmformer on short or small sets, ListOps, Retrieval and Pathfinder "
            "made by the project itself. Accuracy in percent on the whole test set of the model of best dev accuracy."
        )
    return (
        f"{what} {TEST} Text has no dev set of its own: as in the original it is the test set. Majority class: what "
        "always naming the commonest class of the test set reaches. `s`: the longest run's training time in seconds. "
        "What was reduced stands in `configs/experiment/reduced/`. Commands take `DATA_ROOT=<folder>`."
    )


def majority(run: Recorded) -> float:
    """What always naming the commonest class of the test set reaches, in percent."""
    return run.summary["metrics"]["test_majority"]


def noise(run: Recorded) -> float:
    """The standard error of an accuracy, in points, from the size of the test set alone."""
    metrics = run.summary["metrics"]
    share = metrics["test_accuracy"] / 100
    return 100 * (share * (1 - share) / metrics["test_count"]) ** 0.5


def learning(lines: list[Line]) -> list[Cell]:
    """Which baselines learn at all: every seed's accuracy more than three standard errors above the majority class."""
    learns: list[str | Piece] = []
    does_not: list[str | Piece] = []
    for asked in lines:
        if asked.tag != "baseline" or not asked.values:
            continue
        least = min((asked.runs[seed] for seed in asked.values), key=lambda run: run.value)
        side = learns if least.value > majority(least) + 3 * noise(least) else does_not
        mean, _ = mean_std(list(asked.values.values()))
        side += [", " if side else "", f"{asked.name} (", Piece(f"{mean:.1f} %", asked.home),
                 f" beside {majority(least):.1f} %)"]  # fmt: skip
    said = []
    if learns:
        said.append(
            sentence("The baseline learns at this scale: ", *learns, ", every seed clear of the majority class.")
        )
    if does_not:
        said.append(sentence("The baseline does not clearly learn at this scale: ", *does_not,
                             "; a difference there says nothing about the method."))  # fmt: skip
    return said
