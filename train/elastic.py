"""The workers of this machine through torch's elastic agent, with our own handling of signals.

The agent's own handlers kill workers after 30 seconds and do not know USR1; here signals are passed on and the
workers, which save and leave by themselves, are waited for. Workers are commands, not functions: each has a session
of its own, and dies with the launcher (train/signals.py).
"""

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from train.errors import FAILED, RESUME
from train.signals import StopFlag, launched_by_us

GRACE = 5.0  # seconds that workers have to end by themselves after one of them has failed


def launch(words: list[str], devices: int, errors: Path, stop: StopFlag) -> tuple[int, str | None]:
    """Run `python -m train <words>` on every device of this machine.

    Args:
        words: the command line of every worker.
        devices: how many workers.
        errors: an empty folder; a worker that fails writes its error there under its rank.
        stop: what signals raise; it is passed on to the workers.

    Returns:
        The exit status, and the error to show: the first that a worker had, None where all went well.
    """
    from torch.distributed.elastic.agent.server import WorkerSpec
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
    from torch.distributed.elastic.rendezvous import RendezvousParameters
    from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

    from train.launch import node_count

    for name in list(logging.root.manager.loggerDict):
        if name.startswith("torch.distributed.elastic"):  # its reports would repeat a worker's error
            logging.getLogger(name).setLevel(logging.CRITICAL)
    os.environ |= {
        "SPECATTN_ERRORS": str(errors),
        **launched_by_us(signal.SIGKILL),
        "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGQUIT",  # the agent's way out, without saving; the others are ours
    }
    nodes = node_count()
    here = "localhost" if nodes == 1 else os.environ.get("SLURMD_NODENAME", socket.gethostname())
    where = os.environ.get("SPECATTN_RENDEZVOUS") if nodes > 1 else None
    parameters = RendezvousParameters(
        "c10d",
        where or "localhost:0",
        run_id=where or uuid.uuid4().hex,
        min_nodes=nodes,
        max_nodes=nodes,
        local_addr=here,
    )
    spec = WorkerSpec(
        role="train",
        local_world_size=devices,
        rdzv_handler=get_rendezvous_handler(parameters),
        entrypoint=sys.executable,
        args=("-m", "train", *words),
        max_restarts=0,
        monitor_interval=0.1,
        local_addr=here,
    )
    logs = DefaultLogsSpecs()
    if folder := os.environ.get("SPECATTN_LOGS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        logs = DefaultLogsSpecs(log_dir=folder, tee=Std.ALL)
    agent = LocalElasticAgent(spec, logs, shutdown_timeout=GRACE)

    def pids() -> list[int]:
        return [worker.id for worker in agent.get_worker_group().workers if isinstance(worker.id, int)]

    ended: set[int] = set()  # the workers that the overseer killed
    overseer = threading.Thread(target=_oversee, args=(pids, devices, stop, ended), daemon=True)
    overseer.start()
    try:
        result = agent.run()
    except SignalException:
        return FAILED, "error: SIGQUIT ended the run; what was not yet saved is lost"
    finally:
        spec.rdzv_handler.shutdown()
    codes = {rank: failure.exitcode for rank, failure in result.failures.items()}
    killed = [rank for rank, failure in result.failures.items() if failure.exitcode < 0 and failure.pid not in ended]
    return _verdict(codes, killed, errors, stop)


def _verdict(codes: dict[int, int], killed: list[int], errors: Path, stop: StopFlag) -> tuple[int, str | None]:
    """Exit status and error from the exit codes of the workers that did not end with 0.

    Args:
        codes: rank → exit code, negative for a signal.
        killed: the ranks that a signal ended which we did not send.
        errors: the folder of the errors that workers wrote.
        stop: whether a stop was asked for.
    """
    told = sorted(errors.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    if not codes:
        return 0, None
    if stop.asked and not told and all(code == RESUME or code < 0 for code in codes.values()):
        # Those that died had not begun: the signal came before they listened, or they waited for one that had died.
        return RESUME, None
    killed = [rank for rank in killed if codes[rank] != -signal.SIGTERM]  # which the agent sends to the others
    if killed:
        # What the others met, and told, is the loss of this one.
        name = signal.Signals(-codes[killed[0]]).name
        return FAILED, f"error: worker {killed[0]} was killed by {name} (out of memory, or from outside)"
    if told:
        return codes.get(int(told[0].name), FAILED), told[0].read_text()
    rank, code = next(iter(codes.items()))
    return (code if code > 0 else FAILED), f"error: worker {rank} ended with status {code}"


def _oversee(pids: Callable[[], list[int]], devices: int, stop: StopFlag, ended: set[int]) -> None:
    """Pass a stop on to the workers until they end; once one has failed, kill the rest after the grace.

    The signal is sent again and again: a worker that has only just been started may not have heard it. Those that
    wait for a worker that is gone, inside NCCL, never would.
    """
    told = 0.0
    while True:
        time.sleep(0.1)
        workers = pids()
        codes = {pid: _exit_code(pid) for pid in workers}
        running = [pid for pid, code in codes.items() if code is None]
        if len(workers) == devices and not running:
            return
        if any(code not in (None, 0, RESUME) for code in codes.values()):
            time.sleep(GRACE)
            for pid in running:
                if _exit_code(pid) is None:
                    ended.add(pid)
                    _send(pid, signal.SIGKILL)
            return
        if stop.asked and time.monotonic() - told > 1:
            told = time.monotonic()
            for pid in running:
                _send(pid, stop.number)


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
