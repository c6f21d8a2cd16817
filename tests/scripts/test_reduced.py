"""`make reduced`: its plan is what the commands run, one row's failure stops no other, Ctrl-C ends it cleanly."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import REPOSITORY

from scripts import reduced, reduced_plan
from scripts.reduced_plan import METHODS, Row, estimate, missing, rows, took
from tests.scripts.recorded import told
from train.compose import distinguishing, expand, options, resolve
from train.errors import FAILED, RESUME, USAGE
from train.folder import run_folder


def test_every_reduced_experiment_of_a_row_is_in_the_plan():
    planned = {row.experiment for row in rows(books=True)}
    reduced_ones = {name for name in options("experiment") if name.startswith("reduced/")}
    # The demo, the task outside the mean of nine, and the study, which has a plan of its own.
    outside = {name for name in reduced_ones if name.split("/")[1].startswith(("digits", "glue_wnli", "evidence"))}
    assert planned == reduced_ones - outside


@pytest.mark.parametrize("name", ["ablation-lambda", "ablation-layernorm", "glue-pretrain", "glue-cola"])
def test_the_folders_of_the_plan_are_those_of_its_command(tmp_path, name):
    """`make reduced` looks at folders without composing a config for each: they must be the right ones."""
    [row] = [row for row in rows(books=False) if row.name == name]
    module, flag, *words = row.command([3], 2, [f"output_root={tmp_path}"])
    assert (module, flag) == ("train", "-m")
    made = {run_folder(resolve(run), distinguishing(run)) for run in expand(words)}
    seed = 0 if row.once else 3
    assert made == {tmp_path / row.experiment / tag / f"seed{seed}" for tag in row.tags}
    assert row.asked([3]) == [(tag, seed) for tag in row.tags]


def record(root, experiment, tag, seed, seconds, status="complete"):
    folder = root / experiment / tag / f"seed{seed}"
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps(told(experiment, seed, status, seconds=seconds)))


def test_the_estimate_takes_the_same_setting_first_and_says_what_it_does_not_know(tmp_path):
    row = Row("x", "reduced/x", tags=("baseline", "svd-lam1"))
    record(tmp_path, "reduced/x", "baseline", 0, 10.0)
    record(tmp_path, "reduced/x", "baseline", 1, 20.0)
    record(tmp_path, "reduced/x", "svd-lam1", 0, 60.0, "failed")
    left = missing(row, [0, 1, 2], tmp_path)
    assert left == [("baseline", 2), ("svd-lam1", 0), ("svd-lam1", 1), ("svd-lam1", 2)]
    known = took("reduced/x", (tmp_path,))
    assert estimate(left, known) == (15.0 + 3 * 15.0, 0)
    record(tmp_path, "reduced/x", "svd-lam1", 7, 30.0)
    assert estimate(left, took("reduced/x", (tmp_path,))) == (15.0 + 3 * 30.0, 0)
    assert estimate(left, {}) == (0.0, 4)


@pytest.fixture
def three_rows(monkeypatch, tmp_path):
    """Three rows, one without data, in an empty place; no command is run, but taken down, and that of `one` fails."""
    wanted = [Row(name, f"reduced/{name}", tags=("baseline",)) for name in ("one", "two", "three")]
    monkeypatch.delenv("DATA_ROOT", raising=False)
    monkeypatch.setattr(reduced, "rows", lambda books: wanted)
    monkeypatch.setattr(reduced, "absent", lambda row, words: "two is not there" if row.name == "two" else None)
    for module in (reduced, reduced_plan):
        monkeypatch.setattr(module, "RECORDS", tmp_path / "records")
    ran = []

    def run(self, words):
        ran.append(words)
        return 1 if "experiment=reduced/one" in words else 0

    monkeypatch.setattr(reduced.Commands, "run", run)
    return ran, [f"output_root={tmp_path / 'outputs'}"]


def test_a_row_that_fails_or_lacks_data_stops_no_other_and_is_named(three_rows, capsys):
    ran, words = three_rows
    assert reduced.main(words) == FAILED
    modules = [command[0] for command in ran]
    assert modules == ["train", "train", "scripts.tables", "scripts.figures", "scripts.report"]
    assert ran[1][2] == "experiment=reduced/three"
    assert {"seed=0,1,2", "runtime.jobs=2", *words} <= set(ran[1])
    said = capsys.readouterr()
    assert said.err.splitlines() == ["not done: two: two is not there", "not done: one: status 1, said above"]
    assert "two is not there" in said.out
    assert "6 runs of which there is no record" in said.out


def test_what_a_row_needs_is_made_first_and_a_row_without_it_is_not_run(three_rows, monkeypatch, tmp_path, capsys):
    ran, words = three_rows
    monkeypatch.setattr(reduced, "rows", lambda books: rows(books))
    root = str(tmp_path / "outputs")
    only = ["--only", "lra-listops,coco-xcit,glue-pretrain", "--seeds", "0", "--jobs", "1"]
    assert reduced.main([*words, *only]) == 0
    first, text = ["scripts.make_set", "lra_listops_short", "--output-root", root], "experiment=reduced/glue_pretrain"
    assert [command for command in ran if command[0] == "scripts.make_set"] == [first]
    assert ["scripts.make_corpus", text, "dataset=text_made", *words] in ran
    assert ran.index(["scripts.make_shapes", *words]) + 1 == ran.index(
        ["train", "-m", "experiment=reduced/coco_xcit", *METHODS, "seed=0", "runtime.jobs=1", *words]
    )
    ran.clear()
    monkeypatch.setattr(reduced.Commands, "run", lambda self, words: ran.append(words) or 2)
    assert reduced.main([*words, *only]) == FAILED
    assert "train" not in [command[0] for command in ran]
    assert "not done: lra-listops: status 2" in capsys.readouterr().err


def test_what_is_complete_is_not_run_and_a_dry_run_runs_nothing(three_rows, tmp_path, capsys):
    ran, words = three_rows
    for seed in (0, 1):
        record(tmp_path / "outputs", "reduced/three", "baseline", seed, 60.0)
    assert reduced.main([*words, "--dry", "--seeds", "0,1,2", "--only", "three"]) == 0
    assert ran == []
    assert "3 runs, 2 complete, 0:30" in capsys.readouterr().out  # a minute, two at a time
    assert not (tmp_path / "records").exists()
    assert reduced.main([*words, "--seeds", "0,1", "--only", "three"]) == 0
    assert [command[0] for command in ran] == ["scripts.tables", "scripts.figures", "scripts.report"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--seeds", "one"], "SEEDS=one"),
        (["--jobs", "0"], "JOBS=0"),
        (["--only", "imagenet-vti"], "did you mean 'imagenet-vit'"),
        (["data_rot=/x"], "data_root"),
    ],
)
def test_mistakes_are_one_line(capsys, words, says):
    assert reduced.main(words) == USAGE
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert says in said.err
    assert not said.out


CHILD = """
import signal, sys, time
from pathlib import Path
signal.signal(signal.SIGINT, lambda *_: (Path("saved").open("a").write("x"), sys.exit(75)))
Path("started").touch()
time.sleep(60)
"""
PARENT = """
import sys
from scripts.reduced import Commands
commands = Commands()
print(commands.run(["child"]), commands.run(["child"]), commands.asked)
"""


def test_ctrl_c_reaches_the_command_once_and_no_other_begins(tmp_path):
    (tmp_path / "child.py").write_text(CHILD)
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{REPOSITORY}:{tmp_path}"},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until = time.monotonic() + 120
    while not (tmp_path / "started").exists():
        assert parent.poll() is None
        assert time.monotonic() < until
        time.sleep(0.01)
    os.killpg(parent.pid, signal.SIGINT)  # as a terminal does
    said, _ = parent.communicate(timeout=60)
    assert said.split() == [str(RESUME), str(RESUME), "True"]
    assert (tmp_path / "saved").read_text() == "x"
