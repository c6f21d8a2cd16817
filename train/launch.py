"""From a checked config to worker processes, and from what they did to an exit status."""

import os
import sys
import traceback
from pathlib import Path

from omegaconf import DictConfig

from train.errors import DIVERGED, FAILED, RESUME, USAGE, Diverged, Stopped, UserError
from train.record_files import scrubbed


def prepare_environment(config: DictConfig) -> None:
    """Set what libraries read when they are imported: threads, determinism on a GPU, no chatter."""
    threads = config.runtime.threads or max(1, len(os.sched_getaffinity(0)) // config.runtime.devices)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic only with it
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


def start(config: DictConfig, folder: Path) -> int:
    """Run the workers that the config asks for; returns the exit status."""
    prepare_environment(config)
    return work(config, folder)


def work(config: DictConfig, folder: Path) -> int:
    """What every process of a run does, however it was started; returns its exit status."""
    from train.distributed import join, leave
    from train.loop import train
    from train.record import Record

    place = join(config.runtime.device)
    record = Record(folder, config, place)
    status = 0
    try:
        train(config, record, place)
    except Stopped as stop:
        status = RESUME
        print(stop, file=sys.stderr)
    except (Diverged, UserError) as error:
        status = DIVERGED if isinstance(error, Diverged) else USAGE
        record.summary("diverged" if isinstance(error, Diverged) else "failed", error=scrubbed(str(error), config))
        print(f"error: {error}", file=sys.stderr)
    except Exception as error:
        status = FAILED
        record.summary("failed", error=scrubbed(f"{type(error).__name__}: {error}".splitlines()[0], config))
        traceback.print_exc()
    left_behind = not record.close()
    leave()
    if left_behind:  # its own exit handlers would wait for it
        sys.stderr.flush()
        os._exit(status)
    return status
