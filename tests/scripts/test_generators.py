"""What every generator promises: the same bytes however they came about, one-line refusals, going on after a stop."""

import os
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import REPOSITORY
from generating import LISTOPS, PATHFINDER, RETRIEVAL, SHORT, arguments, content, generate, made_of, manifest

from scripts import make_listops
from scripts.generators import pathfinder_images
from train.data.lra import missing

DIGITS = ["--min-length", "0", "--max-length", "2", "--max-depth", "1"]
MANY_ROWS = ["make_listops", *SHORT, "--train", "1200", "--val", "30", "--test", "30"]
MANY_IMAGES = ["make_pathfinder", "--images", "140", "--batch", "20", "--contour-length", "6", "--distractors", "2"]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> dict[str, Path]:
    return made_of(tmp_path_factory.mktemp("made"), LISTOPS, PATHFINDER, RETRIEVAL)


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
