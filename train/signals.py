"""A flag that a signal raises, and that the loop reads once a step."""

import signal
import threading

ASKING = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


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
        self.asked = True


def leave_to_parent(worker: int) -> None:
    """For loader processes, which inherit the handlers: Ctrl-C and USR1 are the trainer's, TERM ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
