"""Contours that grow paddle by paddle, for many images at once.

What is drawn for one image depends on nothing of the others, so that growing them in step changes no distribution.

Shape legend: R rows (images that are still growing), K candidates, S pixels of a stamp, L paddles of a contour.
"""

from dataclasses import dataclass

import numpy

from scripts.generators.pathfinder_settings import LEAST_WEIGHT, OVERLAP, PADDLE, PADDLE_TRIES, SIZE
from scripts.generators.pathfinder_stamps import DEGREES, RADIUS, SIDE, Stamps, flat, moved, up


class Layers:
    """The image and the occupancy mask of every row: float32 [rows, SIDE * SIDE] each."""

    def __init__(self, image: numpy.ndarray, mask: numpy.ndarray) -> None:
        self.image, self.mask = image, mask

    def of(self, rows: numpy.ndarray) -> "Layers":
        """A copy of some rows."""
        return Layers(self.image[rows], self.mask[rows])

    def put(self, rows: numpy.ndarray, other: "Layers", chosen: numpy.ndarray) -> None:
        """Take over the chosen rows of another into `rows`."""
        self.image[rows], self.mask[rows] = other.image[chosen], other.mask[chosen]


def merge(layer: numpy.ndarray, rows: numpy.ndarray, places: numpy.ndarray, values_RS: numpy.ndarray) -> None:
    """Put one stamp into each row by maximum; places are flat stamp pixels [R, S]."""
    view, index = layer.reshape(-1), rows[:, None] * layer.shape[1] + places
    view[index] = numpy.maximum(view[index], values_RS)


@dataclass
class Contour:
    """The growing ends of one contour in each row, and where its paddles were drawn."""

    start: numpy.ndarray  # int [rows, 2], the newest paddle's start pixel
    direction: numpy.ndarray  # int [rows], the newest paddle's direction
    pivot: numpy.ndarray  # int [rows, 2]
    starts: list[numpy.ndarray]  # of all paddles so far, [rows, 2] each
    directions: list[numpy.ndarray]


def seeded(start: numpy.ndarray, degrees: numpy.ndarray) -> tuple[Contour, numpy.ndarray]:
    """A contour of one paddle that starts at its tip `start` [rows, 2]; and whether all of it is in the window."""
    angle = numpy.radians(degrees)
    head = up(start + moved(angle, PADDLE))
    pivot = up(head - moved(angle, RADIUS))
    inside = numpy.ones(len(start), dtype=bool)
    for points in (start, head, pivot):
        inside &= ((points >= 0) & (points < SIZE)).all(-1)
    return Contour(start.copy(), degrees.copy(), pivot, [start.copy()], [degrees.copy()]), inside


def draw(contour: Contour, rows: numpy.ndarray, layers: Layers, stamps: Stamps, contrast: float) -> None:
    """Draw the newest paddle into the image."""
    places = flat(contour.start[rows])[:, None] + stamps.square
    merge(layers.image, rows, places, stamps.image[contour.direction[rows]] * numpy.float32(contrast))


def occupy(contour: Contour, rows: numpy.ndarray, layers: Layers, stamps: Stamps) -> None:
    """Put the newest paddle into the mask."""
    places = flat(contour.start[rows])[:, None] + stamps.square
    merge(layers.mask, rows, places, stamps.mask[contour.direction[rows]])


def grow(
    random: numpy.random.Generator,
    contour: Contour,
    rows: numpy.ndarray,
    layers: Layers,
    stamps: Stamps,
    contrast: float,
) -> numpy.ndarray:
    """Add a paddle in each of `rows`; returns the rows where that succeeded.

    The paddle before it joins the mask only then: it lies too near to the new one to be in its way.
    """
    pivot = contour.pivot[rows] + stamps.advance[contour.direction[rows]]
    tips_RK2 = pivot[:, None] + stamps.circle
    inside = ((tips_RK2 >= 0) & (tips_RK2 < SIZE)).all(-1)
    places_RK = flat(numpy.clip(tips_RK2, 0, SIZE - 1))
    mask, first = layers.mask.reshape(-1), rows * SIDE * SIDE
    dilated_RK = mask[(first[:, None] + places_RK)[..., None] + stamps.disc].max(-1)
    weight = stamps.turn[contour.direction[rows]] * (1 - dilated_RK) * inside
    cumulative = weight.cumsum(1)
    chosen = numpy.full(len(rows), -1)
    todo = numpy.flatnonzero(cumulative[:, -1] >= LEAST_WEIGHT)
    for _ in range(PADDLE_TRIES):
        drawn = random.random(len(todo)) * cumulative[todo, -1]
        candidate = (cumulative[todo] <= drawn[:, None]).sum(1)
        stamp = (first[todo] + places_RK[todo, candidate])[:, None] + stamps.square
        fits = (mask[stamp] + stamps.mask[DEGREES + candidate]).max(1) < OVERLAP
        chosen[todo[fits]] = candidate[fits]
        todo = todo[~fits]
    grown = numpy.flatnonzero(chosen >= 0)
    rows, candidate = rows[grown], chosen[grown]
    occupy(contour, rows, layers, stamps)
    contour.pivot[rows] = pivot[grown]
    contour.start[rows] = tips_RK2[grown, candidate]
    contour.direction[rows] = DEGREES + candidate
    contour.starts.append(contour.start.copy())
    contour.directions.append(contour.direction.copy())
    draw(contour, rows, layers, stamps, contrast)
    return rows


def segments(contour: Contour, rows: numpy.ndarray, stamps: Stamps) -> numpy.ndarray:
    """Where the contour's paddles lie, in the order in which it runs: float [R, L, 2 ends, (row, column)]."""
    starts = numpy.stack(contour.starts, 1)[rows].astype(float)
    ends = starts + stamps.back[numpy.stack(contour.directions, 1)[rows]]
    found = numpy.stack([starts, ends], 2)
    found[:, 1:] = found[:, 1:, ::-1]  # a grown paddle is drawn from its far end
    return found
