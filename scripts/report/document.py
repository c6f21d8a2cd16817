"""The report as one list of sections, written as Markdown and as one HTML file that needs nothing besides itself."""

import base64
import html
from dataclasses import dataclass, replace

from scripts.figures.every import pictures
from scripts.figures.picture import Picture
from scripts.report.overview import besides, found, ran, unfinished, versions
from scripts.tables.model import Cell, Page, Table
from scripts.tables.settings import Source
from scripts.tables.writers import html_cell, html_page, html_table, markdown, markdown_cell, markdown_table, prose
from train.errors import UserError

TITLE = "Results"
ABOUT = (
    "What was run, what was found, and from which records. Everything here is made by `make report` from the records "
    "in results/runs/; each number is linked to the record, or to the folder of records, that it came from. Nothing is "
    "typed by hand: `make check-results` makes it anew and compares. Numbers at the paper's scale and at the reduced "
    "one never stand in one table."
)
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; color: #111; }
h1, h2, h3 { line-height: 1.2; } h2 { border-bottom: 1px solid #999; margin-top: 3rem; }
table { border-collapse: collapse; font-size: 0.85rem; } .table { overflow-x: auto; }
th, td { border-bottom: 1px solid #ccc; padding: 0.25rem 0.6rem; text-align: left; vertical-align: top; }
th { border-bottom: 2px solid #111; } img { max-width: 100%; } code { font-size: 0.9em; } a { color: #0050a0; }
@media print { body { font-size: 10pt; max-width: none; } a { color: #000; } .table { overflow: visible; } }
"""


@dataclass(frozen=True)
class Section:
    """A title, and of what follows whatever it has: text, a table, sentences, pages, pictures."""

    title: str
    text: str = ""
    tables: tuple[Table, ...] = ()
    notes: tuple[Cell, ...] = ()
    pages: tuple[Page, ...] = ()
    pictures: tuple[Picture, ...] = ()


def documents(source: Source, made: list[Page]) -> dict[str, str]:
    """README.md and report.html of results/.

    Raises:
        UserError: a picture is not there, or was drawn from other records.
    """
    listed = sections(source, made)
    for picture in (picture for section in listed for picture in section.pictures):
        if not (source.results / "figures" / f"{picture.name}.svg").exists():
            raise UserError(f"the picture {picture.name} is not there: make figures draws it")
    return {"README.md": as_markdown(listed), "report.html": as_html(listed, source)}


def sections(source: Source, made: list[Page]) -> list[Section]:
    """The report, from front to back."""
    bare = [replace(page, notes=()) for page in made]
    return [
        Section(
            "What was run",
            "Each experiment with records. Hours: training alone, summed over runs.",
            tables=(ran(source),),
            notes=tuple(unfinished(source)),
        ),
        Section(
            "What was found",
            "In words made from the numbers; a difference counts where its 95 % interval leaves zero out. Many rows "
            "are looked at: of twenty without any effect one is to be expected to count.",
            notes=tuple(found(made)),
        ),
        Section(
            "Tables at the paper's scale",
            "The paper's values come from `results/paper.yaml`, which says where they were read.",
            pages=tuple(page for page in bare if page.scale == "paper"),
        ),
        Section(
            "Tables at the reduced scale",
            "Small twins of the rows. They say whether the machinery works and what happens to small models, nothing "
            "about the paper's numbers.",
            pages=tuple(page for page in bare if page.scale == "reduced"),
        ),
        Section("Pictures", pictures=tuple(pictures(source))),
        Section(
            "Measured besides",
            "Not made from records of training; each page names the script that wrote it.",
            notes=tuple(besides(source)),
        ),
        Section(
            "Versions and commands",
            "What the runs recorded. `make <row> SCALE=<scale>` runs a row (each line of a table has its command), "
            "`make collect` copies the records, `make tables figures report` makes what is here.",
            tables=(versions(source),),
        ),
    ]


def as_markdown(listed: list[Section]) -> str:
    """results/README.md."""
    lines = [f"# {TITLE}", "", ABOUT, "", "The same with the pictures in one file: [report.html](report.html).", ""]
    for section in listed:
        lines += [f"## {section.title}", "", *([section.text, ""] if section.text else [])]
        for table in section.tables:
            lines += [*markdown_table(table, ""), ""]
        lines += [f"- {markdown_cell(note, '')}" for note in section.notes] + ([""] if section.notes else [])
        lines += [markdown(page, 3, "") for page in section.pages]
        for picture in section.pictures:
            lines += [f"### {picture.title}", "", picture.caption, ""]
            lines += [f"![{picture.title}](figures/{picture.name}.svg)", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def as_html(listed: list[Section], source: Source) -> str:
    """results/report.html: pictures inside, no script, no network."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>specattn: {TITLE.lower()}</title><style>{STYLE}</style></head><body>",
        f"<h1>{TITLE}</h1><p>{prose(ABOUT)}</p>",
        "<ul>" + "".join(f'<li><a href="#part{k}">{s.title}</a></li>' for k, s in enumerate(listed)) + "</ul>",
    ]
    for place, section in enumerate(listed):
        parts.append(f'<h2 id="part{place}">{html.escape(section.title)}</h2>')
        parts += [f"<p>{prose(section.text)}</p>"] if section.text else []
        parts += [html_table(table) for table in section.tables]
        if section.notes:
            parts.append("<ul>" + "".join(f"\n<li>{html_cell(note)}</li>" for note in section.notes) + "\n</ul>")
        parts += [html_page(page, 3) for page in section.pages]
        for picture in section.pictures:
            drawn = base64.b64encode((source.results / "figures" / f"{picture.name}.svg").read_bytes()).decode()
            parts.append(f"<h3>{html.escape(picture.title)}</h3><p>{html.escape(picture.caption)}</p>")
            parts.append(f'<img alt="{html.escape(picture.title)}" src="data:image/svg+xml;base64,{drawn}">')
    return "\n".join([*parts, "</body></html>"]) + "\n"
