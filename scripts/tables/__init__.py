"""The paper's tables from records: `python -m scripts.tables`, or `make tables`.

`model.py` says what a table is, `writers.py` writes one as Markdown, CSV, LaTeX and HTML, `settings.py` finds the runs,
`rows.py` makes lines of them; each other file is one table of the paper.
"""
