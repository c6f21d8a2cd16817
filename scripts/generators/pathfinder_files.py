"""Pathfinder in LRA's layout: imgs/<batch>/sample_<i>.png, metadata/<batch>.npy (text), and a sheet for a person.

A line of metadata: folder, file, index, label, continuity, contour length, distractor length, paddle length, paddle
thickness, margin, number of contrasts. A batch's metadata is written last: where it is there, so are its images.
"""

import io
import os
from pathlib import Path

import numpy
from PIL import Image, ImageDraw

from scripts.generators.folder import write_whole
from scripts.generators.pathfinder_images import make
from scripts.generators.pathfinder_settings import MARGIN, PADDLE, SIZE, THICKNESS, Pathfinder
from train.errors import WriteError

SHEET, ACROSS, ENLARGED = "sheet.png", 8, 4


def png(image: numpy.ndarray) -> bytes:
    """An 8-bit grey PNG."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG", compress_level=6)
    return buffer.getvalue()


def metadata(folder: Path, batch: int) -> Path:
    """The file that says that a batch is whole."""
    return folder / "metadata" / f"{batch}.npy"


def write_batch(folder: Path, seed: int, settings: Pathfinder, images: int, size: int, batch: int) -> int:
    """Draw and write one batch; returns how many images it holds.

    Args:
        images: of all batches together.
        size: of a batch; the last may be smaller.
    """
    drawn = make(numpy.random.default_rng([seed, batch]), min(size, images - batch * size), settings)
    place = folder / "imgs" / str(batch)
    rest = (
        f"{settings.continuity} {settings.contour_length} {settings.distractor_length} {PADDLE} {THICKNESS} {MARGIN} 1"
    )
    lines = []
    try:
        place.mkdir(parents=True, exist_ok=True)
        for index, (image, label) in enumerate(zip(drawn.images, drawn.labels, strict=True)):
            (place / f"sample_{index}.png").write_bytes(png(image))
            lines.append(f"imgs/{batch} sample_{index}.png {index} {label} {rest}\n")
        os.sync()  # the images before the file that vouches for them, also in a power cut
    except OSError as error:
        raise WriteError(f"cannot write below {place}: {error.strerror}; the same command goes on") from None
    write_whole(metadata(folder, batch), "".join(lines).encode())
    return len(lines)


def labels(folder: Path, batch: int) -> list[int]:
    """The labels of a batch that was written."""
    return [int(line.split()[3]) for line in metadata(folder, batch).read_text().splitlines()]


def write_sheet(folder: Path) -> None:
    """Enlarge the first images with their labels into one PNG, for a person to follow the contours."""
    found = labels(folder, 0)[: ACROSS * ACROSS]
    cell = SIZE * ENLARGED + 16
    sheet = Image.new("L", (ACROSS * cell, -(-len(found) // ACROSS) * (cell + 12)), 96)
    pen = ImageDraw.Draw(sheet)
    for index, label in enumerate(found):
        row, column = divmod(index, ACROSS)
        left, top = column * cell + 8, row * (cell + 12) + 20
        with Image.open(folder / "imgs" / "0" / f"sample_{index}.png") as image:
            sheet.paste(image.resize((SIZE * ENLARGED,) * 2, Image.Resampling.NEAREST), (left, top))
        pen.text((left, top - 14), f"{index}: {label} ({'connected' if label else 'not connected'})", fill=255)
    write_whole(folder / SHEET, png(numpy.asarray(sheet)))
