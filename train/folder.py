"""The run folder: a deterministic name, a lock, and what may not change inside it."""

import fcntl
import hashlib
import json
import os
import re
from pathlib import Path
from typing import TextIO

import yaml
from omegaconf import DictConfig

from train.compose import flatten
from train.errors import UserError
from train.schema import RESULT_KEYS

LONGEST = 120  # characters of a folder's name; file systems stop at 255 bytes


def tag(config: DictConfig) -> str:
    """`baseline`, or `<method>-lam<number>` with each non-default of layout, targets, when and modules."""
    conditioning = config.conditioning
    if conditioning.lam == 0:
        return "baseline"
    short = f"{conditioning.lam:g}"
    parts = [f"{conditioning.method}-lam{short if float(short) == conditioning.lam else conditioning.lam}"]
    defaults = {"layout": "matrix", "targets": "qkv", "when": "persistent", "modules": None}
    parts += [f"{key}={conditioning[key]}" for key, default in defaults.items() if conditioning[key] != default]
    return ",".join(parts)


def run_folder(config: DictConfig, distinguishing: list[str]) -> Path:
    """`<output_root>/<experiment>/<tag>[,key=value of what else differs]/seed<k>`, as an absolute path.

    Args:
        distinguishing: what `train.compose.distinguishing` gives; hashed where it is long.
    """
    name = ",".join([tag(config), *distinguishing])
    safe = re.sub(r"[^A-Za-z0-9_.,=+-]", "_", name)
    if safe != name or len(safe) > LONGEST:
        # Two names must never become one folder: what was cut or replaced is told apart by a hash.
        digest = hashlib.sha256(name.encode()).hexdigest()[:10]
        safe = f"{safe[:LONGEST]}+{digest}"
    return Path(config.output_root).expanduser().absolute() / config.experiment / safe / f"seed{config.seed}"


def check_unchanged(folder: Path, config: DictConfig) -> None:
    """Refuse to go on in a folder that holds a run of another config.

    Raises:
        UserError: naming the keys that differ.
    """
    path = folder / "config.yaml"
    if not path.exists():
        return
    from train.record_files import plain_config  # which imports this module

    recorded = plain_config(config)
    held, asked = flatten(result_changing_of(path)), flatten({key: recorded[key] for key in RESULT_KEYS})
    changed = [key for key in sorted(held.keys() | asked.keys()) if held.get(key) != asked.get(key)]
    if changed:
        shown = "; ".join(f"{key}: {held.get(key)!r} there, {asked.get(key)!r} asked" for key in changed[:5])
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        raise UserError(
            f"{folder} holds a run of another config ({shown}{more}): set output_root to another folder, or move it"
        )


def result_changing_of(path: Path) -> dict:
    """The result-changing part of a recorded config.yaml.

    Raises:
        UserError: the file is not a recorded config.
    """
    try:
        recorded = yaml.safe_load(path.read_text())
        return {key: recorded[key] for key in RESULT_KEYS}
    except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged ({type(error).__name__}): move the run folder away") from None


def summary(folder: Path) -> dict:
    """What a folder's summary.json says; empty where there is none that can be read.

    Its `status` is running, complete, stopped, failed or diverged.
    """
    try:
        content = json.loads((folder / "summary.json").read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def primary_metric(held: dict) -> str:
    """`top1 44.05`: the primary metric of a summary; empty where it has no finite one."""
    name, metrics = held.get("primary"), held.get("metrics")
    value = metrics.get(name) if isinstance(metrics, dict) and isinstance(name, str) else None
    return f"{name} {value:.2f}" if isinstance(value, (int, float)) else ""


def check_writable(folder: Path) -> None:
    """Refuse an output folder that cannot be made or written, before anything is created.

    Raises:
        UserError: naming the folder that stands in the way.
    """
    standing = folder
    while not os.path.lexists(standing):
        standing = standing.parent
    if not standing.is_dir() or not os.access(standing, os.W_OK | os.X_OK):
        raise UserError(f"cannot write below {standing}: set output_root to a folder that can be written")


def lock(folder: Path) -> TextIO:
    """Hold a run folder for this process until it ends (loader processes, which are forked from it, end with it).

    Raises:
        UserError: another process holds it, or it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = open(folder / "lock", "a")  # noqa: SIM115 - held open as long as the run goes
    except OSError as error:
        raise UserError(f"cannot make {folder}: {error.strerror}: set output_root to another folder") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        handle.close()
        raise UserError(f"another process is running in {folder}: wait for it, or stop it") from None
    return handle
