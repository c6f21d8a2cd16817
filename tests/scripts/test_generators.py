"""The generated data sets: their distributions, labels and statistics; the same bytes however they came about."""

import importlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy
import pytest
from conftest import REPOSITORY
from PIL import Image
from scipy import ndimage, stats

from scripts import make_listops
from scripts.generators import pathfinder_images
from scripts.generators.listops_language import evaluate, tokens
from scripts.generators.listops_trees import Shape, draw, expressions
from scripts.generators.pathfinder_images import make
from scripts.generators.pathfinder_settings import SIZE, Pathfinder
from scripts.generators.topics import language
from scripts.generators.work import command
from train.data.lra import missing

SHORT = ["--min-length", "50", "--max-length", "150", "--max-depth", "6"]
TINY = ["--min-length", "0", "--max-length", "5", "--max-depth", "2", "--max-args", "2"]
DIGITS = ["--min-length", "0", "--max-length", "2", "--max-depth", "1"]
LISTOPS = ["make_listops", *SHORT, "--train", "500", "--val", "30", "--test", "30"]
PATHFINDER = ["make_pathfinder", "--images", "50", "--batch", "20"]
MANY_ROWS = ["make_listops", *SHORT, "--train", "1200", "--val", "30", "--test", "30"]
MANY_IMAGES = ["make_pathfinder", "--images", "140", "--batch", "20", "--contour-length", "6", "--distractors", "2"]
RETRIEVAL = ["make_retrieval", "--train", "300", "--eval", "20", "--test", "20"]


def arguments(words: list[str], out: Path, processes: int = 1) -> list[str]:
    return [sys.executable, "-m", f"scripts.{words[0]}", *words[1:], f"--out={out}", f"--processes={processes}"]


def generate(words: list[str], out: Path, processes: int = 1) -> subprocess.CompletedProcess:
    """A generator's command; that of one process runs in this one, which saves its start."""
    called = arguments(words, out, processes)
    if processes > 1:
        return subprocess.run(called, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
    said, complained = io.StringIO(), io.StringIO()
    with mock.patch.object(sys, "argv", called[2:]), redirect_stdout(said), redirect_stderr(complained):
        status = command(importlib.import_module(f"scripts.{words[0]}").main)
    return subprocess.CompletedProcess(called, status, said.getvalue(), complained.getvalue())


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def manifest(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())


def rows(folder: Path, split: str) -> list[list[str]]:
    return [line.split("\t") for line in (folder / f"basic_{split}.tsv").read_text().splitlines()[1:]]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> dict[str, Path]:
    """One small folder of each kind, made by one process."""
    root = tmp_path_factory.mktemp("made")
    for words in (LISTOPS, PATHFINDER, RETRIEVAL):
        done = generate(words, root / words[0])
        assert done.returncode == 0, done.stderr
    return {words[0]: root / words[0] for words in (LISTOPS, PATHFINDER, RETRIEVAL)}


@pytest.mark.parametrize("words", [LISTOPS, PATHFINDER, RETRIEVAL], ids=lambda words: words[0])
def test_the_number_of_processes_changes_no_byte(made, tmp_path, words):
    assert generate(words, tmp_path / "three", 3).returncode == 0
    assert content(tmp_path / "three") == content(made[words[0]])


@pytest.mark.parametrize("words", [LISTOPS, PATHFINDER, RETRIEVAL], ids=lambda words: words[0])
def test_a_complete_folder_is_left_alone_and_others_are_refused(made, tmp_path, words):
    folder = made[words[0]]
    before = content(folder)
    again = generate(words, folder)
    assert (again.returncode, again.stdout.startswith(f"{folder} is complete")) == (0, True)
    other = generate([*words, "--seed", "1"], folder)
    assert (other.returncode, other.stderr.count("\n")) == (2, 1)
    assert "seed: 0 there, 1 asked" in other.stderr
    assert content(folder) == before
    assert manifest(folder)["complete"]
    (tmp_path / "basic_train.tsv").write_text("someone's own")
    foreign = generate(words, tmp_path)
    assert (foreign.returncode, foreign.stderr.count("\n")) == (2, 1)
    assert "holds basic_train.tsv but no manifest.json" in foreign.stderr
    assert content(tmp_path) == {"basic_train.tsv": b"someone's own"}


def test_one_generators_folder_is_refused_by_another(made):
    refused = generate(PATHFINDER, made["make_listops"])
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "holds ListOps data, not Pathfinder" in refused.stderr


@pytest.mark.parametrize(
    ("words", "chunks", "final", "number"),
    [
        (MANY_ROWS, "parts/*.tsv", "basic_*.tsv", signal.SIGKILL),
        (MANY_ROWS, "parts/*.tsv", "basic_*.tsv", signal.SIGINT),
        (MANY_IMAGES, "metadata/*.npy", "sheet.png", signal.SIGKILL),
    ],
    ids=["listops-killed", "listops-interrupted", "pathfinder-killed"],
)
def test_what_was_stopped_is_unfinished_and_goes_on(tmp_path, words, chunks, final, number):
    """Killed or interrupted between chunks; the result is that of a run in one go."""
    folder = tmp_path / "stopped"
    kind = words[0].removeprefix("make_")
    process = subprocess.Popen(arguments(words, folder, 2), cwd=REPOSITORY, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(folder.glob(chunks)):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == (75 if number == signal.SIGINT else -signal.SIGKILL)
    assert "Traceback" not in said
    assert not manifest(folder)["complete"]
    assert not list(folder.glob(final))
    options = SimpleNamespace(name="x", kind=kind, folder="stopped")
    assert "is not finished" in missing(options, tmp_path)
    time.sleep(0.1)  # for the kernel to end the workers of a killed process
    there = {path: path.stat().st_mtime_ns for path in folder.glob(chunks)}
    done = generate(words, folder, 2)
    assert done.returncode == 0, done.stderr
    assert "are there already" in done.stderr
    assert missing(options, tmp_path) is None
    if kind == "pathfinder":  # the other's chunks are gone by now
        assert there.items() <= {path: path.stat().st_mtime_ns for path in folder.glob(chunks)}.items()
    if number == signal.SIGKILL:
        assert generate(words, tmp_path / "straight").returncode == 0
        assert content(folder) == content(tmp_path / "straight")
        assert not [name for name in content(folder) if name.endswith(".tmp")]


def test_two_processes_do_not_share_a_folder(tmp_path):
    words = ["make_pathfinder", "--images", "3000", "--batch", "100"]
    process = subprocess.Popen(arguments(words, tmp_path / "out"), cwd=REPOSITORY, stderr=subprocess.DEVNULL)
    try:
        while not (tmp_path / "out" / "manifest.json").exists():
            assert process.poll() is None
            time.sleep(0.005)
        second = generate(words, tmp_path / "out")
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert (second.returncode, second.stderr.count("\n")) == (2, 1)
    assert "another process is generating" in second.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["make_listops", "--max-args", "1"], "--max-args 2"),
        (["make_listops", "--max-depth", "2"], "widen --min-length/--max-length"),
        (["make_listops", *DIGITS, "--train", "18", "--val", "1", "--test", "1"], "only 10 different expressions"),
        (["make_pathfinder", "--contour-length", "200", "--distractors", "0"], "do not fit into 32 x 32"),
        (["make_pathfinder", "--images", "0"], "--images"),
        (["make_retrieval", "--topics", "1"], "--topics"),
    ],
)
def test_what_cannot_be_made_is_said_in_one_line(tmp_path, monkeypatch, words, says):
    monkeypatch.setattr(pathfinder_images, "HOPELESS", 3)
    monkeypatch.setattr(make_listops, "EXHAUSTED", 5)
    refused = generate(words, tmp_path / "out")
    assert refused.returncode == 2
    assert says in refused.stderr.splitlines()[-1]
    assert "Traceback" not in refused.stderr


