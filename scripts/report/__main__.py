"""`make report`: write the report from the records, tables and pictures; without new runs no byte changes.

python -m scripts.report [--results results] [--readme README.md]
"""

import argparse
import sys
from pathlib import Path

from scripts.entry import ran
from scripts.report.blocks import written
from scripts.report.document import documents
from scripts.tables.pages import pages
from scripts.tables.settings import Source
from train.errors import UserError
from train.record_files import write


def main() -> int:
    """Write the three files; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=Path("results"), help="the folder with runs/ and paper.yaml")
    parser.add_argument("--readme", type=Path, default=Path("README.md"), help="whose marked blocks are filled")
    chosen = parser.parse_args()
    if not chosen.readme.is_file():
        raise UserError(f"{chosen.readme} is not there: name it with --readme")
    source = Source(chosen.results)
    made = {chosen.results / name: text for name, text in documents(source, pages(source)).items()}
    made |= written(source, chosen.readme)
    for path, text in made.items():
        if not path.exists() or path.read_text() != text:
            write(path, text)
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(ran(main))
