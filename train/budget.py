"""What a run's length is measured in, a number of steps or the hours of a clock, and the rate that follows it.

With `schedule.hours` the run's clock is `Run.seconds`: the time spent in steps, evaluation and saving apart. It goes
on where a resumed run left off. Such a run takes as many steps as the hours allow, on any machine another number, so
that a stopped and resumed one is not bit-identical to one left alone.
"""

import dataclasses
from typing import TYPE_CHECKING

import torch
from omegaconf import DictConfig

from train.distributed import from_first
from train.optimizer import NOMINAL, Length, Schedule, scaled_lr

if TYPE_CHECKING:
    from train.loop import Run


class Budget:
    """How much of a run is behind it."""

    def __init__(self, schedule: DictConfig) -> None:
        self.hours = schedule.hours
        self.open = self.hours is not None  # how many steps it will be is not known yet

    def spent(self, run: "Run") -> float:
        """The share of the budget that is spent, 0 to 1."""
        share = run.step / run.length.steps if self.hours is None else run.seconds / (3600 * self.hours)
        return min(1.0, share)

    def position(self, run: "Run") -> int:
        """The step that the schedule is asked for: of as many as the run has, or of a nominal number by the clock."""
        return run.step if self.hours is None else min(int(self.spent(run) * NOMINAL), NOMINAL - 1)

    def count(self, run: "Run") -> None:
        """After a step or a resume: close the run where its budget or its data has come to an end.

        With hours, rank 0's clock is everybody's.
        """
        if self.open:
            run.seconds = from_first(round(run.seconds * 1e6), run.place) / 1e6
        exhausted = getattr(run.task, "exhausted", False)
        if run.step and (exhausted or (self.open and self.spent(run) >= 1)):
            run.length = dataclasses.replace(run.length, steps=run.step)
            self.open = False

    def note(self) -> str | None:
        """What a run has to say of its budget before it begins."""
        if self.hours is None:
            return None
        return (
            f"a budget of {self.hours:g} h: the steps follow the clock, so that a stopped and resumed run is not "
            "bit-identical to one left alone"
        )


class Triangle:
    """From `start` times the rate linearly to the rate at `peak` of the run, then linearly to zero at its end."""

    def __init__(self, config: DictConfig, optimizer: torch.optim.Optimizer, steps: int) -> None:
        self.optimizer, self.steps, self.lr = optimizer, steps, scaled_lr(config)
        self.start = 0.25 if config.schedule.start is None else config.schedule.start
        self.peak = 0.75 if config.schedule.peak is None else config.schedule.peak

    def set(self, step: int) -> float:
        """Set every group's learning rate for the step (0 is the first); returns it."""
        share = step / self.steps
        if share < self.peak:
            factor = self.start + (1 - self.start) * share / self.peak
        else:
            factor = max(0.0, (1 - share) / (1 - self.peak)) if self.peak < 1 else 1.0
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr * factor * group.get("lr_scale", 1.0)
        return self.lr * factor


def schedule_of(config: DictConfig, optimizer: torch.optim.Optimizer, length: Length) -> Schedule | Triangle:
    """The schedule that the config names, over `length` or over the nominal steps of a clock."""
    if config.schedule.name == "triangle":
        return Triangle(config, optimizer, length.steps)
    return Schedule(config, optimizer, length)