def test_the_evaluator_agrees_with_the_original_test_set(data_root):
    count = 0
    for split in ("train", "val", "test"):
        for source, target in rows(data_root / "lra" / "listops-d20s", split):
            assert evaluate(source) == int(target)
            count += 1
    assert count == 10000


@pytest.mark.parametrize(
    ("source", "value"),
    [("7", 7), ("[MED 1 2 ]", 1), ("[MED 9 1 4 ]", 4), ("( ( ( [SM 8 ) 7 ) ] )", 5), ("[MAX [MIN 3 1 ] 0 ]", 1)],
)
def test_values_by_hand(source, value):
    assert evaluate(source) == value


@pytest.mark.parametrize("source", ["", "1 2", "[MIN ]", "[MIN 1", "[MIN 1 ] ]", "]", "12", "[SUM 1 ]"])
def test_what_is_no_expression_is_refused(source):
    with pytest.raises(ValueError):
        evaluate(source)


def naive(source: random.Random, shape: Shape, depth: int = 1) -> tuple[list[str], int]:
    """The recursion as described, token by token; the value by other means than the generator's."""
    u = source.random() if depth < shape.max_depth else 1
    if u > 0.25:
        digit = source.randrange(10)
        return [str(digit)], digit
    operator = source.choice(["[MIN", "[MAX", "[MED", "[SM"])
    found, values = [operator], []
    for _ in range(source.randint(2, shape.max_args)):
        more, value = naive(source, shape, depth + 1)
        found += more
        values.append(value)
    value = {"[MIN": min, "[MAX": max, "[MED": lambda v: int(numpy.median(v)), "[SM": lambda v: sum(v) % 10}[operator]
    return [*found, "]"], int(value(values))


