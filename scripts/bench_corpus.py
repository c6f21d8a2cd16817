"""How fast text is packed by one process, and that its memory does not grow with the text.

    DATA_ROOT=<folder with text/gutenberg> python -m scripts.bench_corpus [--copies 1 4]

Packs the books (without a data root: the project's own text) once and several times over, with a vocabulary of
32,768 and 4,096, in a process each: megabytes of text a second of a core's time, and peak memory (of which the
imports alone take most).
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from train.data.corpus import made, making, packing, wordpiece
from train.data.corpus.documents import sources, units
from train.schema_language import Text


def one(folder: Path, vocabulary: int) -> str:
    """Train the tokenizer, pack every unit, and say how fast and with how much memory."""
    options = Text(name="bench", folder=str(folder), held_out_share=0.01, vocabulary=vocabulary, tokenizer_megabytes=6)
    listed = units(sources(options, None), options)
    tokenizer = wordpiece.trained(making._sample(listed, options), vocabulary)
    with tempfile.TemporaryDirectory() as parts:
        packing.prepare(packing.Job(options, Path(parts), tokenizer.to_str(), None))
        began = time.process_time()
        characters = sum(packing.pack(index, unit)["counts"]["characters"] for index, unit in enumerate(listed))
        seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    rate = characters / seconds / 1e6
    return f"{characters / 1e6:7.1f} MB  vocabulary {vocabulary:6}  {rate:5.2f} MB/s  {peak:5.0f} MiB"


def main() -> int:
    """Measure each size and vocabulary in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--copies", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        print(one(Path(chosen.one[0]), int(chosen.one[1])), flush=True)
        return 0
    with tempfile.TemporaryDirectory() as root:
        books = Path(os.environ.get("DATA_ROOT", "/nonexistent")) / "text" / "gutenberg"
        if not books.is_dir():
            books = Path(root) / "made"
            books.mkdir()
            made.make(books, 6)
        for copies in chosen.copies:
            folder = Path(root) / str(copies)
            folder.mkdir()
            for copy in range(copies):
                for path in books.glob("*.txt"):
                    shutil.copyfile(path, folder / f"{copy}-{path.name}")
            for vocabulary in (4096, 32768):
                command = [sys.executable, "-m", "scripts.bench_corpus", "--one", str(folder), str(vocabulary)]
                subprocess.run(command, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
