"""From a checked config to worker processes, and from what they did to an exit status."""

import os
import sys
import traceback
from pathlib import Path

from omegaconf import DictConfig

from train.errors import DIVERGED, FAILED, RESUME, USAGE, Diverged, Stopped, UserError


def prepare_environment(config: DictConfig) -> None:
    """Set what libraries read when they are imported: threads, determinism on a GPU, no chatter."""
    os.environ["OMP_NUM_THREADS"] = str(threads(config))
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic only with it
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


def threads(config: DictConfig) -> int:
    """CPU threads for each device: `runtime.threads`, or the cores this process may use shared out."""
    return config.runtime.threads or max(1, len(os.sched_getaffinity(0)) // config.runtime.devices)


def start(config: DictConfig, folder: Path) -> int:
    """Run the workers that the config asks for; returns the exit status."""
    prepare_environment(config)
    return work(config, folder)


def work(config: DictConfig, folder: Path) -> int:
    """What every process of a run does, however it was started; returns its exit status."""
    import torch

    from train.distributed import join, leave
    from train.evaluation import evaluate
    from train.loop import train
    from train.record import Record

    torch.set_num_threads(threads(config))
    place = join(config.runtime.device)
    record = Record(folder, config, place)
    status = 0
    try:
        (evaluate if config.mode == "evaluate" else train)(config, record, place)
    except Stopped as stop:
        status = RESUME
        print(stop, file=sys.stderr)
    except (Diverged, UserError) as error:
        status = DIVERGED if isinstance(error, Diverged) else USAGE
        record.failed("diverged" if isinstance(error, Diverged) else "failed", str(error))
        print(f"error: {error}", file=sys.stderr)
    except Exception as error:
        status = FAILED
        record.failed("failed", f"{type(error).__name__}: {error}")
        traceback.print_exc()
    left_behind = not record.close()
    leave()
    if left_behind:  # its own exit handlers would wait for it
        sys.stderr.flush()
        os._exit(status)
    return status
