"""The generated part of docs/evidence.md, a section a question, and the sentences of README.md's first screen."""

from pathlib import Path

from scripts.evidence import advice, answers, correlation, forest
from scripts.evidence.findings import PARTS, PRIMARY, Study, measures_table, primary_table, settings_table
from scripts.figures.picture import Picture
from scripts.tables.model import Cell, Table
from scripts.tables.settings import Source, label
from scripts.tables.writers import markdown_cell, markdown_table

SCALES = ("reduced", "gpu")
NOTATION = (
    "Each line: the paired difference of top-1 in points with its 95 % interval (paired t) and its number of seeds; "
    "only the primary comparison is corrected (Holm)."
)


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
    part = {name: settings_table(study, name, f"{caption}.") for name, caption in PARTS.items()}
    return [
        f"### What the records say, scale: {study.scale}", "", NOTATION, "",
        *progress(study),
        *section("1 and 2. Does it improve on the baseline?", answers.claims(study) + answers.elsewhere(study),
                 [primary_table(study), part["primary"], part["pooling"], part["model"]], (), up),
        *section("3. Is it this correction, κ, or the size of the weights?",
                 answers.controls(study) + answers.reasons(study), [], (), up),
        *section("4. Which reading matters?", answers.readings(study), [part["factor"]], forest.pictures(study), up),
        *section("5. Does a lower κ go with a better accuracy?", answers.of_kappa(study), [correlation.table(study)],
                 correlation.pictures(study), up),
        *section("6. Does λ = 10 recover?", answers.recovery(study), [part["long"]], (), up),
        *section("Recommendation to practitioners", advice.recommendation(study), [], (), up),
        *section("What was measured in every run", [], [measures_table(study)], (), up),
    ]  # fmt: skip


def section(title: str, said: list[Cell], tables: list[Table], pictures: tuple | list[Picture], up: str) -> list[str]:
    """A question: sentences, then tables, then pictures; nothing where there is none of them."""
    lines = [f"- {markdown_cell(note, up)}" for note in said] + ([""] if said else [])
    for table in tables:
        if table.rows:
            lines += [table.caption, "", *markdown_table(table, up), ""]
    for picture in pictures:
        lines += [f"![{picture.title}]({up}figures/{picture.name}.svg)", "", picture.caption, ""]
    return [f"#### {title}", "", *lines] if lines else []


def progress(study: Study) -> list[str]:
    """What of the plan is not there, and what did not complete, in words; nothing where all is."""
    said = []
    if missing := study.lacking():
        said.append(f"**{missing} runs of the plan have no result yet: what follows is preliminary.**")
    failed = [run for runs in study.failed.values() for run in runs.values()]
    said += [f"{label(run.tag)}, seed {run.seed}: {run.status}; in no mean." for run in failed]
    return [line for sentence in said for line in (sentence, "")]


def first_screen(source: Source, up: str) -> str:
    """README.md's three sentences about the study, from the largest scale that has its primary runs."""
    for scale in reversed(SCALES):
        study = Study(source, scale)
        if study.judged and (said := answers.verdicts(study)):
            where = "two CPU cores, so at a small scale" if scale == "reduced" else "a GPU"
            more = f"; {missing} of its runs are still to be made" if (missing := study.lacking()) else ""
            head = (
                f"What our own study found for top-1 of a ViT on CIFAR-10, on {where}{more} "
                "([protocol, findings, recommendation](docs/evidence.md)):"
            )
            return "\n".join(["", head, "", *(f"- {markdown_cell(note, up)}" for note in said), "", ""])
    return "\nOur own study ([its protocol](docs/evidence.md)) has not been run to its end.\n\n"


def pictures(source: Source) -> list[Picture]:
    """The study's pictures."""
    studies = [Study(source, scale) for scale in SCALES]
    return [picture for study in studies for made in (forest, correlation) for picture in made.pictures(study)]


def document(readme: Path) -> Path:
    """Where the study's document lies, beside README.md."""
    return readme.parent / "docs" / "evidence.md"
