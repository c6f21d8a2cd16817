"""ListOps trees by LRA's recursion, drawn level by level for many trees at once.

The recursion: at depth below `max_depth` a node is an operator with probability 0.25, otherwise a leaf; at
`max_depth` it is a leaf. A leaf is a uniform digit. An operator is uniform over the four and has a uniform number of
arguments from 2 to `max_args`, each a node one level deeper. Only trees with min_length < length < max_length stay.

All nodes draw independently, so the order in which they draw does not matter: a level of 4,096 trees is drawn at
once. A tree is dropped as soon as its length so far, which can only grow, has reached `max_length`: exactly the trees
that would be rejected in the end. What stays is therefore distributed as in the recursion.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy

from scripts.generators.listops_language import CLOSE, DIGITS, OPERATORS, apply
from train.errors import UserError

TREES = 4096  # drawn at once
HOPELESS = 500  # batches in a row without a single tree of the wanted length
OPERATOR = 0.25  # the probability of an operator


@dataclass(frozen=True)
class Shape:
    """Which trees are drawn and kept; the bounds on the length are strict. Defaults: LRA's."""

    min_length: int = 500
    max_length: int = 2000
    max_depth: int = 10
    max_args: int = 10


Level = tuple[list[int], list[int]]  # of one tree: each node's number of arguments (0: leaf), and digit or operator


def draw(random: numpy.random.Generator, shape: Shape) -> list[list[Level]]:
    """Those of `TREES` fresh trees that have the wanted length, each as its levels from the root down."""
    owner = numpy.arange(TREES)
    length = numpy.zeros(TREES, dtype=numpy.int64)
    levels = []
    for depth in range(1, shape.max_depth + 1):
        operator = (
            random.random(len(owner)) < OPERATOR if depth < shape.max_depth else numpy.zeros(len(owner), dtype=bool)
        )
        arity = numpy.where(operator, random.integers(2, shape.max_args + 1, len(owner)), 0)
        length += numpy.bincount(owner, minlength=TREES)  # a leaf is one token; an operator two, with what closes it
        length += numpy.bincount(owner[operator], minlength=TREES)
        levels.append((owner, arity))
        children = numpy.repeat(owner, arity)
        owner = children[length[children] < shape.max_length]
        if not len(owner):
            break
    kept = numpy.flatnonzero((shape.min_length < length) & (length < shape.max_length))
    trees: list[list[Level]] = [[] for _ in kept]
    for owner, arity in levels:
        stays = numpy.isin(owner, kept)
        owner, arity = owner[stays], arity[stays]
        symbol = numpy.where(
            arity > 0, random.integers(len(OPERATORS), size=len(owner)), random.integers(10, size=len(owner))
        )
        # Children keep their parents' order, so that a tree's nodes on a level lie in a row, from left to right.
        starts = numpy.searchsorted(owner, kept, "left")
        stops = numpy.searchsorted(owner, kept, "right")
        for tree, start, stop in zip(trees, starts, stops, strict=True):
            tree.append((arity[start:stop].tolist(), symbol[start:stop].tolist()))
    return trees


def written(tree: list[Level]) -> tuple[str, int]:
    """An expression as LRA writes it, and its value."""
    # A walk from left to right meets the nodes of every level in their order.
    nodes = [zip(*level, strict=True) for level in tree]
    parts: list[str] = []

    def walk(depth: int) -> int:
        arity, symbol = next(nodes[depth])
        if not arity:
            parts.append(DIGITS[symbol])
            return symbol
        parts.append("( " * (arity + 1) + OPERATORS[symbol])
        values = []
        for _ in range(arity):
            values.append(walk(depth + 1))
            parts.append(")")
        parts.append(f"{CLOSE} )")
        return apply(OPERATORS[symbol], values)

    value = walk(0)
    return " ".join(parts), value


def expressions(random: numpy.random.Generator, shape: Shape) -> Iterator[tuple[str, int]]:
    """Expressions and their values without end.

    Raises:
        UserError: trees of the wanted length are too rare to be found by drawing.
    """
    barren = 0
    while barren < HOPELESS:
        trees = draw(random, shape)
        barren = 0 if trees else barren + 1
        yield from map(written, trees)
    raise UserError(
        f"none of {HOPELESS * TREES:,} trees has more than {shape.min_length} and fewer than {shape.max_length} "
        "tokens: widen --min-length/--max-length, or allow a larger --max-depth or --max-args"
    )
