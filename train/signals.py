"""Stopping: a flag that a signal raises and the loop reads once a step, and processes that end with their parent."""

import ctypes
import os
import signal
import sys
import threading

ASKING = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
_PR_SET_PDEATHSIG = 1


class StopFlag:
    """Turns SIGTERM, SIGINT and SIGUSR1 into `asked`; what was being done goes on to its end."""

    def __init__(self) -> None:
        self.asked = False
        self.before = {}
        if threading.current_thread() is threading.main_thread():
            self.before = {number: signal.signal(number, self._raise) for number in ASKING}

    def restore(self) -> None:
        """Give the signals back to whoever handled them before."""
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _raise(self, number: int, frame: object) -> None:
        if not self.asked and "SPECATTN_ERRORS" not in os.environ:  # there the launcher says it
            announce(number)
        self.asked = True


def announce(number: int) -> None:
    """Say that a signal was understood (os.write: a handler may interrupt a print)."""
    if os.environ.get("RANK", "0") == "0":
        os.write(2, f"\n{signal.Signals(number).name}: stopping after this step\n".encode())


def end_with_parent(number: int, parent: int | None = None) -> None:
    """Have the kernel send this process a signal when its parent dies, however that dies (Linux; elsewhere nothing).

    Args:
        number: the signal.
        parent: the parent's process id; where it has died already, the signal is sent at once.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
        if parent is not None and os.getppid() != parent:
            os.kill(os.getpid(), number)


def leave_to_parent(worker: int) -> None:
    """For loader processes, which inherit the handlers: Ctrl-C and USR1 are the trainer's, and they die with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent(signal.SIGKILL)
