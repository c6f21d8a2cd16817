"""What was run, with what, and what of it did not complete: the report's parts that belong to no table of the paper."""

from collections import Counter

from scripts.records import Recorded, every, experiments
from scripts.tables.model import Cell, Page, Piece, Table, cell, sentence
from scripts.tables.notes import commits
from scripts.tables.rows import folder, hardware
from scripts.tables.settings import Source, label, settings


def ran(source: Source) -> Table:
    """One line an experiment."""
    rows = []
    for experiment in experiments(source.records):
        found = settings(source, experiment)
        runs = [run for setting in found.values() for run in setting.runs.values()]
        failed = sum(len(setting.unfinished) for setting in found.values())
        hours = sum(run.summary["timing"]["seconds"] for run in runs) / 3600
        rows.append(
            (
                cell(experiment, f"runs/{experiment}"),
                cell(experiment.split("/")[0]),
                cell("; ".join(label(tag) for tag in found)),
                cell(str(len(runs))),
                cell(str(failed)),
                cell(f"{hours:.2f}"),
                cell(hardware(runs)),
                cell(", ".join(commits(runs))),
            )
        )
    titles = ("experiment", "scale", "settings", "complete", "not complete", "hours", "hardware", "commits")
    return Table("runs", titles, tuple(rows))


def unfinished(source: Source) -> list[Cell]:
    """Each record of a run that did not complete, by name."""
    said = []
    for experiment in experiments(source.records):
        for run in every(source.records, experiment):
            if run.status != "complete":
                why = f": {run.summary['error']}" if run.summary.get("error") else ""
                at = Piece(run.status, folder(experiment, run.tag, run.seed))
                said.append(sentence(f"{experiment}, {label(run.tag)}, seed {run.seed}: ", at, why))
    return said


def found(made: list[Page]) -> list[Cell]:
    """Every page's sentences with the page's title, and which pages have no record."""
    said, empty = [], []
    for page in made:
        if has_records(page):
            said += [sentence(Piece(page.title, f"tables/{page.name}.md"), ": ", *note.pieces) for note in page.notes]
        else:
            empty.append(Piece(f"{page.title} ({page.scale} scale)", f"tables/{page.name}.md"))
    pieces: list[str | Piece] = []
    for piece in empty:
        pieces += ["; " if pieces else "Not run: ", piece]
    return [*said, *([sentence(*pieces, ".")] if pieces else [])]


def besides(source: Source) -> list[Cell]:
    """The pages in results/ that are measured otherwise than by training, by their first line."""
    pages = [path for path in sorted(source.results.glob("*.md")) if path.name != "README.md"]
    return [sentence(Piece(page.read_text().split("\n", 1)[0].lstrip("# "), page.name)) for page in pages]


def has_records(page: Page) -> bool:
    """Whether any line of a page was run."""
    return any(part.parts.get("state") == "run" for table in page.tables for row in table.rows for part in row)


def versions(source: Source) -> Table:
    """Each version of Python and of each package, and how many runs had it (a resumed run may have several)."""
    counted: Counter[tuple[str, str]] = Counter()
    for experiment in experiments(source.records):
        for run in every(source.records, experiment):
            counted.update(set(used(run)))
    rows = tuple((cell(name), cell(version), cell(str(count))) for (name, version), count in sorted(counted.items()))
    return Table("versions", ("package", "version", "runs"), rows)


def used(run: Recorded) -> list[tuple[str, str]]:
    """(package, version) of every session."""
    return [
        (name, version)
        for session in run.sessions
        for name, version in {"Python": session["python"], **session["versions"]}.items()
        if version
    ]
