"""Sharing out numbered chunks over processes, with the time left, and ending well when asked to stop.

A chunk's content depends on the settings and its number alone, so that the number of processes changes nothing.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice

from train.errors import FAILED, RESUME, USAGE, UserError, WriteError
from train.progress import clock
from train.signals import leave_to_parent


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Meter:
    """What a person sees: how much is done, how fast, and the time left."""

    def __init__(self, total: int, done: int, unit: str) -> None:
        self.total, self.done, self.unit = total, done, unit
        self.first, self.began = done, time.monotonic()
        self.shown, self.live = self.began, sys.stderr.isatty()
        if done:
            self._print(f"{done:,} of {total:,} {unit} are there already", stay=True)

    def add(self, count: int) -> None:
        """Count what was made and show it, where the last line is old enough."""
        self.done += count
        now = time.monotonic()
        ended = self.done >= self.total
        if not ended and now - self.shown < (0.5 if self.live else 10):
            return
        self.shown = now
        rate = (self.done - self.first) / max(now - self.began, 1e-9)
        left = max(self.total - self.done, 0) / rate
        self._print(f"{self.done:,}/{self.total:,} {self.unit}  {rate:,.0f}/s  left {clock(left)}", stay=ended)

    def _print(self, text: str, stay: bool) -> None:
        start, end = ("\r\033[K", "\n" if stay else "") if self.live else ("", "\n")
        print(f"{start}{text}", end=end, file=sys.stderr, flush=True)


def share_out(task: Callable[[int], int], chunks: Iterable[int], processes: int, meter: Meter) -> None:
    """Run `task` on every chunk.

    Args:
        task: writes a chunk and returns how many samples it holds; it must be picklable.
        chunks: the numbers that are still to be made.
        processes: 1 works in this process.
    """
    chunks = iter(chunks)
    if processes == 1:
        for chunk in chunks:
            meter.add(task(chunk))
        return
    pool = ProcessPoolExecutor(processes, initializer=leave_to_parent, initargs=(0,))
    try:
        # A few at a time: what is handed out already cannot be called back when a stop is asked for.
        running = {pool.submit(task, chunk) for chunk in islice(chunks, processes)}
        while running:
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                meter.add(future.result())
            running |= {pool.submit(task, chunk) for chunk in islice(chunks, len(ended))}
    finally:
        pool.shutdown(cancel_futures=True)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def command(main: Callable[[], None]) -> int:
    """Run a generator's main function; what goes wrong is one line, and an exit status of train/errors.py."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        main()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    except WriteError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    except BrokenProcessPool:
        print("error: a process was killed (out of memory?): the same command goes on from here", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("\nstopped: the same command goes on from here", file=sys.stderr)
        return RESUME
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0
