"""Several processes: the same result as one, stopped together, and none left behind."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid

import pytest
import torch
from conftest import REPOSITORY, TINY, command_line

from train import checkpoint
from train.command import main
from train.compose import distinguishing, resolve
from train.errors import DIVERGED, FAILED, RESUME
from train.folder import run_folder
from train.record_files import read_metrics

LONG = ["schedule.steps=100000", "evaluate.steps=100000", "runtime.log_steps=1", "ema.decay=0.9"]


def rank_of(pid):
    """The rank that an elastic worker was given; None for another process."""
    with open(f"/proc/{pid}/environ", "rb") as file:
        found = re.search(rb"\0RANK=(\d)", file.read())
    return found and int(found[1])


def folder_of(words):
    return run_folder(resolve(words), distinguishing(words))


def run_to_its_end(words):
    """In this process where one device is enough: starting another takes seconds."""
    return command_line(*words).returncode if "runtime.devices=2" in words else main(words)


def losses(folder):
    return [event["loss"] for event in read_metrics(folder / "metrics.jsonl") if event["event"] == "train"]


class Started:
    """A run in the background whose descendants carry a mark in their environment."""

    def __init__(self, words, *before):
        self.mark = f"SPECATTN_TEST={uuid.uuid4().hex}"
        environment = dict(os.environ, OMP_NUM_THREADS="1", **dict([self.mark.split("=")]))
        environment.pop("DATA_ROOT", None)
        self.process = subprocess.Popen(
            [sys.executable, *before, "-m", "train", *words],
            cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.folder = folder_of(words)

    def reach(self, step, seconds=90):
        """Wait until a step is recorded."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            events = read_metrics(self.folder / "metrics.jsonl")
            if events and events[-1]["step"] >= step:
                return
            time.sleep(0.05)
        raise AssertionError(f"step {step} was not reached: {self.process.communicate()[1]}")

    def alive(self):
        """The process ids that still carry the mark."""
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    with open(f"/proc/{entry}/environ", "rb") as file:
                        marked = self.mark.encode() in file.read()
                    with open(f"/proc/{entry}/stat") as file:
                        zombie = file.read().rsplit(")", 1)[1].split()[0] == "Z"
                except OSError:
                    continue
                if marked and not zombie:
                    found.append(int(entry))
        return found

    def nothing_left_within(self, seconds):
        end = time.monotonic() + seconds
        while (left := self.alive()) and time.monotonic() < end:
            time.sleep(0.1)
        names = [open(f"/proc/{pid}/cmdline").read().replace("\0", " ") for pid in left]  # noqa: SIM115
        assert not left, names


def test_two_workers_and_accumulation_give_one_workers_losses(tmp_path):
    found = {}
    for name, words in {
        "one": [],
        "two": ["runtime.devices=2"],
        "parts": ["runtime.devices=2", "runtime.micro_batch=4"],
    }.items():
        words = [*TINY, "conditioning=svd", "dataset.pad=1", f"output_root={tmp_path / name}", *words]
        assert run_to_its_end(words) == 0
        found[name] = losses(folder_of(words))
    assert len(found["one"]) == 4
    assert found["two"] == pytest.approx(found["one"], rel=1e-5)
    assert found["parts"] == pytest.approx(found["one"], rel=1e-5)


def test_one_checkpoint_evaluated_by_one_two_and_three_workers(tmp_path):
    words = [*TINY, "conditioning=svd", f"output_root={tmp_path}"]
    assert main(words) == 0
    best = folder_of(words) / "best.pt"
    found = []
    for devices in (1, 2, 3):
        # 359 test digits, a prime number.
        ended = command_line(*words, "mode=evaluate", f"checkpoint={best}", f"runtime.devices={devices}")
        assert ended.returncode == 0, ended.stderr
        found.append(json.loads(ended.stdout))
    for other in found[1:]:
        for key in ("correct", "count", "top1", "top5"):
            assert other[key] == found[0][key]
        assert other["loss"] == pytest.approx(found[0]["loss"], abs=1e-6)


@pytest.mark.parametrize(
    ("number", "devices"), [(signal.SIGTERM, 2), (signal.SIGINT, 2), (signal.SIGUSR1, 2), (signal.SIGUSR1, 1)]
)
def test_a_signal_saves_on_all_ranks_and_leaves_nobody(tmp_path, number, devices):
    words = [*TINY, *LONG, f"runtime.devices={devices}", "runtime.wandb=offline", f"output_root={tmp_path}"]
    started = Started(words)
    started.reach(3)
    started.process.send_signal(number)
    _, err = started.process.communicate(timeout=60)
    assert started.process.returncode == RESUME, err
    started.nothing_left_within(5)
    assert "Traceback" not in err
    assert err.count("the same command goes on from there") == 1
    [path] = checkpoint.checkpoints(started.folder)
    step = checkpoint.load(path)["step"]
    assert step >= 3
    assert read_metrics(started.folder / "metrics.jsonl")[-1]["step"] == step
    assert json.loads((started.folder / "summary.json").read_text())["status"] == "stopped"


