"""The generated part of docs/evidence.md and the sentences of README.md's first screen."""

from pathlib import Path

from scripts.evidence import correlation
from scripts.evidence.findings import PARTS, PRIMARY, Study, measures_table, primary_table, settings_table, verdicts
from scripts.figures.picture import Picture
from scripts.tables.model import Table
from scripts.tables.settings import Source, label
from scripts.tables.writers import markdown_cell, markdown_table

SCALES = ("reduced", "gpu")


def blocks(source: Source) -> dict[str, str]:
    """The block of docs/evidence.md, links as it has them."""
    parts = []
    for scale in SCALES:
        study = Study(source, scale)
        if any(study.runs.get(name) for pair in PRIMARY for name in pair):
            parts += chapter(study, "../results/")
    return {"evidence": "\n".join(["", *(parts or ["No run of the study has a record yet."]), "", ""])}


def chapter(study: Study, up: str) -> list[str]:
    """Everything that one scale's records say."""
    lines = [f"### Scale: {study.scale}", "", *progress(study)]
    said = verdicts(study)
    lines += [f"- {markdown_cell(note, up)}" for note in said] + [""]
    for table in tables(study):
        if table.rows:
            lines += [table.caption, "", *markdown_table(table, up), ""]
    for picture in correlation.pictures(study):
        lines += [f"![{picture.title}]({up}figures/{picture.name}.svg)", "", picture.caption, ""]
    return lines


def progress(study: Study) -> list[str]:
    """What of the plan is not there, and what did not complete, in words; nothing where all is."""
    said = []
    if study.missing:
        said.append(f"**{study.missing} runs of the plan have no record: what follows is preliminary.**")
    said += [f"{label(run.tag)}, seed {run.seed}: {run.status}; in no mean." for run in study.unfinished]
    return [*said, ""] if said else []


def tables(study: Study) -> list[Table]:
    """Every table of a scale."""
    primary = settings_table(study, "primary", "ViT with a class token, five seeds.")
    others = [settings_table(study, part, f"{caption}.") for part, caption in PARTS.items()]
    return [primary_table(study), primary, *others, measures_table(study), correlation.table(study)]


def first_screen(source: Source, up: str) -> str:
    """README.md's sentences about the study, from the largest scale that has its primary runs."""
    for scale in reversed(SCALES):
        study = Study(source, scale)
        if said := verdicts(study):
            where = "two CPU cores, so at a small scale" if scale == "reduced" else "a GPU"
            head = f"What our own study found, on {where} ([protocol and findings](docs/evidence.md)):"
            return "\n".join(["", head, "", *(f"- {markdown_cell(note, up)}" for note in said), "", ""])
    return "\nOur own study ([its protocol](docs/evidence.md)) has no records yet.\n\n"


def pictures(source: Source) -> list[Picture]:
    """The study's pictures."""
    return [picture for scale in SCALES for picture in correlation.pictures(Study(source, scale))]


def document(readme: Path) -> Path:
    """Where the study's document lies, beside README.md."""
    return readme.parent / "docs" / "evidence.md"
