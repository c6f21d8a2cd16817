"""`make reduced`: every reduced row in turn, then collect, tables, figures and report.

    python -m scripts.reduced [--seeds 0,1,2] [--jobs 2] [--only imagenet-vit,lra-text] [--dry] [output_root=... ...]

It runs the commands of the rows' own targets, so that what is complete is not run again and what was stopped goes on.
The plan and its time come first: from the seconds of the records that are there. A row whose data is missing or that
fails stops no other; it is named at the end, and the status is 1. Ctrl-C saves and ends the run in progress (75).
"""

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

from scripts.collect import collect
from scripts.reduced_plan import RECORDS, Row, absent, estimate, missing, rows, took
from train.compose import nearest, resolve
from train.errors import FAILED, RESUME, USAGE, UserError
from train.progress import clock
from train.signals import launched_by_us

AFTER = ("scripts.tables", "scripts.figures", "scripts.report")


class Commands:
    """Runs commands one after another; Ctrl-C and SIGTERM reach the one that runs, once, and no other begins."""

    def __init__(self) -> None:
        self.asked = False
        self.process: subprocess.Popen | None = None
        self.before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore(self) -> None:
        """Give the signals back to whoever handled them before."""
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: object) -> None:
        if not self.asked and self.process is not None:
            self.process.send_signal(signal.SIGINT)
        self.asked = True

    def run(self, words: list[str]) -> int:
        """`python -m words` to its end; its exit status."""
        if self.asked:
            return RESUME
        print(f"\n$ python -m {' '.join(words)}", file=sys.stderr, flush=True)
        # A session of its own, so that a Ctrl-C is not felt twice.
        self.process = subprocess.Popen(
            [sys.executable, "-m", *words],
            env=os.environ | launched_by_us(signal.SIGTERM),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        if self.asked:  # between the start and its being noted
            self.process.send_signal(signal.SIGINT)
        status = self.process.wait()
        self.process = None
        return status


def plan(chosen: list[Row], seeds: list[int], jobs: int, root: Path, words: list[str]) -> dict[str, str]:
    """Print what there is to do and how long it may take; returns row → why it cannot be run."""
    lines, lacks, total, unknown = [], {}, 0.0, 0
    counted: set[tuple[str, str, int]] = set()  # rows share runs: the ablations begin with the ViT row's
    for row in chosen:
        left = missing(row, seeds, root)
        text = f"{len(row.asked(seeds))} runs, {len(row.asked(seeds)) - len(left)} complete"
        if left and (reason := absent(row, words)):
            lacks[row.name] = reason
            text = reason
        elif fresh := [run for run in left if (row.experiment, *run) not in counted]:
            seconds, guesswork = estimate(fresh, took(row.experiment, (RECORDS, root)))
            total, unknown = total + seconds / jobs, unknown + guesswork
            text += f", {clock(seconds / jobs)}" if not guesswork else f", {guesswork} of unknown time"
            counted |= {(row.experiment, *run) for run in fresh}
        lines.append(f"  {row.name:<19} {text}")
    print("\n".join(lines))
    rest = f", and {unknown} runs of which there is no record" if unknown else ""
    print(f"about {clock(total)} of training, {jobs} at a time, as the records took{rest}")
    print(f"then: collect, {', '.join(name.partition('.')[2] for name in AFTER)}\n", flush=True)
    return lacks


def run_rows(chosen: list[Row], options: argparse.Namespace, commands: Commands, lacks: dict[str, str]) -> dict:
    """Run what can be run; returns row → how it failed."""
    failed = dict(lacks)
    root = [word for word in options.words if word.startswith(("output_root=", "data_root="))]
    for row in chosen:
        if commands.asked:
            break
        if row.name in lacks or not missing(row, options.seeds, options.output_root):
            continue
        prepare = list(row.prepare)
        if prepare[:1] == ["scripts.make_set"]:
            prepare += ["--output-root", str(options.output_root)]
        elif prepare:
            prepare += root
        status = commands.run(prepare) if prepare else 0
        status = status or commands.run(row.command(options.seeds, options.jobs, options.words))
        if status and not commands.asked:
            failed[row.name] = f"status {status}, said above"
    return failed


def gather(chosen: list[Row], options: argparse.Namespace, commands: Commands) -> dict[str, str]:
    """Collect the records and make everything that is made from them; returns what failed."""
    failed = {}
    for experiment in dict.fromkeys(row.experiment for row in chosen):
        for name, count in collect(options.output_root, RECORDS, experiment).items():
            print(f"{name}: {count} runs -> {RECORDS / name}")
    for module in AFTER:
        if (status := commands.run([module])) and not commands.asked:
            failed[module.partition(".")[2]] = f"status {status}, said above"
    return failed


def asked(words: list[str] | None) -> argparse.Namespace:
    """The command line.

    Raises:
        UserError: a seed is no number, or there is no such row.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="anything else for Hydra, key=value")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side (2)")
    parser.add_argument("--only", default="", help="rows, comma-separated")
    parser.add_argument("--dry", action="store_true", help="print the plan and run nothing")
    options = parser.parse_intermixed_args(words)
    if not all(seed.strip().isdecimal() for seed in options.seeds.split(",")):
        raise UserError(f"SEEDS={options.seeds}: write whole numbers, as 0,1,2")
    options.seeds = list(dict.fromkeys(int(seed) for seed in options.seeds.split(",")))
    if options.jobs < 1:
        raise UserError(f"JOBS={options.jobs}: must be at least 1")
    config = resolve(["experiment=reduced/digits_vit", *options.words])  # a misspelt word is said here, once
    options.output_root = Path(config.output_root).expanduser()
    books = config.data_root is not None and (Path(config.data_root).expanduser() / "text" / "gutenberg").is_dir()
    every = rows(books)
    names = [name.strip() for name in options.only.split(",") if name.strip()]
    for name in names:
        if name not in [row.name for row in every]:
            raise UserError(f"there is no row {name!r}: {nearest(name, [row.name for row in every])}")
    options.rows = [row for row in every if not names or row.name in names]
    return options


def main(words: list[str] | None = None) -> int:
    """Plan, run, gather; returns the exit status."""
    try:
        options = asked(words)
        lacks = plan(options.rows, options.seeds, options.jobs, options.output_root, options.words)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    if options.dry:
        return 0
    commands = Commands()
    try:
        failed = run_rows(options.rows, options, commands, lacks)
        if not commands.asked:
            failed |= gather(options.rows, options, commands)
    finally:
        commands.restore()
    if commands.asked:
        print("\nstopped: the same command goes on from here", file=sys.stderr)
        return RESUME
    for name, reason in failed.items():
        print(f"not done: {name}: {reason}", file=sys.stderr)
    return FAILED if failed else 0


if __name__ == "__main__":
    sys.exit(main())
