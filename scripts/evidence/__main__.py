"""`make evidence`: run what is missing of the study's plan, two runs side by side, and write what it says.

    DATA_ROOT=<folder with cifar10> python -m scripts.evidence [--scale gpu] [--plan] [key=value ...]

Runs that are complete or diverged are not run again, Ctrl-C saves and the same command goes on. `--plan` prints the
plan alone. The runs land below the output root as any other's; python -m scripts.collect copies their records.
"""

import argparse
import sys

from scripts.evidence.plan import PLAN
from train.errors import USAGE, UserError
from train.signals import StopFlag
from train.sweep import planned, run_all

SETTLED = ("complete", "diverged")  # a run that diverged is a result, and would diverge again
SIDE_BY_SIDE = ("runtime.jobs=2", "runtime.keep_checkpoints=false")


def table(scale: str) -> str:
    """The plan, a line a setting, with the words of its first run."""
    lines = [f"{'part':<9}{'setting':<40}{'against':<30}{'seeds':<11}words"]
    for setting in PLAN:
        seeds = ",".join(map(str, setting.seeds))
        words = [word for word in setting.command(0, scale) if not word.startswith("seed=")]
        lines.append(f"{setting.part:<9}{setting.name:<40}{setting.against or '':<30}{seeds:<11}{' '.join(words)}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run the plan; returns the exit status of the sweep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="more words for Hydra, as runtime.devices=1 data_root=<folder>")
    parser.add_argument("--scale", default="reduced", choices=("reduced", "gpu"))
    parser.add_argument("--plan", action="store_true", help="print the plan and run nothing")
    chosen = parser.parse_intermixed_args(arguments)
    if chosen.plan:
        print(table(chosen.scale))
        return 0
    runs = [
        [*setting.command(seed, chosen.scale), *SIDE_BY_SIDE, *chosen.words]
        for setting in PLAN
        for seed in setting.seeds
    ]
    stop = StopFlag()
    try:
        return run_all(planned(runs), stop, SETTLED)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    finally:
        stop.restore()


if __name__ == "__main__":
    sys.exit(main())
