"""Pairs of documents in the layout of LRA's Retrieval task, in a language of our own. This is not AAN.

    python -m scripts.make_retrieval --out FOLDER [--train 4000 --eval 500 --test 500] [--topics 8] [--seed 0]

Writes new_aan_pairs.{train,eval,test}.tsv: label (1.0: the two documents share their topic; 0.0: they do not), two
identifiers, two texts, separated by tabs, without header or quoting. LRA's own pairs (does one paper cite the other?)
come from the AAN corpus and cannot be generated; these try the row out where AAN is not to be had, and say nothing
about its accuracy. How documents are made: scripts/generators/topics.py. Byte-identical for the same settings.
"""

import argparse
import functools
import shutil
import sys
from pathlib import Path

import numpy

from scripts.generators.folder import Claim, replacing, write_whole
from scripts.generators.topics import language, pair
from scripts.generators.work import Meter, command, cores, share_out
from train.errors import UserError

CHUNK = 250  # pairs drawn from one seed
VERSION = 1  # of what is drawn: another one makes other files from the same seed
SPLITS = {"train": 4000, "eval": 500, "test": 500}


def make_chunk(parts: Path, settings: dict, tasks: list[tuple[str, int, int]], chunk: int) -> int:
    """Write one chunk of a split and return how many pairs it holds.

    Args:
        tasks: for each chunk its split, its first pair and its size.
    """
    split, first, count = tasks[chunk]
    words = language(settings["seed"], settings["topics"])
    random = numpy.random.default_rng([settings["seed"], 1, chunk])
    lines = []
    for index in range(first, first + count):
        label, one, two = pair(random, words, settings["shortest"], settings["longest"])
        lines.append(f"{label}.0\t{split}-{index}-a\t{split}-{index}-b\t{one}\t{two}\n")
    write_whole(parts / f"{chunk:06}.tsv", "".join(lines).encode())
    return count


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--out", type=Path, required=True, help="the folder to fill")
    parser.add_argument("--seed", type=int, default=0)
    for split, pairs in SPLITS.items():
        parser.add_argument(f"--{split}", type=int, default=pairs, help=f"pairs ({pairs})")
    parser.add_argument("--topics", type=int, default=8, help="(8)")
    parser.add_argument("--shortest", type=int, default=200, help="bytes of a document (200)")
    parser.add_argument("--longest", type=int, default=1000, help="(1000)")
    parser.add_argument("--processes", type=int, default=cores(), help="all cores; changes no byte")
    return parser.parse_args()


def fill(claim: Claim, options: argparse.Namespace, settings: dict, sizes: dict[str, int]) -> None:
    """Make what the folder lacks."""
    parts = options.out / "parts"
    if claim.complete:
        shutil.rmtree(parts, ignore_errors=True)
        print(f"{options.out} is complete")
        return
    parts.mkdir(exist_ok=True)
    tasks = [
        (split, first, min(CHUNK, size - first)) for split, size in sizes.items() for first in range(0, size, CHUNK)
    ]
    left = [chunk for chunk in range(len(tasks)) if not (parts / f"{chunk:06}.tsv").exists()]
    total = sum(sizes.values())
    task = functools.partial(make_chunk, parts, settings, tasks)
    share_out(task, left, options.processes, Meter(total, total - sum(tasks[chunk][2] for chunk in left), "pairs"))
    positive = {}
    for split in SPLITS:
        positive[split] = 0
        with replacing(options.out / f"new_aan_pairs.{split}.tsv") as file:
            for chunk, (of, _, _) in enumerate(tasks):
                if of == split:
                    content = (parts / f"{chunk:06}.tsv").read_bytes()
                    file.write(content)
                    positive[split] += sum(line.startswith(b"1") for line in content.splitlines())
        print(f"{split}: {sizes[split]:,} pairs, {positive[split]:,} on one topic")
    claim.finish([f"new_aan_pairs.{split}.tsv" for split in SPLITS], positive=positive)
    shutil.rmtree(parts)


def main() -> None:
    """Fill the folder, or go on filling it."""
    options = arguments()
    sizes = {split: getattr(options, split) for split in SPLITS}
    if min(*sizes.values(), options.processes) < 1 or options.seed < 0 or not 2 <= options.topics <= 100:
        raise UserError("--train, --eval, --test, --processes are at least 1, --seed 0, --topics from 2 to 100")
    if not 50 <= options.shortest <= options.longest:
        raise UserError("--shortest is at least 50 and at most --longest")
    settings = {key: getattr(options, key) for key in ("seed", "topics", "shortest", "longest")}
    settings |= {**sizes, "chunk": CHUNK, "version": VERSION}
    with Claim(options.out, "topic pairs", settings) as claim:
        fill(claim, options, settings, sizes)


if __name__ == "__main__":
    sys.exit(command(main))