@pytest.mark.parametrize(("shape", "count"), [(Shape(), 60), (Shape(4, 60, 4, 5), 1500), (Shape(10, 40, 5, 8), 500)])
def test_listops_has_the_distribution_of_the_naive_recursion(shape, count):
    """Lengths, values, operators and numbers of arguments of as many trees drawn both ways."""
    source, reference = random.Random(1), []
    while len(reference) < count:
        found, value = naive(source, shape)
        if shape.min_length < len(found) < shape.max_length:
            reference.append((found, value))
    stream = expressions(numpy.random.default_rng(2), shape)
    ours = [(tokens(written), value) for written, value in (next(stream) for _ in range(count))]
    lengths = [[len(found) for found, _ in trees] for trees in (ours, reference)]
    assert stats.ks_2samp(*lengths).pvalue > 0.005
    assert abs(numpy.mean(lengths[0]) - numpy.mean(lengths[1])) < 3 * numpy.std(lengths[1]) * (2 / count) ** 0.5
    counts = [Counter(value for _, value in trees) for trees in (ours, reference)]
    assert stats.chi2_contingency([[c[v] for v in range(10)] for c in counts]).pvalue > 0.005
    assert max(lengths[0]) < shape.max_length
    assert min(lengths[0]) > shape.min_length
    operators = [
        [sum(token in ("[MIN", "[MAX", "[MED", "[SM") for token in f) for f, _ in t] for t in (ours, reference)
    ]
    assert stats.ks_2samp(*operators).pvalue > 0.005


def test_operators_and_their_arguments_are_as_frequent_as_described():
    """At the root and below it, of 20,480 trees whose length excludes none: 0.25, and uniform from 2 to 10."""
    shape, stream = Shape(0, 10**6, 3, 10), numpy.random.default_rng(4)
    trees = [tree for _ in range(5) for tree in draw(stream, shape)]
    assert len(trees) == 20480
    for level, count in ((0, 20480), (1, 20000)):
        arity, symbol = numpy.concatenate([numpy.array(tree[level], int) for tree in trees if len(tree) > level], 1)
        operators = arity > 0
        assert len(arity) >= count
        assert stats.binomtest(int(operators.sum()), len(arity), 0.25).pvalue > 0.005
        assert stats.chisquare(numpy.bincount(arity[operators], minlength=11)[2:]).pvalue > 0.005
        assert stats.chisquare(numpy.bincount(symbol[operators], minlength=4)).pvalue > 0.005
        assert stats.chisquare(numpy.bincount(symbol[~operators], minlength=10)).pvalue > 0.005
    assert not any(any(tree[2][0]) for tree in trees if len(tree) > 2)


def test_listops_files_are_what_they_say(made):
    folder = made["make_listops"]
    said = manifest(folder)
    assert said["settings"]["min_length"] == 50
    seen = []
    for split, count in (("train", 500), ("val", 30), ("test", 30)):
        found, of = rows(folder, split), said["statistics"][split]
        lengths = [len(tokens(source)) for source, _ in found]
        assert len(found) == of["rows"] == count
        assert (min(lengths), max(lengths)) == (of["length"]["shortest"], of["length"]["longest"])
        assert of["length"]["median"] == numpy.median(lengths)
        assert of["length"]["mean"] == round(float(numpy.mean(lengths)), 1)
        assert of["labels"] == {str(v): sum(t == str(v) for _, t in found) for v in range(10)}
        assert of["majority"] == round(max(of["labels"].values()) / count, 4)
        assert all(evaluate(source) == int(target) for source, target in found)
        seen += [source for source, _ in found]
    assert len(set(seen)) == 560
    assert seen[0].startswith("( ( ( ")
    assert (folder / "basic_train.tsv").read_text().startswith("Source\tTarget\n")


def test_no_expression_comes_twice_in_any_split(tmp_path):
    """Of the 4·100 + 10 expressions of that shape nearly all are asked for."""
    words = ["make_listops", *TINY, "--train", "300", "--val", "10", "--test", "20"]
    assert generate(words, tmp_path / "a", 2).returncode == 0
    found = [source for split in ("train", "val", "test") for source, _ in rows(tmp_path / "a", split)]
    assert len(found) == len(set(found)) == 330


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


def test_pairs_are_about_what_their_label_says(made):
    """Who knows the topics' words tells every label; documents have the length and letters that were asked for."""
    topics = [set(words) for words in language(0, 8).topics]
    labels = []
    for split, count in (("train", 300), ("eval", 20), ("test", 20)):
        lines = (made["make_retrieval"] / f"new_aan_pairs.{split}.tsv").read_text().splitlines()
        assert len(lines) == count
        for line in lines:
            label, one, two, *texts = line.split("\t")
            assert one != two
            assert all(200 <= len(text.encode()) <= 1000 for text in texts)
            words = [text.lower().replace(".", "").split() for text in texts]
            guess = [max(range(8), key=lambda t, w=w: sum(word in topics[t] for word in w)) for w in words]
            assert float(label) == (guess[0] == guess[1])
            labels.append(float(label))
    assert stats.binomtest(int(sum(labels)), 340).pvalue > 0.01
