"""LRA's ListOps, generated: basic_{train,val,test}.tsv with columns Source and Target.

    python -m scripts.make_listops --out FOLDER [--seed 0] [--train 96000 --val 2000 --test 2000]
        [--min-length 500 --max-length 2000 --max-depth 10 --max-args 10] [--processes N]

Byte-identical for the same settings whatever the number of processes. Ctrl-C stops; the same command goes on. No
expression comes twice, in any split; as in LRA the first rows are for training, then validation, then test.
"""

import argparse
import dataclasses
import functools
import hashlib
import itertools
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy

from scripts.generators.folder import Claim, replacing, write_whole
from scripts.generators.listops_trees import Shape, expressions
from scripts.generators.work import Meter, command, cores, share_out
from train.errors import UserError

CHUNK = 250  # rows drawn from one seed
EXHAUSTED = 20  # chunks in a row that bring nothing new
VERSION = 1  # of what is drawn: another one makes other files from the same seed
HEADER = b"Source\tTarget\n"


def make_chunk(parts: Path, seed: int, shape: Shape, chunk: int) -> int:
    """Write one chunk of rows and return how many."""
    random = numpy.random.default_rng([seed, chunk])
    rows = itertools.islice(expressions(random, shape), CHUNK)
    write_whole(parts / f"{chunk:06}.tsv", "".join(f"{source}\t{value}\n" for source, value in rows).encode())
    return CHUNK


def unique_rows(parts: Path, seed: int, shape: Shape, chunks: int) -> Iterator[bytes]:
    """The rows in the order of the chunks, each expression once; more chunks are made where those are not enough."""
    seen, barren = set(), 0
    for chunk in itertools.count():
        if chunk >= chunks and not (parts / f"{chunk:06}.tsv").exists():
            make_chunk(parts, seed, shape, chunk)
        before = len(seen)
        with open(parts / f"{chunk:06}.tsv", "rb") as file:
            for row in file:
                digest = hashlib.blake2b(row, digest_size=16).digest()  # the target follows from the source
                if digest not in seen:
                    seen.add(digest)
                    yield row
        barren = 0 if len(seen) > before else barren + 1
        if barren == EXHAUSTED:
            raise UserError(f"only {len(seen)} different expressions were found: ask for fewer, or for longer ones")


def statistics(lengths: list[int], labels: Counter) -> dict:
    """What the manifest says of a split."""
    return {
        "rows": len(lengths),
        "length": {
            "shortest": min(lengths),
            "mean": round(sum(lengths) / len(lengths), 1),
            "median": float(numpy.median(lengths)),
            "longest": max(lengths),
        },
        "labels": {str(label): labels[label] for label in range(10)},
        "majority": round(max(labels.values()) / len(lengths), 4),
    }


def write_split(path: Path, rows: Iterator[bytes], count: int) -> dict:
    """Write a split's file and return its statistics."""
    lengths, labels = [], Counter()
    with replacing(path) as file:
        file.write(HEADER)
        for row in itertools.islice(rows, count):
            file.write(row)
            source, target = row.split(b"\t")
            lengths.append(source.count(b" ") + 1 - source.count(b"(") - source.count(b")"))
            labels[int(target)] += 1
    return statistics(lengths, labels)


def shown(splits: dict[str, dict]) -> str:
    """The statistics as a table."""
    lines = ["split     rows  length: shortest  median    mean  longest   labels 0..9, %"]
    for name, found in splits.items():
        length = found["length"]
        shares = " ".join(f"{100 * count / found['rows']:4.1f}" for count in found["labels"].values())
        lines.append(
            f"{name:6}{found['rows']:8,}{length['shortest']:18}{length['median']:8.0f}{length['mean']:8.1f}"
            f"{length['longest']:9}   {shares}"
        )
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="the folder to fill, such as lra/lra_release/listops-1000"
    )
    parser.add_argument("--seed", type=int, default=0)
    for split, rows in (("train", 96000), ("val", 2000), ("test", 2000)):
        parser.add_argument(f"--{split}", type=int, default=rows, help=f"rows ({rows})")
    for field in dataclasses.fields(Shape):
        parser.add_argument(
            f"--{field.name.replace('_', '-')}", type=int, default=field.default, help=f"({field.default})"
        )
    parser.add_argument("--processes", type=int, default=cores(), help="all cores; changes no byte")
    return parser.parse_args()


def fill(claim: Claim, options: argparse.Namespace, shape: Shape, sizes: dict[str, int]) -> None:
    """Make what the folder lacks."""
    parts = options.out / "parts"
    if claim.complete:
        shutil.rmtree(parts, ignore_errors=True)  # a kill may have come between the last two lines below
        print(f"{options.out} is complete\n{shown(claim.content['statistics'])}")
        return
    parts.mkdir(exist_ok=True)
    chunks = -(-sum(sizes.values()) // CHUNK)
    left = [chunk for chunk in range(chunks) if not (parts / f"{chunk:06}.tsv").exists()]
    task = functools.partial(make_chunk, parts, options.seed, shape)
    share_out(task, left, options.processes, Meter(chunks * CHUNK, (chunks - len(left)) * CHUNK, "rows"))
    rows = unique_rows(parts, options.seed, shape, chunks)
    splits = {split: write_split(options.out / f"basic_{split}.tsv", rows, count) for split, count in sizes.items()}
    print(shown(splits))
    claim.finish([f"basic_{split}.tsv" for split in sizes], **splits)
    shutil.rmtree(parts)


def main() -> None:
    """Fill the folder, or go on filling it."""
    options = arguments()
    shape = Shape(options.min_length, options.max_length, options.max_depth, options.max_args)
    sizes = {split: getattr(options, split) for split in ("train", "val", "test")}
    if min(sizes.values()) < 1 or options.processes < 1 or options.seed < 0:
        raise UserError("--train, --val, --test and --processes must be at least 1, --seed at least 0")
    if shape.max_depth < 1 or shape.max_args < 2 or shape.min_length < 0 or shape.max_length < shape.min_length + 2:
        raise UserError(
            "--max-depth is at least 1, --max-args 2, and a length lies between --min-length and --max-length"
        )
    settings = {"seed": options.seed, **sizes, **dataclasses.asdict(shape), "chunk": CHUNK, "version": VERSION}
    with Claim(options.out, "ListOps", settings) as claim:
        fill(claim, options, shape, sizes)


if __name__ == "__main__":
    sys.exit(command(main))
