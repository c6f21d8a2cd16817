"""Copy the small files of finished runs' records to where they are committed.

    python -m scripts.collect 'reduced/imagenet_*' [--output-root outputs] [--into results/runs]

Of each run that is complete, failed or diverged: config.yaml, environment.json, metrics.jsonl and summary.json, to
`<into>/<experiment>/<tag>/seed<k>/`. A failure is a result too: tables name it; but one takes the place of no complete
record. Checkpoints and W&B runs stay where they are.
"""

import argparse
import sys
from fnmatch import fnmatch
from pathlib import Path

from scripts.entry import ran
from scripts.records import Recorded, every
from train.compose import options
from train.errors import UserError
from train.folder import summary
from train.record_files import write

FILES = ("config.yaml", "environment.json", "metrics.jsonl", "summary.json")
RECORDS = Path("results/runs")
FINISHED = ("complete", "failed", "diverged")


def collect(output_root: Path, into: Path, pattern: str) -> dict[str, int]:
    """Copy the records of the experiments whose name matches; returns experiment → runs copied.

    Raises:
        UserError: a summary is damaged, or a complete record would give way to a failed run; nothing is copied.
    """
    found = {}
    for experiment in (name for name in options("experiment") if fnmatch(name, pattern)):
        runs = every(output_root, experiment)
        for run in runs:
            held = into / run.folder.relative_to(output_root)
            if run.status == "unreadable":
                raise UserError(f"{run.folder / 'summary.json'} cannot be read: run it again, or remove its folder")
            if run.status in FINISHED[1:] and summary(held).get("status") == "complete":
                raise UserError(
                    f"{held} is complete and {run.folder} has {run.status}: remove the one that is not meant"
                )
        if finished := [run for run in runs if run.status in FINISHED]:
            found[experiment] = finished
    for runs in found.values():
        for run in runs:
            copy(run, into / run.folder.relative_to(output_root))
    return {experiment: len(runs) for experiment, runs in found.items()}


def copy(run: Recorded, target: Path) -> None:
    """Copy a run's files, each whole or not at all; what an earlier record had more than this one goes."""
    target.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        if (run.folder / name).exists():
            write(target / name, (run.folder / name).read_text(encoding="utf-8"))
        else:  # a run that failed early has not all of them
            (target / name).unlink(missing_ok=True)


def main() -> int:
    """Copy and say what was copied; 2 where nothing matches."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pattern", help="experiments, as a glob: 'reduced/imagenet_*'")
    parser.add_argument("--output-root", type=Path, default=Path("outputs"))
    parser.add_argument("--into", type=Path, default=RECORDS)
    chosen = parser.parse_args()
    copied = collect(chosen.output_root, chosen.into, chosen.pattern)
    for experiment, count in copied.items():
        print(f"{experiment}: {count} runs -> {chosen.into / experiment}")
    if not copied:
        print(f"error: no finished run of {chosen.pattern!r} below {chosen.output_root}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(ran(main))
