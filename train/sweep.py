"""Several runs from one command line: each in a process of its own, side by side where asked, none hiding another."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from omegaconf import DictConfig

from train.compose import distinguishing, expand, resolve, result_changing
from train.data.presence import lacking
from train.errors import FAILED, RESUME, UserError
from train.folder import check_unchanged, check_writable, primary_metric, run_folder, summary
from train.launch import threads
from train.progress import clock
from train.signals import StopFlag, launched_by_us


@dataclass
class Job:
    """One run of a sweep."""

    words: list[str]
    config: DictConfig
    folder: Path
    process: subprocess.Popen | None = None
    output: IO | None = None
    began: float = 0.0  # for durations
    started: float = 0.0  # for comparing with files
    outcome: str = "not started"

    @property
    def name(self) -> str:
        """Experiment, tag and seed."""
        return "/".join((self.config.experiment, *self.folder.parts[-2:]))


def planned(runs: list[list[str]]) -> list[Job]:
    """The runs, each given by its words, each once, all checked before the first begins.

    Raises:
        UserError: one of them is wrong, or its data is missing.
    """
    jobs = {}
    for run in runs:
        config = resolve(run)
        job = Job(run, config, run_folder(config, distinguishing(run)))
        check_unchanged(job.folder, config)
        if not config.runtime.dry and (missing := lacking(config)):
            raise UserError(missing)
        if job.config.mode == "train":
            check_writable(job.folder)
        other = jobs.setdefault(job.folder, job)
        if result_changing(other.config) != result_changing(config):
            raise UserError(
                f"two runs of this sweep would share {job.folder}: {' '.join(run)}, {' '.join(other.words)}"
            )
    return list(jobs.values())


def sweep(words: list[str], stop: StopFlag) -> int:
    """Run every combination that the words ask for (`run_all`).

    Raises:
        UserError: one of them is wrong, or its data is missing; nothing has begun.
    """
    if not (runs := expand(words)):
        raise UserError(f"this sweep asks for no run: {' '.join(words)}")
    return run_all(planned(runs), stop)


def run_all(jobs: list[Job], stop: StopFlag, settled: tuple[str, ...] = ("complete",)) -> int:
    """Run all that is not settled, `runtime.jobs` at a time; returns 0 where every run ended complete.

    A run that fails stops nothing. Ctrl-C and SIGTERM ask the running ones to save and stop, and no more begin.

    Args:
        settled: the status of runs that are not run again.
    """
    if jobs[0].config.runtime.dry:
        from train.dry import table

        print(table([job.config for job in jobs]))
        return 0
    width = jobs[0].config.runtime.jobs
    waiting, running, ended = list(jobs), [], []
    for job in jobs:
        if job.config.mode == "train" and (status := summary(job.folder).get("status")) in settled:
            job.outcome = status
            waiting.remove(job)
    say(f"sweep: {len(jobs)} runs, {len(jobs) - len(waiting)} complete already, {width} at a time")
    began, to_do = time.monotonic(), len(waiting)
    asked = False
    while running or (waiting and not stop.asked):
        while waiting and len(running) < width and not stop.asked:
            job = waiting.pop(0)
            begin(job, width)
            running.append(job)
        if stop.asked and not asked:
            asked = True
            say(f"stopping: {len(running)} runs save and end, {len(waiting)} do not begin")
            for job in running:
                job.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        for job in [job for job in running if job.process.poll() is not None]:
            running.remove(job)
            end(job, stop.asked)
            ended.append(job)
            done = len(ended)
            left = (time.monotonic() - began) / done * (to_do - done)
            rest = f", about {clock(left)} left" if done < to_do else ""
            say(f"[{done}/{to_do}] {job.name}: {job.outcome} in {clock(time.monotonic() - job.began)}{rest}")
    return report(jobs, interrupted=stop.asked)


def begin(job: Job, width: int) -> None:
    """Start a run; alone it speaks to the terminal, beside others it speaks to a file that is shown if it fails."""
    share = max(1, threads(job.config) // width) if job.config.runtime.threads is None else threads(job.config)
    command = [sys.executable, "-m", "train", *job.words, f"runtime.threads={share}"]
    job.output = tempfile.TemporaryFile("w+") if width > 1 else None  # noqa: SIM115 - closed in end()
    job.began, job.started = time.monotonic(), time.time()
    # A process group of its own: Ctrl-C reaches the sweep alone, which then asks each run once.
    environment = os.environ | launched_by_us(signal.SIGTERM)
    job.process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=job.output, stderr=job.output, start_new_session=True
    )


def end(job: Job, stopping: bool) -> None:
    """Take down how a run ended."""
    code = job.process.returncode
    said = []
    if job.output is not None:
        job.output.seek(0)
        said = job.output.read().strip().splitlines()
        job.output.close()
    if code == 0:
        job.outcome = "complete"
    elif code == RESUME:
        job.outcome = "stopped and saved"
    elif stopping and code < 0:
        job.outcome = "stopped before it began"
    else:
        job.outcome = f"failed (status {code}): {reason(job, said)}"


def reason(job: Job, said: list[str]) -> str:
    """The first line of a failed run's error: what killed it, what it said in one line, or what its record says."""
    if job.process.returncode < 0:
        return f"ended by {signal.Signals(-job.process.returncode).name}"
    lines = [line.removeprefix("error: ") for line in said if line.startswith("error: ")]
    if lines:
        return lines[-1]
    path = job.folder / "summary.json"
    # A record that this run has not written tells of an earlier failure.
    written = path.exists() and path.stat().st_mtime >= job.started
    return (written and summary(job.folder).get("error")) or (said[-1] if said else "said above")


def report(jobs: list[Job], interrupted: bool) -> int:
    """Print how each run ended and its primary metric; the failed ones last, with the first line of their error."""
    failed = [job for job in jobs if job.outcome.startswith("failed")]
    width = max(len(job.name) for job in jobs)
    print()
    for job in [job for job in jobs if job not in failed] + failed:
        shown = primary_metric(summary(job.folder)) if job.outcome == "complete" else ""
        print(f"  {job.name:<{width}}  {shown or job.outcome}")
    done = sum(job.outcome == "complete" for job in jobs)
    print(f"{done} of {len(jobs)} complete, {len(failed)} failed; the same command does what is missing")
    if failed:
        return FAILED
    return RESUME if interrupted and done < len(jobs) else 0


def say(text: str) -> None:
    """Progress goes to stderr; the table at the end to stdout."""
    print(text, file=sys.stderr, flush=True)
