"""Pathfinder: what is drawn, what the label says, and LRA's layout."""

from collections import Counter
from pathlib import Path

import numpy
import pytest
from generating import PATHFINDER, made_of, manifest
from PIL import Image
from scipy import ndimage, stats

from scripts.generators.pathfinder_images import make
from scripts.generators.pathfinder_settings import SIZE, Pathfinder


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> dict[str, Path]:
    return made_of(tmp_path_factory.mktemp("made"), PATHFINDER)


@pytest.fixture(scope="module")
def images():
    return make(numpy.random.default_rng(0), 250, Pathfinder())


def test_positives_and_negatives_are_balanced(images):
    assert stats.binomtest(int(images.labels.sum()), 250).pvalue > 0.01
    assert images.distractors.mean() > 4.5


def test_the_label_follows_from_walking_along_the_drawn_path(images):
    """From the first marker, paddle by paddle along lit pixels, to the contour's end: is the other marker there?"""
    walked = 0
    for image, label, paths, markers in zip(images.images, images.labels, images.paths, images.markers, strict=True):
        [path] = [path for path in paths if numpy.array_equal(path[0, 0], markers[0])]
        assert len(path) == 14
        for paddle in path:
            assert numpy.linalg.norm(paddle[1] - paddle[0]) == pytest.approx(2)
            between = paddle[0] + numpy.linspace(0, 1, 5)[:, None] * (paddle[1] - paddle[0])
            row, column = numpy.rint(between).astype(int).T
            assert image[row, column].min() > 15
            assert image[row, column].max() > 60
        joints = numpy.linalg.norm(path[1:, 0] - path[:-1, 1], axis=-1)
        assert joints[0] < 5.4  # a seed's three coordinates are rounded up, one after another
        assert joints[1:].max() < 3.1
        arrived = numpy.array_equal(path[-1, 1], markers[1])
        assert arrived == bool(label)
        if not arrived:
            [other] = [path for path in paths if not numpy.array_equal(path[0, 0], markers[0])]
            assert numpy.array_equal(other[-1, 1], markers[1])
        for row, column in markers:
            assert image[row, column] > 200
        walked += 1
    assert walked == 250


def test_the_pixels_alone_tell_the_label_where_the_contours_lie_apart():
    """Without distractors, where dilation closes every gap and leaves two pieces: are the discs in one of them?"""
    drawn = make(numpy.random.default_rng(3), 240, Pathfinder(contour_length=6, distractors=0))
    asked = Counter()
    for image, label, paths in zip(drawn.images, drawn.labels, drawn.paths, strict=True):
        one, two = (p.reshape(-1, 2) for p in paths)
        apart = numpy.linalg.norm(one[:, None] - two, axis=-1).min()
        if apart < 7:
            continue
        pieces, count = ndimage.label(ndimage.binary_dilation(image > 40, iterations=2), numpy.ones((3, 3)))
        bright, discs = ndimage.label(image > 240)
        if count != 2 or discs != 2:
            continue  # discs that touch, or a gap too wide to close
        centres = [numpy.rint(c).astype(int) for c in ndimage.center_of_mass(image, bright, [1, 2])]
        same = len({pieces[tuple(centre)] for centre in centres}) == 1
        assert same == bool(label)
        asked[int(label)] += 1
    assert min(asked[0], asked[1]) >= 10


def test_contours_keep_to_the_description(images):
    first, second = images.paths[:, 0, 0, 0], images.paths[:, 1, 0, 0]
    assert set(first.ravel().astype(int)) == {14, 15, 16, 17}
    distance = numpy.linalg.norm(second - first, axis=-1)
    assert distance.min() > 5.5
    assert distance.max() < 8.5
    heading = images.paths[..., 1, :] - images.paths[..., 0, :]
    turns = (heading[:, :, 2:] * heading[:, :, 1:-1]).sum(-1) / 4
    assert turns.min() > -1e-6  # never more than 90 degrees
    weights = turns**2
    assert 0.6 < weights.mean() < 0.95  # straighter than chance among what is allowed, as cos² has it
    assert images.paths.min() >= 0
    assert images.paths.max() < SIZE
    assert images.images.min(axis=(1, 2)).max() == 0
    assert images.images.max(axis=(1, 2)).min() == 255


def test_pathfinder_files_are_in_lras_layout(made):
    folder = made["make_pathfinder"]
    assert sorted(path.name for path in (folder / "metadata").iterdir()) == ["0.npy", "1.npy", "2.npy"]
    labels = []
    for batch, count in ((0, 20), (1, 20), (2, 10)):
        lines = (folder / "metadata" / f"{batch}.npy").read_text().splitlines()
        assert len(lines) == count == len(list((folder / "imgs" / str(batch)).iterdir()))
        drawn = make(numpy.random.default_rng([0, batch]), count, Pathfinder())
        for index, line in enumerate(lines):
            label = int(drawn.labels[index])
            assert line == f"imgs/{batch} sample_{index}.png {index} {label} 1.0 14 4 2 0.5 1 1"
            with Image.open(folder / "imgs" / str(batch) / f"sample_{index}.png") as image:
                assert image.mode == "L"
                assert numpy.array_equal(numpy.asarray(image), drawn.images[index])
            labels.append(label)
    assert manifest(folder)["statistics"] == {"images": 50, "positive": sum(labels)}
    with Image.open(folder / "sheet.png") as sheet:
        assert sheet.width > 8 * 4 * SIZE
