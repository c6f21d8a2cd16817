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
        self.number: int | None = None  # of the first signal
        self.before = {}
        if threading.current_thread() is threading.main_thread():
            self.before = {number: signal.signal(number, self._raise) for number in ASKING}

    def restore(self) -> None:
        """Give the signals back to whoever handled them before."""
        for number, handler in self.before.items():
            signal.signal(number, handler)
        self.before = {}

    def _raise(self, number: int, frame: object) -> None:
        if not self.asked and "SPECATTN_ERRORS" not in os.environ:  # there the launcher says it
            announce(number)
        self.asked, self.number = True, self.number or number


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


def launched_by_us(number: int) -> dict[str, str]:
    """The environment of a process that is to get a signal when this one dies, see `end_with_launcher`."""
    return {"SPECATTN_PARENT": f"{os.getpid()}:{int(number)}"}


def end_with_launcher() -> None:
    """Bind this process to the launcher or sweep that started it, where one did."""
    if parent := os.environ.pop("SPECATTN_PARENT", None):
        pid, number = parent.split(":")
        end_with_parent(int(number), int(pid))


def leave_to_parent(worker: int) -> None:
    """For loader processes, which inherit the handlers: Ctrl-C and USR1 are the trainer's, and they die with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent(signal.SIGKILL)
