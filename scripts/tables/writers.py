"""A page as Markdown and HTML, a table as CSV and LaTeX (booktabs): text in, text out."""

import csv
import html
import io
import re

from scripts.tables.model import Cell, Page, Piece, Table

LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "%": r"\%",
    "#": r"\#",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    "λ": r"$\lambda$",
    "σ": r"$\sigma$",
    "κ": r"$\kappa$",
    "±": r"$\pm$",
    "→": r"$\to$",
    "≤": r"$\le$",
    "×": r"$\times$",
    "−": "$-$",
}


def markdown(page: Page, level: int = 1, up: str = "../") -> str:
    """A page; `up` leads from where it lies to results/."""
    lines = [f"{'#' * level} {page.title}", "", page.intro, ""]
    for table in page.tables:
        lines += [table.caption, ""] if table.caption else []
        lines += [*markdown_table(table, up), ""]
    lines += [f"- {markdown_cell(note, up)}" for note in page.notes]
    lines += [""] if page.notes else []
    return "\n".join([*lines, markdown_cell(page.provenance, up)]) + "\n"


def markdown_table(table: Table, up: str = "../") -> list[str]:
    """Header, rule and a line for each row."""
    lines = [f"| {' | '.join(map(_markdown, table.columns))} |", "|" + "---|" * len(table.columns)]
    return lines + [f"| {' | '.join(markdown_cell(cell, up) for cell in row)} |" for row in table.rows]


def markdown_cell(cell: Cell, up: str) -> str:
    """Its pieces, each linked to its record."""
    return "".join(_markdown_piece(piece, up) for piece in cell.pieces)


def _markdown_piece(piece: Piece, up: str) -> str:
    text = f"`{piece.text.replace('|', chr(92) + '|')}`" if piece.code else _markdown(piece.text)
    return f"[{text}]({_address(up + piece.link)})" if piece.link else text


def _markdown(text: str) -> str:
    return re.sub(r"([\\`*|\[\]<])", r"\\\1", text).replace("\n", " ")


def _address(path: str) -> str:
    """A relative link: our folders' names hold commas, '=' and '+', which are fine in one; blanks and brackets not."""
    return path.replace(" ", "%20").replace("(", "%28").replace(")", "%29")


def csv_text(table: Table) -> str:
    """Comma-separated: a column for each part where cells have parts, else one for the text.

    Numbers have eight decimals: more than any run resolves, fewer than two machines' last digits differ in.
    """
    parts = [list(dict.fromkeys(name for row in table.rows for name in row[place].parts))
             for place in range(len(table.columns))]  # fmt: skip
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([name for title, names in zip(table.columns, parts, strict=True) for name in names or [title]])
    for row in table.rows:
        values: list[object] = []
        for cell, names in zip(row, parts, strict=True):
            values += [cell.parts.get(name, "") for name in names] if names else [cell.text]
        writer.writerow([round(value, 8) if isinstance(value, float) else value for value in values])
    return file.getvalue()


def latex(page: Page, table: Table) -> str:
    r"""A `tabular` with booktabs' rules to \input; what is aside stands beneath it."""
    shown = [place for place, title in enumerate(table.columns) if title not in table.aside]
    lines = [
        f"% {page.title}: made by `make tables` from records; needs \\usepackage{{booktabs}} and a UTF-8 engine.",
        rf"\begin{{tabular}}{{{'l' * len(shown)}}}",
        r"\toprule",
        " & ".join(latex_text(table.columns[place]) for place in shown) + r" \\",
        r"\midrule",
        *[" & ".join(latex_cell(row[place]) for place in shown) + r" \\" for row in table.rows],
        r"\bottomrule",
        r"\end{tabular}",
    ]
    for title in table.aside:
        place = table.columns.index(title)
        values = dict.fromkeys(latex_cell(row[place]) for row in table.rows if row[place].text)
        if values:
            lines += [r"\par\smallskip", rf"{{\footnotesize {latex_text(title)}: {'; '.join(values)}\par}}"]
    return "\n".join(lines) + "\n"


def latex_cell(cell: Cell) -> str:
    """Its text; commands in typewriter."""
    return "".join(
        rf"\texttt{{{latex_text(piece.text)}}}" if piece.code else latex_text(piece.text) for piece in cell.pieces
    )


def latex_text(text: str) -> str:
    """Every character that LaTeX would take for a command, as itself; two hyphens do not become a dash."""
    return "".join(LATEX.get(letter, letter) for letter in text).replace("--", "-{}-").replace("\n", " ")


def html_page(page: Page, level: int = 2) -> str:
    """A page as a section of the report."""
    parts = [f'<h{level} id="{page.name}">{html.escape(page.title)}</h{level}>', f"<p>{prose(page.intro)}</p>"]
    for table in page.tables:
        parts += [f"<p>{html.escape(table.caption)}</p>"] if table.caption else []
        parts.append(html_table(table))
    if page.notes:
        parts.append("<ul>" + "".join(f"\n<li>{html_cell(note)}</li>" for note in page.notes) + "\n</ul>")
    return "\n".join([*parts, f"<p>{html_cell(page.provenance)}</p>"])


def html_table(table: Table) -> str:
    """A table element that scrolls by itself where the page is narrow."""
    lines = ['<div class="table"><table>', "<thead><tr>" + "".join(f"<th>{html.escape(c)}</th>" for c in table.columns)]
    lines[-1] += "</tr></thead><tbody>"
    lines += ["<tr>" + "".join(f"<td>{html_cell(cell)}</td>" for cell in row) + "</tr>" for row in table.rows]
    return "\n".join([*lines, "</tbody></table></div>"])


def html_cell(cell: Cell) -> str:
    """Its pieces, each linked to its record."""
    return "".join(_html_piece(piece) for piece in cell.pieces)


def _html_piece(piece: Piece) -> str:
    text = f"<code>{html.escape(piece.text)}</code>" if piece.code else html.escape(piece.text)
    return f'<a href="{html.escape(_address(piece.link))}">{text}</a>' if piece.link else text


def prose(text: str) -> str:
    """Prose in which backticks set code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text))
