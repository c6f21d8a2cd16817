"""`make figures`: every picture that there are records for, as SVG and PNG; without new records no byte changes.

python -m scripts.figures [--results results]
"""

import argparse
import sys
from pathlib import Path

from scripts.entry import ran
from scripts.figures.every import pictures
from scripts.tables.settings import Source
from train.errors import UserError


def main() -> int:
    """Draw what there are records for; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=Path("results"), help="the folder with runs/")
    results = parser.parse_args().results
    found = pictures(Source(results))
    if not found:
        raise UserError(f"nothing to draw under {results / 'runs'}: run a row, then make collect")
    folder = results / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    for picture in found:
        for path in picture.write(folder):
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(ran(main))
