"""The marked blocks of README.md and docs/evidence.md: what stands between a block's comment and its end is made.

<!-- made by make report: paper-rows -->
...
<!-- end -->
"""

import re
from pathlib import Path

from scripts.evidence import chapter
from scripts.seeds import shown
from scripts.tables import coco, glue, imagenet, long_range
from scripts.tables.model import Cell, Piece, Table, cell
from scripts.tables.rows import Line, between, folder
from scripts.tables.settings import EXPECTED, Source, label
from scripts.tables.writers import markdown_cell, markdown_table
from train.errors import UserError

BLOCK = re.compile(r"(<!-- made by make report: (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
SHOWN_AP = ("AP^b", "AP^m")


def written(source: Source, readme: Path) -> dict[Path, str]:
    """README.md, and docs/evidence.md where it lies beside it, with every block made anew.

    Raises:
        UserError: a block of an unknown name, one that is missing, or one without an end.
    """
    made = {readme: filled(readme, blocks(source))}
    if (study := chapter.document(readme)).is_file():
        made[study] = filled(study, chapter.blocks(source))
    return made


def filled(readme: Path, made: dict[str, str]) -> str:
    """The text of a document with the blocks `made`.

    Raises:
        UserError: a block of an unknown name, one that is missing, or one without an end.
    """
    text = readme.read_text()
    found = [name for _, name, _, _ in BLOCK.findall(text)]
    if text.count("<!-- made by make report:") != len(found):
        raise UserError(f"{readme}: a block 'made by make report' has no '<!-- end -->'")
    for name in found:
        if name not in made:
            raise UserError(f"{readme}: no block is called {name!r}; there are: {', '.join(made)}")
    for name in made:
        if name not in found:
            raise UserError(f"{readme} lacks the block '<!-- made by make report: {name} -->' ... '<!-- end -->'")
    return BLOCK.sub(lambda match: match[1] + made[match[2]] + match[4], text)


def outside(text: str) -> str:
    """README.md without its blocks, each line where it was."""
    return BLOCK.sub(lambda match: "\n" * match[0].count("\n"), text)


def blocks(source: Source) -> dict[str, str]:
    """name → Markdown of each block, links as README.md has them."""
    return {
        "evidence": chapter.first_screen(source, "results/"),
        "paper-rows": "\n".join(["", *markdown_table(paper_rows(source), "results/"), "", ""]),
        "reduced-rows": "\n".join(["", *markdown_table(reduced_rows(source), "results/"), "", *notes(source), ""]),
    }


def notes(source: Source) -> list[str]:
    """What the reduced table must not be read without: which baselines learn at all, GLUE's one pre-training."""
    lines = [asked for row in long_range.ROWS for asked in long_range.of(source, "reduced", row)]
    said = [*long_range.learning(lines), *glue.once(source, "reduced")]
    return [*(f"- {markdown_cell(note, 'results/')}" for note in said), *([""] if said else [])]


def headline(source: Source, scale: str) -> dict[tuple[str, str], dict[str, Line]]:
    """(table, row) → tag → line, of the numbers that README.md shows."""
    lines = {
        "ImageNet top-1": [asked for row in imagenet.ROWS for asked in imagenet.of(source, scale, row)],
        "COCO": [asked for asked in coco.of(source, scale) if asked.name in SHOWN_AP],
        "Long Range Arena": [asked for row in long_range.ROWS for asked in long_range.of(source, scale, row)],
        "GLUE": glue.every(source, scale)[1],
    }
    found: dict[tuple[str, str], dict[str, Line]] = {}
    for table, listed in lines.items():
        for asked in listed:
            found.setdefault((table, asked.name), {})[asked.tag] = asked
    return found


def paper_rows(source: Source) -> Table:
    """The paper's values beside ours at the same scale."""
    rows = []
    for (table, name), tags in headline(source, "paper").items():
        first, second = (tags[tag] for tag in EXPECTED[:2])
        rows.append(
            (
                cell(table),
                cell(name),
                cell(f"{first.paper.text} → {second.paper.text}"),
                both(first, second),
                cell(first.command.replace(" SEEDS=0,1,2,3,4", ""), code=True),
            )
        )
    return Table("paper-rows", ("table", "row", "paper: baseline → conditioned", "ours", "command"), tuple(rows))


def both(first: Line, second: Line) -> Cell:
    """Ours, baseline → conditioned with the paired difference; where either has no number it says why."""
    for asked in (first, second):
        if not asked.values:
            return cell(asked.absent)
    if between(second) is None:
        return cell("no shared seed")
    return Cell((value(first), Piece(" → "), value(second), Piece(f", {difference(second)}")))


def value(asked: Line) -> Piece:
    """Mean ± std, linked to the records."""
    return Piece(shown(list(asked.values.values())), asked.home)


def difference(asked: Line) -> str:
    """The paired difference with its interval."""
    told = between(asked)
    if told is None:
        return "no shared seed"
    return f"{told.mean:+.2f}" + (f" ({told.low:+.2f} to {told.high:+.2f})" if told.seeds > 1 else " (one seed)")


def reduced_rows(source: Source) -> Table:
    """The reduced twins: the baseline, and what each conditioning changes."""
    rows = []
    for (table, name), tags in headline(source, "reduced").items():
        changes = []
        for tag in EXPECTED[1:]:
            asked = tags.get(tag)
            ran = asked is not None and asked.values
            changes.append(cell(difference(asked), asked.home) if ran else cell(asked.absent if asked else "not run"))
        base = tags["baseline"]
        seeds = sorted(base.values)
        rows.append(
            (
                cell(table),
                cell(name),
                Cell((value(base),)) if seeds else cell(base.absent),
                *changes,
                linked(base, seeds),
            )
        )
    titles = ("table", "row", "baseline", *(f"{label(tag)}: paired difference" for tag in EXPECTED[1:]), "seeds")
    return Table("reduced-rows", titles, tuple(rows))


def linked(asked: Line, seeds: list[int]) -> Cell:
    """The baseline's seeds, each linked to its run."""
    pieces: list[Piece] = []
    for seed in seeds:
        link = "" if asked.derived else folder(asked.experiment, asked.tag, seed)
        pieces += [*([Piece(", ")] if pieces else []), Piece(str(seed), link)]
    return Cell(tuple(pieces))
