"""Tab-separated files, read line by line, each mistake named by file and line."""

from collections.abc import Iterator
from pathlib import Path

from train.errors import UserError


def opened(path: Path) -> Iterator[tuple[int, bytes]]:
    """Line numbers from 1 and lines without their end; a file that breaks off is an error.

    Raises:
        UserError: it is not there, cannot be read, is empty, has an empty line, or ends in the middle of one.
    """
    number = 0
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    raise UserError(f"{path}, line {number}: the file ends in the middle of a line: copy it again")
                line = line.rstrip(b"\r\n")
                if not line:
                    raise UserError(f"{path}, line {number} is empty")
                yield number, line
    except FileNotFoundError:
        raise UserError(f"{path} is not there") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    if not number:
        raise UserError(f"{path} is empty")


def columns(path: Path, number: int, line: bytes, count: int) -> list[bytes]:
    """A line's columns.

    Raises:
        UserError: there are more or fewer than `count`.
    """
    found = line.split(b"\t")
    if len(found) != count:
        raise UserError(f"{path}, line {number}: {len(found)} tab-separated columns, not {count}")
    return found


def quoted(content: bytes) -> str:
    """A piece of a file as it can be shown in an error."""
    return repr(content[:40].decode("utf-8", "replace"))
