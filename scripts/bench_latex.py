"""Every committed LaTeX table compiles; a check for a machine that has pdflatex, so not one of the timed tests.

python -m scripts.bench_latex [results/tables]
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HEAD, TAIL = r"\documentclass{article}\usepackage{booktabs}\begin{document}", r"\end{document}"


def compiles(table: Path) -> bool:
    """Whether pdflatex takes a document that holds the table."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "t.tex").write_text(HEAD + table.read_text() + TAIL)
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
        return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0


def main() -> int:
    """Name each table that does not; 1 where there is one, 2 where nothing can be tried."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("results/tables"))
    tables = sorted(parser.parse_args().folder.glob("*.tex"))
    if not tables or not shutil.which("pdflatex"):
        print("error: pdflatex is not installed, or there is no .tex: make tables writes them", file=sys.stderr)
        return 2
    broken = [table for table in tables if not compiles(table)]
    for table in broken:
        print(f"error: {table} does not compile", file=sys.stderr)
    print(f"{len(tables) - len(broken)} of {len(tables)} compile")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
