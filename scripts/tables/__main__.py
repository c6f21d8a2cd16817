"""`make tables`: every table of the paper, at each scale, as Markdown, CSV and LaTeX.

python -m scripts.tables [--results results]
"""

import argparse
import sys
from pathlib import Path

from scripts.entry import ran, write_all
from scripts.tables.pages import files, pages
from scripts.tables.settings import Source


def main() -> int:
    """Write them all, or none; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=Path("results"), help="the folder with runs/ and paper.yaml")
    results = parser.parse_args().results
    made = files(pages(Source(results)))
    write_all(results / "tables", made)
    print(f"{len(made)} files in {results / 'tables'}")
    return 0


if __name__ == "__main__":
    sys.exit(ran(main))
