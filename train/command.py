"""The command line: compose, check, find the run folder, start the workers, say where the results are."""

import contextlib
import os
import signal
import sys

from omegaconf import DictConfig, OmegaConf

from train.compose import distinguishing, options, resolve
from train.data.presence import layout, missing
from train.errors import RESUME, USAGE, UserError
from train.folder import check_unchanged, check_writable, lock, run_folder, summary
from train.launch import start
from train.signals import StopFlag
from train.usage import USAGE_TEXT


def main(words: list[str], stop: StopFlag | None = None) -> int:
    """Run what the command line asks for; returns the exit status (train/errors.py).

    Args:
        words: options and `key=value` words.
        stop: what signals raise; one is made, and the signals given back at the end, where it is None.
    """
    if not words or "--help" in words or "-h" in words:
        print(USAGE_TEXT + ", ".join(options("experiment")))
        return 0 if words else USAGE
    flags = [word for word in words if word in ("-m", "--multirun", "--cfg")]
    words = [word for word in words if word not in flags]
    with contextlib.ExitStack() as stack:
        if stop is None:
            stop = StopFlag()
            stack.callback(stop.restore)
        try:
            if "-m" in flags or "--multirun" in flags:
                from train.sweep import sweep

                return sweep(words, stop)
            config = resolve(words)
            if "--cfg" in flags:
                print(OmegaConf.to_yaml(config, resolve=True), end="")
                return 0
            return run(config, words, stop)
        except UserError as error:
            if os.environ.get("RANK", "0") == "0":
                print(f"error: {error}", file=sys.stderr)
            return USAGE
        except KeyboardInterrupt:
            return 128 + signal.SIGINT


def run(config: DictConfig, words: list[str], stop: StopFlag) -> int:
    """Check everything that can be checked without torch, then hand over to the workers."""
    folder = run_folder(config, distinguishing(words))
    if config.runtime.dry:
        from train.dry import table

        print(table([config]))
        return 0
    if lacking := missing(config.dataset.name, config.data_root, layout(config)):
        raise UserError(lacking)
    if config.mode == "evaluate":
        stop.restore()  # there is nothing to save: Ctrl-C simply ends it
        return start(config, folder, words, stop)
    if "SPECATTN_ERRORS" in os.environ:  # the launcher has checked, and holds the lock
        return start(config, folder, words, stop)
    check_writable(folder)
    # One process of a run guards its folder and speaks for it: this one, or torchrun's first worker.
    speaks = os.environ.get("RANK", "0") == "0"
    if summary(folder).get("status") != "complete" and stop.asked:
        return RESUME
    with lock(folder) if speaks else contextlib.nullcontext():
        check_unchanged(folder, config)
        if summary(folder).get("status") == "complete":
            if speaks:
                print(f"complete already: {folder}")
            return 0
        code = start(config, folder, words, stop)
    if code == 0 and speaks:
        print(f"results: {folder}")
    return code
