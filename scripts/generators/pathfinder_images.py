"""Pathfinder images: two target contours, distractors, two markers. See pathfinder_settings.py for every number."""

import functools
from dataclasses import dataclass

import numpy

from scripts.generators.pathfinder_growth import Layers, draw, grow, merge, occupy, seeded, segments
from scripts.generators.pathfinder_settings import (
    BORDER,
    DISTRACTOR_CONTRAST,
    DISTRACTOR_TRIES,
    FREE,
    LEAST_FREE,
    SEED_DISTANCE,
    SIZE,
    TARGET_CONTRAST,
    Pathfinder,
)
from scripts.generators.pathfinder_stamps import DEGREES, PAD, REACH, SIDE, Stamps, flat, moved, stamps, up
from train.errors import UserError

ATTEMPTS = 512  # pairs of targets tried at once
HOPELESS = 40  # batches of attempts in a row without success


@dataclass
class Drawn:
    """N finished images and how they were made."""

    images: numpy.ndarray  # uint8 [N, SIZE, SIZE]
    labels: numpy.ndarray  # int [N], 1: both markers on one contour
    paths: numpy.ndarray  # float [N, 2 contours, L, 2 ends, (row, column)], in the order in which each contour runs
    markers: numpy.ndarray  # int [N, 2, (row, column)]
    distractors: numpy.ndarray  # int [N], how many found room


@functools.cache
def tables(continuity: float) -> Stamps:
    """The stamps, drawn once in a process."""
    return stamps(continuity)


def empty(count: int) -> Layers:
    """Black images, and masks with their border."""
    mask = numpy.zeros((count, SIDE, SIDE), dtype=numpy.float32)
    mask[:, PAD : PAD + SIZE, PAD : PAD + SIZE] = 1
    mask[:, PAD + BORDER : PAD + SIZE - BORDER, PAD + BORDER : PAD + SIZE - BORDER] = 0
    return Layers(numpy.zeros((count, SIDE * SIDE), dtype=numpy.float32), mask.reshape(count, -1))


def pairs(random: numpy.random.Generator, settings: Pathfinder) -> tuple[Layers, numpy.ndarray, numpy.ndarray]:
    """Try `ATTEMPTS` pairs of target contours and return those that succeeded.

    Returns:
        their layers, paths [N, 2, L, 2, 2], and tips int [N, 2 contours, (first, last), 2].
    """
    table, layers = tables(settings.continuity), empty(ATTEMPTS)
    # Nothing is drawn yet, so that the band about the border is all that the first seed has to keep to.
    first = random.integers(2 * SEED_DISTANCE, SIZE - 2 * SEED_DISTANCE, (ATTEMPTS, 2))
    one, fits = seeded(first, random.integers(DEGREES, size=ATTEMPTS))
    apart = numpy.radians(random.integers(DEGREES, size=ATTEMPTS))
    two, fits_too = seeded(up(first + moved(apart, SEED_DISTANCE)), random.integers(DEGREES, size=ATTEMPTS))
    rows = numpy.flatnonzero(fits & fits_too)
    for contour in (one, two):
        draw(contour, rows, layers, table, TARGET_CONTRAST)
    for _ in range(settings.contour_length - 1):
        if not len(rows):
            break
        for contour in (one, two):
            rows = grow(random, contour, rows, layers, table, TARGET_CONTRAST)
    rows = rows[(one.start[rows] != two.start[rows]).any(-1)]  # on a common last pixel the label would mean nothing
    occupy(two, rows, layers, table)  # of the first contour the last paddle stays out, as in the original
    paths = numpy.stack([segments(contour, rows, table) for contour in (one, two)], 1)
    tips = numpy.stack([numpy.stack([c.starts[0][rows], c.starts[-1][rows]], 1) for c in (one, two)], 1)
    return layers.of(rows), paths, tips


