"""Checkpoints: everything a run needs to go on exactly, in files that are whole or absent and cannot run code.

`checkpoint-<step>.pt` holds tensors and plain values (read with weights_only), `checkpoint-<step>.pt.sha256`
its hash (as `sha256sum -c` reads it). The two newest are kept, and a copy of the best as `best.pt`.
"""

import hashlib
import io
import os
import shutil
from pathlib import Path

import torch

from train.errors import UserError, WriteError
from train.record_files import write

KEPT = 2


def save(folder: Path, step: int, state: dict) -> Path:
    """Write a checkpoint whole or not at all, then remove all but the newest two.

    Raises:
        WriteError: the disk is full or refuses; the checkpoints that were there are untouched.
    """
    path = path_of(folder, step)
    _write(path, _encoded(state))
    for old in checkpoints(folder)[:-KEPT]:
        _remove(old)
    return path


def path_of(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return folder / f"checkpoint-{step:09d}.pt"


def keep_best(folder: Path, path: Path) -> None:
    """Keep a checkpoint as best.pt as well (a hard link where the file system has them)."""
    best = folder / "best.pt"
    temporary = best.with_name(f".{best.name}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        try:
            os.link(path, temporary)
        except OSError:  # a file system without links
            shutil.copyfile(path, temporary)
        digest = _hash_file(path).read_text().split()[0]
        write(_hash_file(best), f"{digest}  {best.name}\n")
        os.replace(temporary, best)
    except OSError as error:
        raise WriteError(f"cannot write {best}: {error.strerror}; the checkpoint itself is safe") from None
    finally:
        temporary.unlink(missing_ok=True)


def clean(folder: Path) -> None:
    """Remove what a process that was killed while it wrote has left."""
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)


def checkpoints(folder: Path) -> list[Path]:
    """A folder's checkpoints, oldest first."""
    return sorted(folder.glob("checkpoint-*.pt"))


def newest(folder: Path) -> tuple[Path | None, dict | None, dict[Path, str]]:
    """The newest checkpoint that is sound, what it holds, and what is wrong with each newer one.

    Raises:
        UserError: there are checkpoints, and none is sound; or one cannot be read at all.
    """
    damaged = {}
    for path in reversed(checkpoints(folder)):
        try:
            return path, load(path), damaged
        except Damaged as error:
            damaged[path] = str(error)
    if damaged:
        raise UserError(f"{next(iter(damaged.values()))}; no other is sound: move {folder} away to start again")
    return None, None, {}


def set_aside(path: Path) -> None:
    """Rename a damaged checkpoint to `<name>.damaged`, out of the way of those to come but not lost."""
    for file in (path, _hash_file(path)):
        if file.exists():
            file.rename(file.with_name(file.name + ".damaged"))


class Damaged(UserError):
    """A file that was read and is not what was once written."""


def load(path: Path) -> dict:
    """Read a checkpoint onto the CPU.

    Raises:
        Damaged: it is not what was written, or holds more than tensors and plain values.
        UserError: it cannot be read.
    """
    try:
        content = path.read_bytes()
        expected = _hash_file(path).read_bytes().split()
    except FileNotFoundError as error:
        raise Damaged(
            f"{error.filename} is not there: a checkpoint is a .pt file with its .pt.sha256 beside it"
        ) from None
    except OSError as error:
        raise UserError(f"{error.filename} cannot be read: {error.strerror}") from None
    if not expected or hashlib.sha256(content).hexdigest().encode() != expected[0]:
        raise Damaged(f"{path} is damaged (its sha256 differs from {_hash_file(path).name})")
    try:
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # whatever torch's reader raises, the file is not a checkpoint of ours
        raise Damaged(f"{path} is not a checkpoint: {(str(error).splitlines() or [type(error).__name__])[0]}") from None
    if not isinstance(state, dict) or not state.keys() >= {"step", "model"}:
        raise Damaged(f"{path} is not the checkpoint of a run")
    return state


def remove_all(folder: Path) -> None:
    """Remove every checkpoint of a run."""
    for path in [*checkpoints(folder), folder / "best.pt"]:
        _remove(path)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    _hash_file(path).unlink(missing_ok=True)


def _hash_file(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _encoded(state: dict) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def _write(path: Path, content: bytes) -> None:
    """The hash is in place before the checkpoint takes its name, so that a checkpoint always has one."""
    digest = f"{hashlib.sha256(content).hexdigest()}  {path.name}\n".encode()
    temporaries = []
    try:
        for target, data in ((_hash_file(path), digest), (path, content)):
            temporary = target.with_name(f".{target.name}.tmp")
            temporaries.append(temporary)
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
    except OSError as error:
        if not path.exists():
            _hash_file(path).unlink(missing_ok=True)
        raise WriteError(f"cannot write {path}: {error.strerror}; the earlier checkpoint is untouched") from None
    finally:
        for temporary in temporaries:
            temporary.unlink(missing_ok=True)
