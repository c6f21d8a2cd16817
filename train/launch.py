"""From a checked config to worker processes, and from what they did to an exit status.

One device: the worker runs in this process. Several: torch's elastic launcher starts one process for each, which
reach the same `work`, as do processes that torchrun started itself.
"""

import os
import sys
import tempfile
import traceback
from pathlib import Path

from omegaconf import DictConfig

from train.errors import DIVERGED, FAILED, RESUME, USAGE, Diverged, Stopped, UserError, WriteError
from train.record_files import mark
from train.signals import StopFlag


def threads(config: DictConfig) -> int:
    """CPU threads for each device: `runtime.threads`, or the cores this process may use shared out."""
    devices = int(os.environ.get("LOCAL_WORLD_SIZE", config.runtime.devices))
    return config.runtime.threads or max(1, len(os.sched_getaffinity(0)) // devices)


def first_node() -> bool:
    """Whether this machine is the one that guards and describes the run's folder, where several share a run."""
    return node_count() == 1 or os.environ.get("SPECATTN_NODE", os.environ.get("SLURM_NODEID", "0")) == "0"


def node_count() -> int:
    """How many machines share this run; SPECATTN_RENDEZVOUS tells each where they meet."""
    return int(os.environ.get("SPECATTN_NODES", 1))


def is_worker() -> bool:
    """Whether an elastic launcher (ours or torchrun) started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def start(config: DictConfig, folder: Path, words: list[str], stop: StopFlag) -> int:
    """Run the workers that the config asks for; returns the exit status.

    Args:
        words: the command line that the config was composed from; workers are given the same.
        stop: what signals raise.
    """
    # What libraries read when they are imported. cuBLAS is deterministic only with this workspace.
    os.environ["OMP_NUM_THREADS"] = str(threads(config))
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if is_worker() or (config.runtime.devices == 1 and node_count() == 1):
        return work(config, folder, stop)
    from train.elastic import launch

    with tempfile.TemporaryDirectory(prefix="specattn-") as errors:
        status, error = launch(words, config.runtime.devices, Path(errors), stop)
    if error:
        print(error, file=sys.stderr)
        if config.mode == "train" and first_node():
            last = error.strip().splitlines()[-1].removeprefix("error: ")
            mark(folder, config, "diverged" if status == DIVERGED else "failed", last)
    return status


def work(config: DictConfig, folder: Path, stop: StopFlag) -> int:
    """What every process of a run does, however it was started; returns its exit status."""
    # Not at the top: a mistake in the command line should not wait seconds for these.
    import torch

    from train.distributed import join, leave
    from train.evaluation import evaluate
    from train.loop import train
    from train.record import Record

    torch.set_num_threads(threads(config))
    record = None
    status = 0
    try:
        place = join(config.runtime.device)
        record = Record(folder, config, place)
        if config.mode == "evaluate":
            evaluate(config, record, place)
        else:
            train(config, record, place, stop)
    except Stopped as stopped:
        status = RESUME
        if place.first:
            print(stopped, file=sys.stderr)
    except (Diverged, UserError) as error:
        status = DIVERGED if isinstance(error, Diverged) else USAGE
        report(config, folder, status, f"error: {error}", str(error))
    except WriteError as error:
        status = FAILED
        report(config, folder, status, f"error: {error}", str(error))
    except Exception as error:
        status = FAILED
        report(config, folder, status, traceback.format_exc(), f"{type(error).__name__}: {error}")
    left_behind = record is not None and not record.close()
    if is_worker() or left_behind:
        # Exit handlers of a process group whose peers are gone, or of W&B, may wait for ever.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    leave()
    return status


def report(config: DictConfig, folder: Path, status: int, text: str, line: str) -> None:
    """Say how this process failed: to the launcher, which shows the first of all workers' errors, or to people."""
    if errors := os.environ.get("SPECATTN_ERRORS"):
        if not line:  # another worker tells
            return
        (Path(errors) / os.environ["RANK"]).write_text(text)
        return
    if not line:
        line = "the loss is not finite on another worker"
    else:
        print(text, file=sys.stderr, flush=True)
    if config.mode == "train" and os.environ.get("RANK", "0") == "0":
        mark(folder, config, "diverged" if status == DIVERGED else "failed", line)
