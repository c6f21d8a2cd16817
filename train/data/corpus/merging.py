"""Parts to one file of sequences, in order or sorted by their full stops, without holding the corpus in memory.

Sequences have 0 to `length` full stops. A first pass counts how many of each there are in every part, which gives
each (count, part) its place in the result; a second pass copies block by block. Ties stay in the order of the text.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy

BLOCK = 1 << 15  # sequences in memory at a time


def merge(parts: list[Path], target: Path, length: int, full_stop: int | None) -> int:
    """Write all parts' sequences into `target`, which must not be there yet under its final name.

    Args:
        parts: files of uint16 [sequences, length].
        full_stop: the token to sort by, most first; None keeps the order.

    Returns:
        The number of sequences.
    """
    sizes = [part.stat().st_size // (2 * length) for part in parts]
    total = sum(sizes)
    with open(target, "wb") as file:
        file.truncate(total * 2 * length)
    if total:
        merged = numpy.memmap(target, numpy.uint16, "r+", shape=(total, length))
        if full_stop is None:
            done = 0
            for part in parts:
                for block in blocks(part, length):
                    merged[done : done + len(block)] = block
                    done += len(block)
        else:
            _sorted(parts, merged, full_stop)
        merged.flush()
        del merged
    with open(target, "rb") as file:
        os.fsync(file.fileno())
    return total


def _sorted(parts: list[Path], merged: numpy.memmap, full_stop: int) -> None:
    length = merged.shape[1]
    histogram = numpy.zeros((len(parts), length + 1), numpy.int64)
    for index, part in enumerate(parts):
        for block in blocks(part, length):
            histogram[index] += numpy.bincount((block == full_stop).sum(1), minlength=length + 1)
    most_first = histogram[:, ::-1].T.reshape(-1)  # ordered by count, then by part
    places = (numpy.cumsum(most_first) - most_first).reshape(length + 1, len(parts))[::-1].T
    for index, part in enumerate(parts):
        place = places[index].copy()
        for block in blocks(part, length):
            counts = (block == full_stop).sum(1)
            order = numpy.argsort(counts, kind="stable")
            starts = numpy.flatnonzero(numpy.diff(counts[order], prepend=-1))
            for group in numpy.split(order, starts[1:]):
                count = counts[group[0]]
                merged[place[count] : place[count] + len(group)] = block[group]
                place[count] += len(group)


def blocks(part: Path, length: int) -> Iterator[numpy.ndarray]:
    """A file's sequences, some at a time: uint16 [n, length]."""
    with open(part, "rb") as file:
        while content := file.read(BLOCK * 2 * length):
            yield numpy.frombuffer(content, numpy.uint16).reshape(-1, length)
