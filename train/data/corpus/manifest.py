"""A packed corpus on disk and its manifest: what it was made of, how, and the hash of every file.

train.bin, held_out.bin    uint16 [sequences, length], mapped into memory
tokenizer.json             the WordPiece they were made with
manifest.json              settings, sources, counts, hashes; written last: without it the corpus is unfinished
"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

import numpy
from tokenizers import Tokenizer

from train.data.corpus import wordpiece
from train.data.corpus.documents import file_hash
from train.errors import UserError
from train.schema_language import Text

FORMAT = 1
NAME = "manifest.json"
FILES = {"train": "train.bin", "held_out": "held_out.bin"}


@dataclass(frozen=True)
class Packed:
    """A verified corpus."""

    folder: Path
    manifest: dict
    train: numpy.ndarray  # uint16 [sequences, length], mapped
    held_out: numpy.ndarray
    tokenizer: Tokenizer

    @property
    def unigram_entropy(self) -> float:
        """Nats a token that the best model without context needs on the held-out text."""
        return self.manifest["unigram_entropy"]


def settings(options: Text) -> dict:
    """What of a data set's config changes the packed sequences: everything, but where to fetch it."""
    return {key: value for key, value in dataclasses.asdict(options).items() if key not in ("hub", "revision")}


def load(folder: Path, options: Text) -> Packed:
    """Open a corpus after comparing its settings, sizes and hashes.

    Raises:
        UserError: it is unfinished, was made with other settings, or a file is not what was written; names the file.
    """
    manifest = read(folder)
    asked = settings(options)
    held = manifest["settings"]
    changed = [key for key in sorted(asked.keys() | held.keys()) if asked.get(key) != held.get(key)]
    if changed:
        said = "; ".join(f"dataset.{key}: {held.get(key)!r} there, {asked.get(key)!r} asked" for key in changed[:4])
        raise UserError(f"{folder / NAME} is of a corpus made with other settings ({said})")
    for name, about in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            raise UserError(f"{path} is not there: remove {folder}, and the corpus is made anew")
        if path.stat().st_size != about["bytes"] or file_hash(path) != about["sha256"]:
            raise UserError(f"{path} is damaged (its sha256 differs from {NAME}): remove {folder} to make it anew")
    return Packed(
        folder,
        manifest,
        *(_mapped(folder / FILES[split], options.length) for split in ("train", "held_out")),
        wordpiece.read(folder / "tokenizer.json"),
    )


def read(folder: Path) -> dict:
    """A corpus's manifest.

    Raises:
        UserError: it is missing or damaged.
    """
    path = folder / NAME
    try:
        manifest = json.loads(path.read_text())
        wanted = {"format", "settings", "sources", "files", "counts", "unigram_entropy"}
        if manifest["format"] != FORMAT or wanted - manifest.keys():
            raise ValueError
    except FileNotFoundError:
        raise UserError(f"{path} is not there: {folder} holds no finished corpus") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{path} is damaged, or of another version: remove {folder} to make it anew") from None
    return manifest


def _mapped(path: Path, length: int) -> numpy.ndarray:
    size = path.stat().st_size // (2 * length)
    return numpy.memmap(path, numpy.uint16, "r", shape=(size, length)) if size else numpy.empty((0, length), "uint16")


def unigram_entropy(path: Path, length: int, vocabulary: int) -> float:
    """Entropy in nats of the distribution of a file's tokens, specials left out.

    No model that ignores context has a lower cross-entropy on this text, not even one that knows its frequencies.
    """
    from train.data.corpus.merging import blocks

    counts = numpy.zeros(vocabulary, numpy.int64)
    for block in blocks(path, length):
        counts += numpy.bincount(block.reshape(-1), minlength=vocabulary)
    counts = counts[len(wordpiece.SPECIALS) :]
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * numpy.log(shares)).sum())
