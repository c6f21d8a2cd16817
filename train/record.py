"""The record of a run: config.yaml, environment.json, metrics.jsonl and summary.json in its folder.

metrics.jsonl is the truth: one JSON object a line, each with `step` (optimizer steps completed) and `event`.
What a clock or an allocator says stands apart under `timing`, since it differs from run to run. Paths are
written as `${DATA_ROOT}/…` and `${OUTPUT_ROOT}/…`; no host or user name is written.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
from pathlib import Path

import torch
import yaml
from omegaconf import DictConfig

from train.distributed import Place
from train.errors import UserError, WriteError
from train.mirror import Mirror
from train.record_files import REPOSITORY, described, finite, plain_config, read_metrics, write

PACKAGES = (
    "specattn",
    "torch",
    "torchvision",
    "timm",
    "transformers",
    "numpy",
    "hydra-core",
    "datasets",
    "wandb",
)


def environment(place: Place, precision: str) -> dict:
    """Versions, commit and device of this run."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    device = torch.cuda.get_device_name(place.device) if place.device.type == "cuda" else _cpu_name()
    return {
        "versions": versions,
        "python": platform.python_version(),
        "git": _git(),
        "device": device,
        "devices": place.world,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "precision": precision,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _git() -> dict | None:
    """Commit, whether the tracked files differ from it, and a hash of the difference; None outside a checkout."""

    def ask(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(REPOSITORY), *words],
            capture_output=True,
            text=True,
            check=True,
            errors="replace",
        ).stdout

    try:
        difference = ask("diff", "HEAD")
        commit = ask("rev-parse", "HEAD").strip()
    except (OSError, subprocess.CalledProcessError):
        return None
    return {
        "commit": commit,
        "dirty": bool(difference),
        "diff_sha256": hashlib.sha256(difference.encode()).hexdigest() if difference else None,
    }


# What a resumed run must share with its earlier part to end bit-identical to one that was left alone.
RUNTIME = ("micro_batch", "channels_last", "compile")
EXACT = ("versions", "git", "device", "devices", "threads", "precision", "deterministic", *RUNTIME)


def _sessions(history: Path) -> list[dict]:
    try:
        return list(json.loads(history.read_text())["sessions"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{history} is damaged ({type(error).__name__}): move it away to go on without it") from None


class Record:
    """What one run writes; every rank may call, only rank 0 writes."""

    def __init__(self, folder: Path, config: DictConfig, place: Place) -> None:
        self.folder, self.config, self.place = folder, config, place
        self.metrics = folder / "metrics.jsonl"
        self.mirror: Mirror | None = None

    def begin(self, step: int, precision: str) -> None:
        """Write config and environment, and cut metrics.jsonl back to the step that the run goes on from."""
        if not self.place.first:
            return
        write(self.folder / "config.yaml", yaml.safe_dump(plain_config(self.config), sort_keys=False))
        kept = [line for line in read_metrics(self.metrics) if line["step"] <= step] if step else []
        write(self.metrics, "".join(json.dumps(line) + "\n" for line in kept))
        history = self.folder / "environment.json"
        sessions = _sessions(history) if step and history.exists() else []
        now = environment(self.place, precision) | {key: self.config.runtime[key] for key in RUNTIME}
        changed = [key for key in EXACT if sessions and sessions[-1].get(key) != now[key]]
        by_steps = self.config.schedule.hours is None  # a run by the clock promises nothing (train/budget.py)
        exact = by_steps and not changed and all(session.get("bit_identical") for session in sessions)
        sessions.append({"from_step": step, "bit_identical": exact, "changed": changed, **now})
        write(history, json.dumps({"sessions": sessions}, indent=1) + "\n")
        self.mirror = Mirror(self.folder, self.config)

    def log(self, event: str, step: int, timing: dict | None = None, **values: object) -> None:
        """Append one event."""
        if not self.place.first:
            return
        line = finite({"step": step, "event": event, **values} | ({"timing": timing} if timing else {}))
        try:
            with open(self.metrics, "a") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise WriteError(f"cannot write {self.metrics}: {error.strerror}") from None
        if self.mirror is not None:
            self.mirror.log(line)

    def summary(self, status: str, **values: object) -> None:
        """Write summary.json."""
        if self.place.first:
            write(self.folder / "summary.json", described(self.folder, self.config, status, **values))

    def close(self) -> bool:
        """End the mirror; False where it had to be left behind."""
        return self.mirror is None or self.mirror.close()
