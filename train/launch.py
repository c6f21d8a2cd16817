"""From a checked config to worker processes, and from what they did to an exit status."""

import os
import sys
import traceback
from pathlib import Path

from omegaconf import DictConfig

from train.errors import DIVERGED, FAILED, RESUME, USAGE, Diverged, Stopped, UserError


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
    from train.record import Record, scrubbed

    place = join(config.runtime.device)
    record = Record(folder, config, place)

    def ended(status: str, error: BaseException, say: str | None = None) -> None:
        text = scrubbed(say or f"{type(error).__name__}: {error}", config)
        record.summary(status, error=text.splitlines()[0] if text else type(error).__name__)

    try:
        train(config, folder, place)
        return 0
    except Stopped as error:
        print(error, file=sys.stderr)
        return RESUME
    except Diverged as error:
        ended("diverged", error, str(error))
        print(f"error: {error}", file=sys.stderr)
        return DIVERGED
    except UserError as error:
        ended("failed", error, str(error))
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    except Exception as error:
        ended("failed", error)
        traceback.print_exc()
        return FAILED
    finally:
        leave()