def occupied(mask: numpy.ndarray, directions: numpy.ndarray, table: Stamps) -> numpy.ndarray:
    """Where a paddle of each row's direction cannot start: bool [R, SIZE * SIZE], the mask dilated by its footprint."""
    taken = numpy.zeros((len(mask), SIZE, SIZE), dtype=bool)
    held = (mask >= FREE).reshape(-1, SIDE, SIDE)
    footprint = table.footprint[directions].reshape(-1, 2 * REACH + 1, 2 * REACH + 1)
    for row, column in numpy.argwhere(footprint.any(0)):
        taken |= held[:, row : row + SIZE, column : column + SIZE] & footprint[:, row, column][:, None, None]
    return taken.reshape(len(mask), -1)


def distractor(
    random: numpy.random.Generator, layers: Layers, settings: Pathfinder
) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Try one distractor in every row of `layers`, which it is drawn into.

    Returns:
        the rows where it succeeded; in the others the layers are spoilt; and the rows where too little is free.
    """
    table, count = tables(settings.continuity), len(layers.mask)
    degrees = random.integers(DEGREES, size=count)
    free = ~occupied(layers.mask, degrees, table)
    full = free.sum(1) < LEAST_FREE * SIZE * SIZE
    place = numpy.where(free, random.random(free.shape), -1).argmax(1)  # uniform over what is free
    contour, fits = seeded(numpy.stack(divmod(place, SIZE), 1), degrees)
    rows = numpy.flatnonzero(fits & ~full)
    draw(contour, rows, layers, table, DISTRACTOR_CONTRAST)
    for _ in range(settings.distractor_length - 1):
        rows = grow(random, contour, rows, layers, table, DISTRACTOR_CONTRAST)
    occupy(contour, rows, layers, table)
    return rows, numpy.flatnonzero(full)


def add_distractors(random: numpy.random.Generator, layers: Layers, settings: Pathfinder) -> numpy.ndarray:
    """Draw each row's distractors; one that fails every try is left out. Returns how many there are, int [N]."""
    count = len(layers.mask)
    found, full = numpy.zeros(count, dtype=numpy.int64), numpy.zeros(count, dtype=bool)
    for _ in range(settings.distractors):
        done = numpy.zeros(count, dtype=bool)
        for _ in range(DISTRACTOR_TRIES):
            todo = numpy.flatnonzero(~done & ~full)
            if not len(todo):
                break
            trial = layers.of(todo)
            drawn, crowded = distractor(random, trial, settings)
            layers.put(todo[drawn], trial, drawn)
            done[todo[drawn]], full[todo[crowded]] = True, True
        found += done
    return found


def stretched(images: numpy.ndarray) -> numpy.ndarray:
    """Each image's grey levels from its least to its largest, as uint8 0..255."""
    low, high = images.min((1, 2), keepdims=True), images.max((1, 2), keepdims=True)
    return numpy.rint((images - low) * (255 / (high - low))).astype(numpy.uint8)


def make(random: numpy.random.Generator, count: int, settings: Pathfinder) -> Drawn:
    """Draw `count` images.

    Raises:
        UserError: contours of this length do not fit.
    """
    table, found, barren = tables(settings.continuity), [], 0
    while sum(len(paths) for _, paths, _ in found) < count:
        attempt = pairs(random, settings)
        barren = 0 if len(attempt[1]) else barren + 1
        found += [attempt] if len(attempt[1]) else []
        if barren == HOPELESS:
            raise UserError(f"two contours of {settings.contour_length} paddles do not fit into {SIZE} x {SIZE} pixels")
    layers = Layers(*(numpy.concatenate([getattr(f[0], k) for f in found])[:count] for k in ("image", "mask")))
    paths, tips = (numpy.concatenate([f[i] for f in found])[:count] for i in (1, 2))
    distractors = add_distractors(random, layers, settings)
    rows = numpy.arange(count)
    which, labels = random.integers(2, size=count), random.integers(2, size=count)
    markers = numpy.stack([tips[rows, which, 0], tips[rows, numpy.where(labels, which, 1 - which), 1]], 1)
    for marker in (0, 1):
        places = flat(markers[:, marker])[:, None] + table.square
        merge(layers.image, rows, places, numpy.broadcast_to(table.marker, places.shape))
    window = layers.image.reshape(-1, SIDE, SIDE)[:, PAD : PAD + SIZE, PAD : PAD + SIZE]
    return Drawn(stretched(window), labels, paths, markers, distractors)
