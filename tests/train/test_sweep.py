"""Sweeps: how a run that failed is told of, and Ctrl-C while two runs go on."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from conftest import REPOSITORY, TINY

from train.errors import RESUME
from train.sweep import Job, end, report, run_all


def job(folder, code, said=None):
    """A run that has ended with `code`, after saying `said` to its file."""
    output = None if said is None else io.StringIO(said)
    config = SimpleNamespace(experiment="x")
    return Job([], config, folder, process=SimpleNamespace(returncode=code), output=output)


@pytest.mark.parametrize(
    ("code", "said", "error", "told"),
    [
        (1, "step 3\nTraceback\nValueError: later line", "ValueError: first line", "ValueError: first line"),
        (2, "warning\nerror: another process is running", "an older failure", "another process is running"),
        (1, "Segmentation\nModuleNotFoundError: x", None, "ModuleNotFoundError: x"),
        (-9, "training to step 12", "an older failure", "ended by SIGKILL"),
        (1, None, None, "said above"),
    ],
)
def test_a_failed_run_is_told_of_by_the_first_line_of_its_error(tmp_path, capsys, code, said, error, told):
    folder = tmp_path / "baseline" / "seed0"
    folder.mkdir(parents=True)
    if error:
        (folder / "summary.json").write_text(json.dumps({"status": "failed", "error": error}))
    ended = job(folder, code, said)
    end(ended, stopping=False)
    assert ended.outcome == f"failed (status {code}): {told}"
    good = job(tmp_path / "svd-lam1" / "seed0", 0)
    end(good, stopping=False)
    assert report([ended, good], interrupted=False) == 1
    *_, last, count = capsys.readouterr().out.splitlines()
    assert last.split() == ["x/baseline/seed0", *ended.outcome.split()]
    assert count.startswith("1 of 2 complete, 1 failed")


def test_what_is_settled_is_not_run_again(tmp_path, capsys):
    """The study's rule: a run that diverged is a result, it begins no second time and fails nothing."""
    jobs = []
    for status in ("complete", "diverged"):
        jobs.append(job(tmp_path / status / "seed0", None))
        jobs[-1].config.mode, jobs[-1].config.runtime = "train", SimpleNamespace(dry=False, jobs=2)
        jobs[-1].folder.mkdir(parents=True)
        held = {"status": status, "primary": "top1", "metrics": {"top1": 50.0}}
        (jobs[-1].folder / "summary.json").write_text(json.dumps(held))
    assert run_all(jobs, SimpleNamespace(asked=False), settled=("complete", "diverged")) == 0
    first, second, count = capsys.readouterr().out.strip().splitlines()
    assert first.split() == ["x/complete/seed0", "top1", "50.00"]
    assert second.split() == ["x/diverged/seed0", "diverged"]
    assert count == "1 of 2 complete, 0 failed; the same command does what is missing"


def test_ctrl_c_saves_the_runs_in_progress_and_begins_no_other(tmp_path):
    words = [*TINY, "schedule.steps=100000", "evaluate.steps=100000", f"output_root={tmp_path}"]
    sweep = subprocess.Popen(
        [sys.executable, "-m", "train", "-m", *words, "seed=0,1,2", "runtime.jobs=2"],
        cwd=REPOSITORY,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 240
    while len([path for path in tmp_path.rglob("metrics.jsonl") if '"train"' in path.read_text()]) < 2:
        assert sweep.poll() is None
        assert time.monotonic() < until
        time.sleep(0.1)
    sweep.send_signal(signal.SIGINT)
    said, complained = sweep.communicate(timeout=120)
    assert sweep.returncode == RESUME, complained
    assert said.count("stopped and saved") == 2
    assert said.count("not started") == 1
    assert "0 of 3 complete, 0 failed; the same command does what is missing" in said
    assert "Traceback" not in complained
    assert len(list(tmp_path.rglob("checkpoint-*.pt"))) == 2
    assert not list(tmp_path.rglob("seed2/*"))
