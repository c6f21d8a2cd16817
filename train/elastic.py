"""Several workers on this machine through torch's elastic agent, with our own handling of signals.

The agent's own handlers kill workers after 30 seconds and do not know USR1; here signals are passed on and the
workers, which save and leave by themselves, are waited for. Workers are commands, not functions: each has a session
of its own, and dies with the launcher (train/signals.py).
"""

import contextlib
import logging
import os
import signal
import sys
import threading
import time
import uuid
from pathlib import Path

from train.errors import FAILED, RESUME
from train.signals import ASKING, announce

GRACE = 5.0  # seconds that workers have to end by themselves after one of them has failed


def launch(words: list[str], devices: int, errors: Path) -> tuple[int, str | None]:
    """Run `python -m train <words>` on every device of this machine.

    Args:
        words: the command line of every worker.
        devices: how many workers.
        errors: an empty folder; a worker that fails writes its error there under its rank.

    Returns:
        The exit status, and the error to show: the first that a worker had, None where all went well.
    """
    from torch.distributed.elastic.agent.server import WorkerSpec
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.rendezvous import RendezvousParameters
    from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

    for name in list(logging.root.manager.loggerDict):
        if name.startswith("torch.distributed.elastic"):  # its reports would repeat a worker's error
            logging.getLogger(name).setLevel(logging.CRITICAL)
    os.environ |= {
        "SPECATTN_ERRORS": str(errors),
        "SPECATTN_PARENT": f"{os.getpid()}:{int(signal.SIGKILL)}",
        "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGQUIT",  # the agent's way out, without saving; the others are ours
    }
    parameters = RendezvousParameters(
        "c10d", "localhost:0", run_id=uuid.uuid4().hex, min_nodes=1, max_nodes=1, local_addr="localhost"
    )
    spec = WorkerSpec(
        role="train",
        local_world_size=devices,
        rdzv_handler=get_rendezvous_handler(parameters),
        entrypoint=sys.executable,
        args=("-m", "train", *words),
        max_restarts=0,
        monitor_interval=0.1,
        local_addr="localhost",
    )
    agent = LocalElasticAgent(spec, DefaultLogsSpecs(), shutdown_timeout=GRACE)
    asked = []

    def pids() -> list[int]:
        return [worker.id for worker in agent.get_worker_group().workers if isinstance(worker.id, int)]

    def pass_on(number: int, frame: object) -> None:
        if not asked:
            announce(number)
        asked.append(number)
        for pid in pids():
            _send(pid, number)

    before = {number: signal.signal(number, pass_on) for number in ASKING}
    overseer = threading.Thread(target=_end_the_rest, args=(pids, devices), daemon=True)
    overseer.start()
    try:
        result = agent.run()
    except SignalException:
        return FAILED, "error: SIGQUIT ended the run; what was not yet saved is lost"
    finally:
        spec.rdzv_handler.shutdown()
        for number, handler in before.items():
            signal.signal(number, handler)
    codes = {rank: failure.exitcode for rank, failure in result.failures.items()}
    return _verdict(codes, errors, bool(asked))


def _verdict(codes: dict[int, int], errors: Path, asked: bool) -> tuple[int, str | None]:
    """Exit status and error from the exit codes of the workers that did not end with 0."""
    told = sorted(errors.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    killed = [rank for rank, code in codes.items() if code < 0 and -code != signal.SIGTERM]
    if not codes:
        return 0, None
    if not told and not killed and asked:
        # Those that had not begun died of the signal itself; nothing was lost.
        return RESUME, None
    if killed:
        # What the others met is the loss of this one.
        name = signal.Signals(-codes[killed[0]]).name
        return FAILED, f"error: worker {killed[0]} was killed by {name} (out of memory, or from outside)"
    if told:
        return codes.get(int(told[0].name), FAILED), told[0].read_text()
    rank, code = next(iter(codes.items()))
    return (code if code > 0 else FAILED), None if code == RESUME else f"error: worker {rank} ended with status {code}"


def _end_the_rest(pids, devices: int) -> None:
    """Once a worker has failed, kill those that still run after the grace (they may wait for it inside NCCL)."""
    while len(pids()) < devices:
        time.sleep(0.05)
    workers = pids()
    while True:
        codes = {pid: _exit_code(pid) for pid in workers}
        if all(code is not None for code in codes.values()):
            return
        if any(code not in (None, 0, RESUME) for code in codes.values()):
            time.sleep(GRACE)
            for pid in workers:
                if _exit_code(pid) is None:
                    _send(pid, signal.SIGKILL)
            return
        time.sleep(0.1)


def _exit_code(pid: int) -> int | None:
    """A child's exit code (negative for a signal) without reaping it; None while it runs, 0 where it was reaped."""
    try:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return 0
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
