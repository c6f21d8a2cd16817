"""`python -m train experiment=<name> [key=value ...]`: compose, check, find the run folder, start the workers."""

import contextlib
import os
import signal
import sys

from omegaconf import DictConfig, OmegaConf

from train.compose import distinguishing, options, resolve
from train.data.presence import missing
from train.errors import USAGE, UserError
from train.folder import check_unchanged, lock, run_folder, summary
from train.launch import start
from train.signals import end_with_parent
from train.usage import USAGE_TEXT


def main(words: list[str]) -> int:
    """Run what the command line asks for; returns the exit status."""
    if not words or "--help" in words or "-h" in words:
        print(USAGE_TEXT + ", ".join(options("experiment")))
        return 0 if words else USAGE
    flags = [word for word in words if word in ("-m", "--multirun", "--cfg")]
    words = [word for word in words if word not in flags]
    try:
        if "-m" in flags or "--multirun" in flags:
            from train.sweep import sweep

            return sweep(words)
        config = resolve(words)
        if "--cfg" in flags:
            print(OmegaConf.to_yaml(config, resolve=True), end="")
            return 0
        return run(config, words)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def run(config: DictConfig, words: list[str]) -> int:
    """Check everything that can be checked without torch, then hand over to the workers."""
    folder = run_folder(config, distinguishing(words))
    if config.runtime.dry:
        from train.dry import table

        print(table([config]))
        return 0
    if lacking := missing(config.dataset.name, config.data_root):
        raise UserError(lacking)
    # One process of a run guards its folder and speaks for it: the launcher, or torchrun's first worker.
    speaks = os.environ.get("RANK", "0") == "0" and "SPECATTN_ERRORS" not in os.environ
    if config.mode == "evaluate":
        return start(config, folder, words)
    check_unchanged(folder, config)
    if summary(folder).get("status") == "complete" and "SPECATTN_ERRORS" not in os.environ:
        print(f"complete already: {folder}" if speaks else "", end="\n" if speaks else "")
        return 0
    with lock(folder) if speaks else contextlib.nullcontext():
        code = start(config, folder, words)
    if code == 0 and speaks:
        print(f"results: {folder}")
    return code


if __name__ == "__main__":
    if parent := os.environ.pop("SPECATTN_PARENT", None):
        pid, number = parent.split(":")
        end_with_parent(int(number), int(pid))
    sys.exit(main(sys.argv[1:]))
