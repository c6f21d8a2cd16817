"""The folder that a generator fills: a manifest with every setting, a lock, and files that are whole or not there.

`manifest.json` is written first, with `"complete": false`; it turns true when every other file is in place. The same
command goes on where it stopped; other settings are refused.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from train.errors import UserError, WriteError

MANIFEST = "manifest.json"


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there in full, or not at all, also after a power cut.

    Raises:
        WriteError: the disk is full or refuses.
    """
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: Path) -> Iterator:
    """A binary file to write to, which takes its name only when the block has ended without an error."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise WriteError(f"cannot write {path}: {error.strerror}; the same command goes on from here") from None
    finally:
        temporary.unlink(missing_ok=True)


class Claim:
    """A generator's folder, held by this process alone within a `with` block.

    Args:
        folder: made where it is not there.
        generator: the generator's name.
        settings: everything that changes a byte of the result, plain JSON values.

    Raises:
        UserError: the folder holds other settings, files of other origin, or another process at work.
    """

    def __init__(self, folder: Path, generator: str, settings: dict) -> None:
        self.folder = folder
        self.content = {"generator": generator, "settings": settings, "complete": False}
        if folder.is_dir():
            self._check(folder, generator, settings)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = open(folder / ".lock", "a")  # noqa: SIM115 - held as long as the work goes
        except OSError as error:
            raise UserError(f"cannot make {folder}: {error.strerror}: choose another --out") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise UserError(f"another process is generating in {folder}: wait for it, or stop it") from None
        if not self.complete:
            self._write()

    @property
    def complete(self) -> bool:
        """Whether the folder was finished, by this process or an earlier one."""
        return self.content["complete"]

    def finish(self, files: list[str], **statistics: object) -> None:
        """Say that everything is in place: `files` (names within the folder) and what was counted."""
        self.content |= {"statistics": statistics, "files": files, "complete": True}
        self._write()

    def __enter__(self) -> "Claim":
        return self

    def __exit__(self, *error: object) -> None:
        self._lock.close()

    def _write(self) -> None:
        write_whole(self.folder / MANIFEST, (json.dumps(self.content, indent=1) + "\n").encode())

    def _check(self, folder: Path, generator: str, settings: dict) -> None:
        """Refuse what is not ours, and take over what an earlier process finished."""
        path = folder / MANIFEST
        if not path.exists():
            # A manifest cut short by a kill is a temporary file, and the lock comes before it.
            foreign = [entry.name for entry in folder.iterdir() if entry.name not in (".lock", f".{MANIFEST}.tmp")]
            if foreign:
                raise UserError(f"{folder} holds {foreign[0]} but no {MANIFEST}: choose an empty or new --out")
            return
        try:
            held = json.loads(path.read_text())
            made_by, there, complete = held["generator"], held["settings"], held["complete"]
        except (OSError, ValueError, KeyError, TypeError):
            raise UserError(f"{path} is damaged: remove the folder, or choose another --out") from None
        if made_by != generator:
            raise UserError(f"{folder} holds {made_by} data, not {generator}: choose another --out")
        changed = [key for key in sorted(there.keys() | settings.keys()) if there.get(key) != settings.get(key)]
        if changed:
            shown = "; ".join(f"{key}: {there.get(key)!r} there, {settings.get(key)!r} asked" for key in changed)
            raise UserError(f"{folder} was made with other settings ({shown}): choose another --out")
        if complete and all((folder / name).exists() for name in held.get("files", [])):
            self.content = held
