"""Where text lies and how documents are read from it: plain text, JSON lines or parquet, in units of bounded size.

A unit is what one worker takes at a time: a stretch of a text file cut between two documents, or a whole file of the
other kinds. The cuts follow from the files alone, so that any number of workers packs the same sequences.
"""

import gzip
import hashlib
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from train.errors import UserError
from train.schema_language import Text

UNIT_BYTES = 8 << 20
CONTROLS = dict.fromkeys((*range(32), 127), " ")  # a document is one line
BLANK = re.compile(r"\n\s*\n")


@dataclass(frozen=True)
class Source:
    """One file."""

    name: str  # below the folder
    path: Path
    bytes: int

    def sha256(self) -> str:
        """The hash of its content."""
        return file_hash(self.path)


@dataclass(frozen=True)
class Unit:
    """A stretch of a file; `stop` None: the whole file, read as a stream."""

    source: Source
    held_out: bool
    start: int = 0
    stop: int | None = None


def file_hash(path: Path) -> str:
    """A file's sha256; its memory does not grow with the file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_of(options: Text, data_root: str | None) -> Path:
    """Where a corpus's files lie.

    Raises:
        UserError: no data root was named, and the folder is not absolute.
    """
    folder = Path(options.folder).expanduser()
    if folder.is_absolute():
        return folder
    if data_root is None:
        raise UserError(f"no data root: set DATA_ROOT (or data_root=...) to the folder that holds {options.folder}")
    return Path(data_root).expanduser() / folder


def sources(options: Text, data_root: str | None) -> list[Source]:
    """The corpus's files in alphabetical order, fetched from the hub where they are not there and a commit is named.

    Raises:
        UserError: there are none.
    """
    folder = folder_of(options, data_root)
    if not folder.is_dir() and options.hub is not None:
        folder = fetched(options)
    if not folder.is_dir():
        raise UserError(
            f"{folder} is not there: set dataset.folder, or dataset=text_made for text that the project makes itself"
        )
    paths = sorted(path for path in folder.glob(options.files) if path.is_file())[: options.max_files]
    found = [Source(str(path.relative_to(folder)), path, path.stat().st_size) for path in paths]
    found = [source for source in found if source.bytes]
    if not found:
        raise UserError(f"{folder} holds no text: no file of it matches dataset.files={options.files}")
    return found


def fetched(options: Text) -> Path:
    """The folder that the hub's files lie in, at the commit that is pinned.

    Raises:
        UserError: they cannot be had.
    """
    from huggingface_hub import HfApi, hf_hub_download

    try:
        names = HfApi().list_repo_files(options.hub, revision=options.revision, repo_type="dataset")
        names = sorted(name for name in names if Path(name).match(options.files))[: options.max_files]
        files = [hf_hub_download(options.hub, name, revision=options.revision, repo_type="dataset") for name in names]
    except Exception as error:  # no network, no such data set, a full disk: the hub's client has many ways to say so
        raise UserError(
            f"{options.hub} at {options.revision} cannot be had from the hub: {' '.join(str(error).split())[:200]}"
        ) from None
    if not files:
        raise UserError(f"{options.hub} at {options.revision} holds no file that matches {options.files}")
    return Path(files[0]).parents[len(Path(names[0]).parts) - 1]


def units(found: list[Source], options: Text) -> list[Unit]:
    """All units, in order.

    Raises:
        UserError: a glob of `held_out` matches no file, or every file is held out.
    """
    for pattern in options.held_out:
        if not any(fnmatch(source.name, pattern) for source in found):
            raise UserError(f"dataset.held_out: no file matches {pattern!r}")
    listed = []
    for source in found:
        held_out = any(fnmatch(source.name, pattern) for pattern in options.held_out)
        if source.path.suffix == ".txt" and options.documents != "file":
            cuts = [0, *_cuts(source, options.documents), source.bytes]
            listed += [Unit(source, held_out, *pair) for pair in itertools.pairwise(cuts)]
        else:
            listed.append(Unit(source, held_out))
    if all(unit.held_out for unit in listed):
        raise UserError("dataset.held_out matches every file: nothing is left to train on")
    if not options.held_out_share and not any(unit.held_out for unit in listed):
        raise UserError("nothing is held out: set dataset.held_out (globs of files) or dataset.held_out_share")
    return listed


def _cuts(source: Source, documents: str) -> Iterator[int]:
    """Places between two documents, about UNIT_BYTES apart."""
    with open(source.path, "rb") as file:
        place = UNIT_BYTES
        while place < source.bytes:
            file.seek(place)
            file.readline()  # the rest of a line: it may be its end alone, which is no blank line
            while documents == "paragraph" and file.readline().strip():
                pass
            place = file.tell()
            if place < source.bytes:
                yield place
            place += UNIT_BYTES


def documents(unit: Unit, options: Text) -> Iterator[str]:
    """The documents of a unit, each one line of single-spaced text.

    Raises:
        UserError: the file is not what its name says.
    """
    for raw in _raw(unit, options):
        text = " ".join(raw.translate(CONTROLS).split())
        if text:
            yield text


def _raw(unit: Unit, options: Text) -> Iterator[str]:
    path, name = unit.source.path, unit.source.name
    try:
        if path.suffix == ".parquet":
            import pyarrow.parquet

            for batch in pyarrow.parquet.ParquetFile(path).iter_batches(1024, columns=[options.column]):
                yield from (text for text in batch[options.column].to_pylist() if text)
        elif path.suffix in (".jsonl", ".json", ".gz"):
            with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
                for number, line in enumerate(file, 1):
                    if line.strip():
                        record = json.loads(line)
                        if not isinstance(record, dict) or not isinstance(record.get(options.column), str):
                            raise UserError(f"{path}, line {number}: no text under {options.column!r}")
                        yield record[options.column]
        else:
            with open(path, "rb") as file:
                file.seek(unit.start)
                stretch = file.read() if unit.stop is None else file.read(unit.stop - unit.start)
            text = stretch.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
            yield from {
                "file": lambda: [text],
                "line": lambda: text.split("\n"),
                "paragraph": lambda: BLANK.split(text),
            }[options.documents]()
    except UserError:
        raise
    except Exception as error:  # gzip, JSON, parquet and the disk each have their own
        raise UserError(f"{path} ({name}) cannot be read: {' '.join(str(error).split())[:200]}") from None
