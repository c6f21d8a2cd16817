"""One unit of text to packed sequences: tokens of its documents, `<sep>` after each, cut to one length.

What does not fill a unit's last sequence is left out. Sequences go to disk as they come, so that memory does not grow
with the unit. A part is two files of uint16 [sequences, length], for training and held out, and a note that holds
their hashes and the counts; it is written last, and a part with a note is never made again.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy
from tokenizers import Tokenizer

from train.data.corpus import cleaning, wordpiece
from train.data.corpus.documents import Unit, documents, file_hash
from train.record_files import write
from train.schema_language import Text

BATCH_CHARACTERS = 1 << 19  # encoded at a time
FLUSH = 1 << 20  # tokens held before they are written
SPLITS = ("train", "held_out")
COUNTS = ("documents", "characters", "short", "trash", "duplicates", "tokens", "unknown")


@dataclass
class Job:
    """What a worker needs to know."""

    options: Text
    folder: Path  # of the parts
    tokenizer: str  # its JSON
    filter: str | None  # the trash filter's tokenizer as JSON; None: the same
    keep: bool = False  # whether <part>.keep.npy says which documents are no near-duplicates


class Stream:
    """Tokens in, whole sequences out, into a file."""

    def __init__(self, file: IO[bytes], length: int) -> None:
        self.file, self.length, self.sequences = file, length, 0
        self.held: list[numpy.ndarray] = []
        self.count = 0

    def add(self, tokens: list[int]) -> None:
        """Append a document's tokens and `<sep>`."""
        self.held.append(numpy.array([*tokens, wordpiece.SEP], numpy.uint16))
        self.count += len(tokens) + 1
        if self.count >= FLUSH:
            self.flush()

    def flush(self) -> None:
        """Write the sequences that are whole."""
        if not self.count:
            return
        tokens = numpy.concatenate(self.held)
        whole = len(tokens) // self.length
        self.file.write(tokens[: whole * self.length].tobytes())
        self.sequences += whole
        self.held = [tokens[whole * self.length :]]
        self.count = len(self.held[0])


_prepared: tuple[Job, Tokenizer, Tokenizer | None] | None = None


def prepare(job: Job) -> None:
    """Make this process ready to pack (a worker's initialiser)."""
    global _prepared
    wordpiece.one_thread()
    counting = None if job.filter is None else Tokenizer.from_str(job.filter)
    _prepared = job, Tokenizer.from_str(job.tokenizer), counting


def pack(index: int, unit: Unit) -> dict:
    """Pack a unit into the part `index`, unless that is there; returns its note."""
    job, tokenizer, counting = _prepared
    note = job.folder / f"{index:06d}.json"
    if (held := _sound(note)) is not None:
        return held
    counts = dict.fromkeys(COUNTS, 0)
    paths = {split: job.folder / f"{index:06d}.{split}.bin" for split in SPLITS}
    keep = numpy.load(job.folder / f"{index:06d}.keep.npy", allow_pickle=False) if job.keep else None
    with open(paths["train"], "wb") as train, open(paths["held_out"], "wb") as held_out:
        streams = {"train": Stream(train, job.options.length), "held_out": Stream(held_out, job.options.length)}
        for batch in _batches(_kept(unit, job.options, counts, keep)):
            encoded = tokenizer.encode_batch(batch, add_special_tokens=False)
            sizes = encoded if counting is None else counting.encode_batch(batch, add_special_tokens=False)
            for text, encoding, size in zip(batch, encoded, sizes, strict=True):
                if cleaning.is_trash(len(size), len(text), job.options.filter_ratio):
                    counts["trash"] += 1
                    continue
                tokens = encoding.ids
                counts["tokens"] += len(tokens)
                counts["unknown"] += tokens.count(wordpiece.UNKNOWN)
                streams["held_out" if is_held_out(unit, text, job.options) else "train"].add(tokens)
        for stream in streams.values():
            stream.flush()
    found = {
        "counts": counts,
        "sequences": {split: stream.sequences for split, stream in streams.items()},
        "sha256": {path.name: file_hash(path) for path in paths.values()},
    }
    write(note, json.dumps(found))
    return found


def is_held_out(unit: Unit, text: str, options: Text) -> bool:
    """Whether a document is for measuring the loss alone."""
    return unit.held_out or (options.held_out_share > 0 and cleaning.held_out_by_hash(text, options.held_out_share))


def sign(index: int, unit: Unit) -> None:
    """Write the signatures of a unit's documents, and which are held out, for the search for near-duplicates."""
    job = _prepared[0]
    target = job.folder / f"{index:06d}.signatures.npz"
    if target.exists():
        return
    bands, apart = [], []
    for text in documents(unit, job.options):
        bands.append(cleaning.signature(text))
        apart.append(is_held_out(unit, text, job.options))
    unfinished = target.with_suffix(".tmp.npz")
    bands = numpy.array(bands, numpy.uint64).reshape(-1, cleaning.BANDS)
    numpy.savez(unfinished, bands=bands, held_out=numpy.array(apart, bool))
    unfinished.replace(target)


def _kept(unit: Unit, options: Text, counts: dict[str, int], keep: numpy.ndarray | None) -> Iterator[str]:
    for number, text in enumerate(documents(unit, options)):
        counts["documents"] += 1
        counts["characters"] += len(text)
        if len(text) < options.min_characters:
            counts["short"] += 1
        elif keep is not None and not keep[number]:
            counts["duplicates"] += 1
        else:
            yield text


def _batches(texts: Iterator[str]) -> Iterator[list[str]]:
    batch, size = [], 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _sound(note: Path) -> dict | None:
    """A finished part's note; None where the part has to be made."""
    try:
        found = json.loads(note.read_text())
        if all(file_hash(note.with_name(name)) == digest for name, digest in found["sha256"].items()):
            return found
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return None