@pytest.mark.parametrize(("number", "devices"), [(signal.SIGUSR1, 2), (signal.SIGINT, 2), (signal.SIGINT, 1)])
@pytest.mark.parametrize("after", [0.2, 3.0])
def test_a_signal_while_a_run_starts_is_not_lost(tmp_path, number, devices, after):
    """Whether it comes while the launcher imports, or the workers, it ends with 75 and without a traceback."""
    started = Started([*TINY, *LONG, f"runtime.devices={devices}", f"output_root={tmp_path}"])
    time.sleep(after)
    started.process.send_signal(number)
    _, err = started.process.communicate(timeout=60)
    assert started.process.returncode == RESUME, err
    assert "Traceback" not in err
    started.nothing_left_within(5)


@pytest.mark.parametrize("devices", [1, 2])
def test_kill_9_of_the_launcher_leaves_nobody(tmp_path, devices):
    words = [*TINY, *LONG, f"runtime.devices={devices}", "runtime.wandb=offline", f"output_root={tmp_path}"]
    started = Started(words)
    started.reach(2)
    started.process.kill()
    started.process.communicate(timeout=30)
    started.nothing_left_within(5)


def test_a_worker_that_dies_stops_all_within_seconds(tmp_path):
    words = [*TINY, *LONG, "runtime.devices=2", f"output_root={tmp_path}"]
    started = Started(words)
    started.reach(2)
    [worker] = [pid for pid in started.alive() if rank_of(pid) == 1]
    began = time.monotonic()
    os.kill(worker, signal.SIGKILL)
    _, err = started.process.communicate(timeout=60)
    assert time.monotonic() - began < 15
    assert started.process.returncode == FAILED
    assert err.count("error: ") == 1
    assert "worker 1 was killed by SIGKILL" in err
    started.nothing_left_within(5)
    assert "SIGKILL" in json.loads((started.folder / "summary.json").read_text())["error"]


def test_a_workers_error_is_shown_once(tmp_path):
    words = [*TINY, "runtime.devices=2", f"output_root={tmp_path}", "model.args.nonsense=1"]
    ended = command_line(*words)
    assert ended.returncode == 2
    assert ended.stderr.count("nonsense") == 2  # the word and the arguments, in one line
    assert len(ended.stderr.splitlines()) == 1
    assert "nonsense" in json.loads((folder_of(words) / "summary.json").read_text())["error"]


def test_a_divergence_on_several_devices_is_told_once(tmp_path):
    words = [*TINY, "runtime.devices=2", f"output_root={tmp_path}", "conditioning=identity", "conditioning.lam=1e30"]
    ended = command_line(*words)
    assert ended.returncode == DIVERGED
    assert ended.stderr.count("error: ") == 1
    assert "step 1: the loss is nan; first in layer blocks.0.attn" in ended.stderr
    assert json.loads((folder_of(words) / "summary.json").read_text())["status"] == "diverged"


def test_torchrun_reaches_the_same_worker_and_a_second_process_is_kept_out(tmp_path):
    words = [*TINY, f"output_root={tmp_path / 'torchrun'}"]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    started = Started([*words, *LONG], *torchrun)
    started.reach(2)
    second = command_line(*words, *LONG)
    assert second.returncode == 2
    assert "another process is running" in second.stderr
    assert len(second.stderr.splitlines()) == 1
    for pid in started.alive():
        if pid != started.process.pid:
            os.kill(pid, signal.SIGTERM)
    started.process.communicate(timeout=60)
    assert len(checkpoint.checkpoints(started.folder)) == 1


@pytest.mark.parametrize("devices", [1, 2])
def test_killed_again_and_again_a_run_ends_as_if_left_alone(tmp_path, devices):
    """kill -9 in the midst of training, twice, then to the end: weights, average, optimizer and metrics are the same.

    `scripts/bench_kill.py` does it ten times at random moments.
    """
    options = ["schedule.steps=40", "ema.decay=0.9", "optimizer.clip_grad=1.0", "dataset.pad=1", "conditioning=svd"]
    ends = {}
    for name in ("alone", "killed"):
        words = [
            *TINY,
            *options,
            f"runtime.devices={devices}",
            "runtime.save_steps=3",
            f"output_root={tmp_path / name}",
        ]
        folder = folder_of(words)
        for step in (7, 22) if name == "killed" else ():
            started = Started(words)
            started.reach(step)
            started.process.kill()
            started.process.communicate()
            started.nothing_left_within(5)
        assert run_to_its_end(words) == 0
        sessions = json.loads((folder / "environment.json").read_text())["sessions"]
        assert all(session["bit_identical"] for session in sessions)
        events = read_metrics(folder / "metrics.jsonl")
        for event in events:
            event.pop("timing", None)
        ends[name] = checkpoint.load(checkpoint.checkpoints(folder)[-1]), events
    (one, events), (two, others) = ends["alone"], ends["killed"]
    assert events == others
    for part in ("model", "ema"):
        assert all(torch.equal(one[part][key], two[part][key]) for key in one[part])
    for index, state in one["optimizer"]["state"].items():
        for key, value in state.items():
            assert torch.equal(value, two["optimizer"]["state"][index][key])
