"""What a table says reaches Markdown, CSV, LaTeX and HTML as it is, whatever letters it has."""

import csv
import io
import re

import pytest

from scripts.tables.model import Cell, Page, Piece, Table, cell, sentence
from scripts.tables.writers import csv_text, html_page, latex, latex_text, markdown, markdown_table

NASTY = 'a|b_c & 50 % of #1, "q", $x$ {y} ~z ^w \\v <u> `t` *s* [r], λ ± κ --p'


@pytest.fixture
def page():
    made = cell("make a|b", code=True)
    table = Table(
        "t",
        ("row", "ours", "command"),
        (
            (
                cell(NASTY),
                cell("46.66 ± 0.34", "runs/a,b=(c)/x", mean=46.660000123456, std=0.34),
                made,
            ),
            (cell("plain"), cell("not run", mean=None, std=None), made),
        ),
        aside=("command",),
    )
    return Page("p", "A title", "reduced", "Of `code`.", (table,), (sentence("x ", Piece("y", "z.json")),), cell("end"))


def test_markdown_keeps_the_columns_and_links_from_where_it_lies(page):
    header, rule, first, second = markdown_table(page.tables[0], "../")
    for line in (header, rule, first, second):
        assert len(re.findall(r"(?<!\\)\|", line)) == 4
    assert r"a\|b_c & 50 % of #1" in first
    assert r"\\v \<u> \`t\` \*s\* \[r\]" in first
    assert "[46.66 ± 0.34](../runs/a,b=%28c%29/x)" in first
    assert r"`make a\|b`" in second
    assert "- x [y](z.json)" in markdown(page, up="")


def test_csv_is_read_back_with_eight_decimals(page):
    rows = list(csv.DictReader(io.StringIO(csv_text(page.tables[0]))))
    assert list(rows[0]) == ["row", "mean", "std", "command"]
    assert rows[0] == {"row": NASTY, "mean": "46.66000012", "std": "0.34", "command": "make a|b"}
    assert (rows[1]["mean"], rows[1]["std"]) == ("", "")


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("AP^b_50", r"AP\textasciicircum{}b\_50"),
        ("95 % & #1", r"95 \% \& \#1"),
        ("{$x$}", r"\{\$x\$\}"),
        (r"\input", r"\textbackslash{}input"),
        ("~a|b<c>", r"\textasciitilde{}a\textbar{}b\textless{}c\textgreater{}"),
        ("λ = 1 ± 2", r"$\lambda$ = 1 $\pm$ 2"),
        ("--all -1.5", "-{}-all -1.5"),
    ],
)
def test_latex_takes_no_letter_for_a_command(text, escaped):
    assert latex_text(text) == escaped


def test_latex_has_booktabs_rules_and_as_many_cells_as_columns(page):
    text = latex(page, page.tables[0])
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]
    assert r"\begin{tabular}{ll}" in text
    inside = text.split(r"\midrule")[1].split(r"\bottomrule")[0].strip().splitlines()
    assert [len(re.findall(r"(?<!\\)&", line)) for line in inside] == [1, 1]
    assert text.count(r"\texttt{make a\textbar{}b}") == 1  # what is aside stands once, beneath
    bare = re.sub(r"\\[{}]", "", text)
    assert bare.count("{") == bare.count("}")


def test_html_shows_letters_not_tags(page):
    text = html_page(page)
    assert "&lt;u&gt;" in text
    assert "<u>" not in text
    assert '<a href="runs/a,b=%28c%29/x">46.66 ± 0.34</a>' in text
    assert "<p>Of <code>code</code>.</p>" in text


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match="a row of 1 cells under 2 columns"):
        Table("t", ("a", "b"), ((Cell(),),))
