"""`python -m train experiment=<name> [key=value ...]`: compose, check, find the run folder, start the workers."""

import sys
from pathlib import Path

from omegaconf import OmegaConf

from train.compose import distinguishing, options, resolve
from train.data.presence import missing
from train.errors import USAGE, UserError
from train.folder import check_unchanged, lock, run_folder, summary
from train.launch import start

HELP = """usage: python -m train experiment=<name> [key=value ...]      one run; the same command again resumes it
       python -m train -m experiment=<name> key=1,2,3 ...     a sweep; runtime.jobs=2 runs two at a time

  --cfg     print the composed config and stop
  -m        several runs: choices a,b,c, range(0,5), and glob(paper/*) over config groups
  --help    this text

  conditioning=off|identity|svd|relative  conditioning.lam=<number>  seed=<k>  data_root=<folder>
  runtime.dry=true checks and prints without training; every key is described in train/schema.py.
  Exit status: 0 complete, 1 failed, 2 a mistake in what was asked, 3 diverged, 75 stopped and saved (run it again).

experiments: """


def main(words: list[str]) -> int:
    """Run what the command line asks for; returns the exit status."""
    if not words or "--help" in words or "-h" in words:
        print(HELP + ", ".join(options("experiment")))
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
        return run(config, run_folder(config, distinguishing(words)))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE


def run(config, folder: Path) -> int:
    """Check everything that can be checked without torch, then hand over to the workers."""
    if config.runtime.dry:
        from train.dry import table

        print(table([config]))
        return 0
    if lacking := missing(config.dataset.name, config.data_root):
        raise UserError(lacking)
    if config.mode == "evaluate":
        return start(config, folder)
    check_unchanged(folder, config)
    if summary(folder).get("status") == "complete":
        print(f"complete already: {folder}")
        return 0
    with lock(folder):
        code = start(config, folder)
    if code == 0:
        print(f"results: {folder}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
