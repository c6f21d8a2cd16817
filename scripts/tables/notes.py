"""What stands beneath a table: what its differences say, what it leaves out, and where it comes from."""

from collections.abc import Callable

from scripts.records import Recorded
from scripts.seeds import Paired
from scripts.tables.model import Cell, Piece, sentence
from scripts.tables.rows import Line, between, folder, hardware
from scripts.tables.settings import label


def verdicts(lines: list[Line]) -> list[Cell]:
    """What the differences say, one sentence for each conditioning, each number linked to its runs."""
    said = []
    for what in dict.fromkeys(label(asked.tag) for asked in lines):
        compared = [(asked, told) for asked in lines if label(asked.tag) == what and (told := between(asked))]
        said += [judged(what, compared)] if compared else []
    return said


def judged(what: str, compared: list[tuple[Line, Paired]]) -> Cell:
    """On which rows something gains, loses, or is not told from no change."""
    pieces: list[str | Piece] = []
    for verb in ("gains on", "loses on", "is not told from no change on"):
        named: list[str | Piece] = []
        for asked, told in compared:
            side = "is not told from no change on" if not told.decided else "gains on" if told.mean > 0 else "loses on"
            if side == verb:
                named += [f"{', ' if named else ''}{asked.name} (", Piece(f"{told.mean:+.2f}", asked.home), ")"]
        if named:
            pieces += [f"{'; ' if pieces else ''}{verb} ", *named]
    return sentence(f"{what[0].upper()}{what[1:]}: ", *pieces, " (95 % interval of the paired difference).")


def left_out(lines: list[Line], elsewhere: Callable[[str], bool] = lambda tag: False) -> list[Cell]:
    """What the lines' experiments have and no line averages, by name.

    Runs that did not complete, numbers that were not finite, and settings without a line that are not `elsewhere`.
    """
    said = []
    names = {asked.experiment: asked for asked in reversed(lines)}
    for experiment, one in reversed(names.items()):
        shown_tags = {asked.tag for asked in lines if asked.experiment == experiment}
        for tag, setting in one.found.items():
            if tag not in shown_tags:
                continue
            for run in [*setting.unfinished, *(run for run in setting.runs.values() if run.value is None)]:
                what = run.status if run.status != "complete" else "its number is not finite"
                why = f": {run.summary['error']}" if run.summary.get("error") else ""
                at = Piece(what, folder(experiment, tag, run.seed))
                said.append(sentence(f"{one.name}, {label(tag)}, seed {run.seed} is in no mean: ", at, f"{why}."))
        others = [tag for tag in one.found if tag not in shown_tags and not elsewhere(tag)]
        if others:
            pieces: list[str | Piece] = []
            for tag in others:
                pieces += ["; " if pieces else "", Piece(label(tag), folder(experiment, tag))]
            said.append(sentence(f"{one.name} has other records, in no line here: ", *pieces, "."))
    return said


def provenance(runs: list[Recorded]) -> Cell:
    """How many runs a page is made from, on what they ran, at which commits."""
    if not runs:
        return sentence("No record yet. Made by ", Piece("make tables", code=True), " from results/runs/.")
    return sentence(
        f"{len(runs)} runs on {hardware(runs)}; commits {', '.join(commits(runs))} (+: with uncommitted changes). "
        "Made by ", Piece("make tables", code=True), " from the records in results/runs/."
    )  # fmt: skip


def commits(runs: list[Recorded]) -> list[str]:
    """The commits of every session, short; + where the tree had uncommitted changes, none outside a checkout."""
    gits = [session["git"] for run in runs for session in run.sessions]
    return sorted({git["commit"][:10] + ("+" if git["dirty"] else "") if git else "none" for git in gits})
