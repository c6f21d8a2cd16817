"""How a script that makes files from records begins and ends: one line for a mistake, nothing half-written."""

import sys
from collections.abc import Callable
from pathlib import Path

from train.errors import FAILED, USAGE, UserError, WriteError
from train.record_files import write

INTERRUPTED = 130


def ran(main: Callable[[], int]) -> int:
    """The exit status of a script's main; a mistake, a full disk and Ctrl-C are one line each."""
    try:
        return main()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    except UnicodeDecodeError as error:
        print(f"error: a file that is read as text is none ({error}): restore it from git", file=sys.stderr)
        return USAGE
    except (WriteError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("interrupted: each file is as it was or whole; the same command goes on", file=sys.stderr)
        return INTERRUPTED


def write_all(folder: Path, files: dict[str, str]) -> None:
    """Write files into a folder, each whole or not at all; what else lies there is named and left."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        if not (folder / name).exists() or (folder / name).read_text() != text:
            write(folder / name, text)
    for path in stale(folder, set(files)):
        print(f"note: {path} is made by nothing: remove it if it is not yours", file=sys.stderr)


def stale(folder: Path, names: set[str]) -> list[Path]:
    """The files in a folder that are none of those named."""
    return sorted(path for path in folder.iterdir() if path.is_file() and path.name not in names)
