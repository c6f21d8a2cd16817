"""Everything about a paddle that depends on its direction alone, drawn once and looked up.

A direction is a number: 0..359 are the integer degrees of a seed's paddle, which starts at the contour's tip and
points into it; 360 + k is the k-th candidate of growth, whose paddle starts at the candidate pixel and points back
to the pivot. Coordinates are (row, column); an angle a moves by (sin a, cos a). Images lie in arrays with `PAD` more
pixels on every side, so that no stamp is cut, and are indexed flat.
"""

import math
from dataclasses import dataclass

import numpy
from PIL import Image, ImageDraw

from scripts.generators.pathfinder_settings import FREE, MARGIN, MARKER, PADDLE, SCALE, SIZE, THICKNESS

REACH = PADDLE + MARGIN + 1  # pixels from a stamp's centre to its edge
PAD = REACH
SIDE = SIZE + 2 * PAD  # of the padded array
DEGREES = 360
RADIUS = PADDLE + MARGIN  # of the circle of candidates about the pivot


def flat(points: numpy.ndarray) -> numpy.ndarray:
    """Flat places in the padded array of points [..., 2] in image coordinates."""
    return (points[..., 0] + PAD) * SIDE + points[..., 1] + PAD


def moved(angles: numpy.ndarray, distance: float | numpy.ndarray) -> numpy.ndarray:
    """Displacements [..., 2] by a distance at angles in radians, free of the noise that 2·cos(90°) carries."""
    return numpy.round(numpy.stack([numpy.sin(angles), numpy.cos(angles)], -1) * numpy.asarray(distance)[..., None], 9)


def up(points: numpy.ndarray) -> numpy.ndarray:
    """Real coordinates rounded up to pixels."""
    return numpy.ceil(points).astype(numpy.int64)


def _square(radius: int) -> numpy.ndarray:
    """Flat displacements of a square of pixels, row by row."""
    rows, columns = numpy.mgrid[-radius : radius + 1, -radius : radius + 1]
    return (rows * SIDE + columns).ravel()


def _down(canvas: numpy.ndarray, side: int) -> numpy.ndarray:
    """A canvas at SCALE, 0 or 1, reduced by Lanczos: float32 [side * side] from 0 to 1."""
    image = Image.fromarray((255 * canvas).astype(numpy.uint8)).resize((side, side), Image.Resampling.LANCZOS)
    return numpy.asarray(image, dtype=numpy.float32).ravel() / 255


def _dilated(canvas: numpy.ndarray, radius: int) -> numpy.ndarray:
    """A 0/1 canvas dilated by a disc."""
    padded, result = numpy.pad(canvas, radius), numpy.zeros_like(canvas)
    side = len(canvas)
    for row in range(-radius, radius + 1):
        for column in range(-radius, radius + 1):
            if row * row + column * column <= radius * radius:
                result |= padded[radius + row : radius + row + side, radius + column : radius + column + side]
    return result


def _paddle(angle: float) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Image and mask of a paddle that starts at the stamp's centre."""
    middle = REACH * SCALE
    canvas = Image.new("L", (2 * middle + 1, 2 * middle + 1))
    row, column = (middle + moved(numpy.array(angle), PADDLE * SCALE)).tolist()
    width = round(THICKNESS * SCALE)
    ImageDraw.Draw(canvas).line([(middle, middle), (round(column), round(row))], fill=1, width=width)
    line = numpy.asarray(canvas)
    return _down(line, 2 * REACH + 1), _down(_dilated(line, MARGIN * SCALE), 2 * REACH + 1)


def _marker() -> numpy.ndarray:
    radius = MARKER * SCALE
    rows, columns = numpy.mgrid[-REACH * SCALE : REACH * SCALE + 1, -REACH * SCALE : REACH * SCALE + 1]
    return _down((rows**2 + columns**2 <= radius**2).astype(numpy.uint8), 2 * REACH + 1)


@dataclass(frozen=True)
class Stamps:
    """Tables by direction (D = 360 + K directions, K candidates, S pixels of a stamp)."""

    angles: numpy.ndarray  # [D] in which the contour goes on, radians
    image: numpy.ndarray  # float32 [D, S]
    mask: numpy.ndarray  # float32 [D, S]
    footprint: numpy.ndarray  # bool [D, S], what a seed must find free
    circle: numpy.ndarray  # int [K, 2], candidates about the pivot
    advance: numpy.ndarray  # int [D, 2], from a pivot to the next
    back: numpy.ndarray  # float [D, 2], from a paddle's start along it to its other end
    turn: numpy.ndarray  # float [D, K], a candidate's weight by its turn
    square: numpy.ndarray  # int [S], flat displacements of a stamp's pixels
    disc: numpy.ndarray  # int, flat displacements within the margin
    marker: numpy.ndarray  # float32 [S]


def stamps(continuity: float) -> Stamps:
    """Draw all tables; a tenth of a second."""
    samples = numpy.arange(round(2 * math.pi * RADIUS)) / RADIUS
    circle = numpy.unique(numpy.rint(moved(samples, RADIUS)).astype(numpy.int64), axis=0)
    outward = numpy.arctan2(circle[:, 0], circle[:, 1])
    degrees = numpy.radians(numpy.arange(DEGREES))
    angles = numpy.concatenate([degrees, outward])
    along = numpy.concatenate([degrees, outward + math.pi])  # from a paddle's start
    drawn = [_paddle(angle) for angle in along]
    difference = numpy.abs((angles[:, None] - outward + math.pi) % (2 * math.pi) - math.pi)
    square = _square(REACH)
    within = [
        row * SIDE + column
        for row in range(-MARGIN, MARGIN + 1)
        for column in range(-MARGIN, MARGIN + 1)
        if row * row + column * column <= MARGIN * MARGIN
    ]
    masks = numpy.stack([mask for _, mask in drawn])
    return Stamps(
        angles=angles,
        image=numpy.stack([image for image, _ in drawn]),
        mask=masks,
        footprint=masks >= FREE,
        circle=circle,
        advance=up(moved(angles, PADDLE + 2 * MARGIN)),
        back=moved(along, PADDLE),
        turn=numpy.cos(numpy.minimum(continuity * difference, math.pi / 2)) ** 2,
        square=square,
        disc=numpy.array(within),
        marker=_marker(),
    )
