"""What a person sees while a run goes on: one line with the time left."""

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from train.distributed import Place
    from train.optimizer import Length


def clock(seconds: float) -> str:
    """Seconds as m:ss or h:mm:ss."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class Progress:
    """A line that is rewritten on a terminal, and written anew every ten seconds elsewhere; rank 0 only."""

    def __init__(self, place: "Place", length: "Length", hours: float | None = None) -> None:
        self.speaks, self.length, self.hours = place.first, length, hours
        self.live = sys.stderr.isatty()
        self.began = self.shown = time.monotonic()
        self.first = 0

    def start(self, step: int, what: str) -> None:
        """Announce the run and start its clock."""
        goes = f"from step {step} " if step else ""
        goal = f"to step {self.length.steps}" if self.hours is None else f"for {self.hours:g} h"
        self.line(f"training {goes}{goal} ({self.length.steps_per_epoch} an epoch), {what}")
        self.first, self.began = step, time.monotonic()

    def step(self, step: int, loss: float, lr: float, seconds: float = 0.0) -> None:
        """Show a completed step, where the last one shown is old enough; `seconds` are spent of a budget of hours."""
        now = time.monotonic()
        if not self.speaks or now - self.shown < (0.5 if self.live else 10):
            return
        self.shown = now
        if self.hours is None:
            left, goal = (now - self.began) / (step - self.first) * (self.length.steps - step), f"/{self.length.steps}"
        else:
            left, goal = max(0.0, 3600 * self.hours - seconds), ""
        text = f"step {step}{goal}  loss {loss:.4f}  lr {lr:.2e}  left {clock(left)}"
        print(
            f"\r\033[K{text}" if self.live else text,
            end="" if self.live else "\n",
            file=sys.stderr,
            flush=True,
        )

    def line(self, text: str) -> None:
        """Write a line that stays."""
        if self.speaks:
            print(f"\r\033[K{text}" if self.live else text, file=sys.stderr, flush=True)
