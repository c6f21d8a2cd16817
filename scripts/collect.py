"""Copy the small files of finished runs' records to where they are committed.

    python -m scripts.collect 'reduced/imagenet_*' [--output-root outputs] [--into results/runs]

Of each run that is complete, failed or diverged: config.yaml, environment.json, metrics.jsonl and summary.json, to
`<into>/<experiment>/<tag>/seed<k>/`. A failure is a result too: tables name it. Checkpoints and W&B runs stay where
they are.
"""

import argparse
import shutil
import sys
from fnmatch import fnmatch
from pathlib import Path

from scripts.entry import ran
from scripts.records import every
from train.compose import options

FILES = ("config.yaml", "environment.json", "metrics.jsonl", "summary.json")
RECORDS = Path("results/runs")
FINISHED = ("complete", "failed", "diverged")


def collect(output_root: Path, into: Path, pattern: str) -> dict[str, int]:
    """Copy the records of the experiments whose name matches; returns experiment → runs copied."""
    copied = {}
    for experiment in (name for name in options("experiment") if fnmatch(name, pattern)):
        runs = [run for run in every(output_root, experiment) if run.status in FINISHED]
        for run in runs:
            target = into / run.folder.relative_to(output_root)
            target.mkdir(parents=True, exist_ok=True)
            for name in FILES:
                if (run.folder / name).exists():  # a run that failed early has not all of them
                    shutil.copyfile(run.folder / name, target / name)
        if runs:
            copied[experiment] = len(runs)
    return copied


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
