"""SLURM: the batch files, nodes that meet, and, where sbatch works, real jobs that are interrupted and requeued."""

import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from scripts.slurm import __main__ as command
from scripts.slurm.batch import Resources, batch, listed, seconds
from tests.conftest import REPOSITORY, TINY
from train import checkpoint
from train.compose import distinguishing, resolve
from train.errors import UserError
from train.folder import run_folder


def slurm(*words, **environment):
    return subprocess.run(
        [sys.executable, "-m", "scripts.slurm", *words],
        cwd=REPOSITORY,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def options(text):
    """The #SBATCH options of a batch file."""
    lines = [line.removeprefix("#SBATCH --") for line in text.splitlines() if line.startswith("#SBATCH")]
    return dict(line.partition("=")[::2] for line in lines)


def test_the_batch_file_asks_for_what_was_asked(tmp_path):
    asked = Resources(nodes=2, devices=8, cpus=4, partition="gpu", time="1-00:00:00", at_once=3)
    text = batch("imagenet-vit", tmp_path, [["a=1"], ["a=2"]], asked, Path("python"), tmp_path)
    found = options(text)
    assert (found["nodes"], found["gpus-per-node"], found["cpus-per-task"]) == ("2", "8", "32")
    assert (found["partition"], found["time"], found["array"]) == ("gpu", "1-00:00:00", "1-2%3")
    assert found["signal"] == "USR1@300"
    assert "requeue" in found
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0
    alone = options(batch("x", tmp_path, [["a=1"]], Resources(gpus=False), Path("python"), tmp_path))
    assert "array" not in alone
    assert "gpus-per-node" not in alone


def test_words_survive_the_list_of_runs(tmp_path):
    """The batch file's own lines read them back: spaces, quotes, commas and brackets."""
    words = ["data_root=/a b/it's", "model.args.depths=[2,2]", 'x="y z"', "lam=0,1"]
    text = batch("x", tmp_path, [["a"], words], Resources(), Path("python"), tmp_path)
    (tmp_path / "runs").write_text(listed([["a"], words]))
    [line] = [line for line in text.splitlines() if line.startswith("mapfile")]
    script = f"index=2\n{line}\nprintf '%s\\n' \"${{words[@]}}\""
    read = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout
    assert read.splitlines() == words
    assert shlex.split(listed([words])) == words


@pytest.mark.parametrize(
    "wrong",
    [
        {"time": "soon"},
        {"time": "5"},
        {"time": "0:04:00"},
        {"nodes": 0},
        {"partition": "a b"},
        {"account": "x\n#SBATCH --y"},
        {"warning": 0},
        {"at_once": 0},
        {"at_once": -1},
    ],
)
def test_what_sbatch_would_refuse_is_refused(tmp_path, wrong):
    with pytest.raises(UserError):
        batch("x", tmp_path, [["a"]], Resources(**wrong), Path("python"), tmp_path)


@pytest.mark.parametrize(
    ("time", "whole"),
    [("5", 300), ("5:30", 330), ("1:00:00", 3600), ("1-2", 93600), ("1-2:03", 93780), ("1-00:00:01", 86401), ("0", 0)],
)
def test_a_time_limit_is_read_as_sbatch_reads_it(time, whole):
    assert seconds(time) == whole


@pytest.mark.parametrize("name", ["with blank", "a%b", 'quo"te'])
def test_a_folder_that_sbatch_would_misread_is_refused(tmp_path, name):
    with pytest.raises(UserError, match="output_root"):
        batch("x", tmp_path / name, [["a"]], Resources(), Path("python"), tmp_path)


def test_results_of_a_run_without_a_finite_metric(tmp_path, capsys):
    words = ["experiment=reduced/digits_vit", f"output_root={tmp_path}"]
    folder = run_folder(resolve(words), distinguishing(words))
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text('{"status": "complete", "primary": "top1", "metrics": {"top1": null}}')
    (tmp_path / "runs").write_text(listed([words]))
    assert command.results(tmp_path) == 0
    assert "no finite metric" in capsys.readouterr().out
    (tmp_path / "runs").write_text("")
    with pytest.raises(UserError, match="empty"):
        command.results(tmp_path)


def test_a_damaged_list_of_runs_is_one_line(tmp_path):
    for content in (b"experiment='reduced", b"\xff\xfe"):
        (tmp_path / "runs").write_bytes(content)
        with pytest.raises(UserError, match=r"runs is damaged \(.*\): submit again"):
            command.results(tmp_path)


def test_a_submission_of_no_run_is_refused():
    with pytest.raises(UserError, match="asks for no run"):
        command.submit(command.submission(["experiment=reduced/imagenet_vit", "seed=range(0,0)", "--dry"]))


def test_mistakes_are_found_before_anything_is_submitted(tmp_path):
    for words, said in (
        (["experiment=reduced/digits_vti"], "did you mean 'reduced/digits_vit'"),
        (["experiment=reduced/digits_vit", "--nodes", "3"], "not divisible"),
        (["experiment=reduced/digits_vit", "--nodes", "0"], "at least 1"),
        (["experiment=paper/imagenet_vit", f"data_root={tmp_path}"], "imagenet"),
    ):
        answer = slurm("submit", *words, f"output_root={tmp_path / 'outputs'}", DATA_ROOT="")
        assert answer.returncode == 2
        assert said in answer.stderr
        assert "Traceback" not in answer.stderr
    assert not (tmp_path / "outputs").exists()


def weights(words):
    folder = run_folder(resolve(words), distinguishing(words))
    return checkpoint.load(checkpoint.checkpoints(folder)[-1])["model"]


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def test_two_nodes_train_what_one_with_as_many_devices_trains(tmp_path):
    """Two groups of workers on this machine that meet as two nodes would."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    nodes = [*TINY, "schedule.steps=6", "evaluate.steps=6", f"output_root={tmp_path / 'nodes'}"]
    devices = [*TINY, "schedule.steps=6", "evaluate.steps=6", f"output_root={tmp_path / 'devices'}"]
    shared = {"SPECATTN_NODES": "2", "SPECATTN_RENDEZVOUS": f"localhost:{port}", "SLURMD_NODENAME": "localhost"}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "train", *nodes],
            cwd=REPOSITORY,
            env={**os.environ, **shared, "SPECATTN_NODE": str(node), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for node in range(2)
    ]
    said = [process.communicate(timeout=240)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0], said
    assert "results:" in said[0]
    assert "results:" not in said[1]
    alone = subprocess.run(
        [sys.executable, "-m", "train", *devices, "runtime.devices=2"], cwd=REPOSITORY, check=False, timeout=240
    )
    assert alone.returncode == 0
    assert same(weights(nodes), weights(devices))


def works():
    """Whether there is a cluster that takes jobs."""
    if shutil.which("sbatch") is None:
        return False
    return subprocess.run(["sinfo"], capture_output=True, check=False, timeout=30).returncode == 0


def state(job):
    """A job's line of squeue, or nothing once it has left the queue."""
    return subprocess.run(
        ["squeue", "--noheader", "--format=%T", "--jobs", job], capture_output=True, text=True, check=False
    ).stdout.split()


def wait(condition, seconds=200):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "the cluster took too long"
        time.sleep(0.5)


def submitted(answer):
    assert answer.returncode == 0, answer.stderr
    first = answer.stdout.splitlines()[0]
    return first.removeprefix("job ").partition(":")[0], Path(first.rpartition(" in ")[2])


CLUSTER = ["--cpu", "--devices", "1", "--cpus", "1", "--time", "10"]


@pytest.mark.skipif(not works(), reason="needs a SLURM cluster: sbatch is not there or takes no jobs")
def test_an_interrupted_job_requeues_itself_and_ends_as_if_it_had_not_been(tmp_path):
    long = [*TINY, "schedule.steps=300", "evaluate.steps=300", "dataset.train_size=1000"]
    words = [*long, f"output_root={tmp_path / 'cluster'}"]
    job, folder = submitted(slurm("submit", *words, *CLUSTER))
    log = folder / f"{job}-node0.log"
    wait(lambda: log.exists() and "training to step 300" in log.read_text())
    time.sleep(1)
    subprocess.run(["scancel", "--signal=USR1", job], check=True)
    wait(lambda: state(job) == ["PENDING"])
    assert "the same command goes on from there" in log.read_text()
    # A requeued job waits two minutes by default.
    subprocess.run(["scontrol", "update", f"JobId={job}", "StartTime=now"], check=True)
    wait(lambda: not state(job))
    assert "start 1:" in (folder / f"{job}.log").read_text()
    alone = [*long, f"output_root={tmp_path / 'alone'}"]
    subprocess.run([sys.executable, "-m", "train", *alone], cwd=REPOSITORY, check=True, timeout=240)
    assert same(weights(words), weights(alone))


@pytest.mark.skipif(not works(), reason="needs a SLURM cluster: sbatch is not there or takes no jobs")
def test_an_array_of_which_one_fails_ends_with_the_others_results_and_its_name(tmp_path):
    words = [*TINY, "conditioning=identity", "conditioning.lam=0,0.1,0.3,1,3,1e30", f"output_root={tmp_path / 'o'}"]
    job, folder = submitted(slurm("submit", *words, *CLUSTER))
    wait(lambda: not state(job))
    answer = slurm("results", str(folder))
    assert answer.returncode == 1
    *lines, last = answer.stdout.splitlines()
    assert last == "6 runs, 1 failed"
    assert sum(" top1 " in line for line in lines) == 5
    assert "identity-lam1e+30" in lines[-1]
    assert "diverged: step 1: the loss is" in lines[-1]
