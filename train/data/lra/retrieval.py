"""Retrieval: pairs of documents, new_aan_pairs.{train,eval,test}.tsv: label, id1, id2, text1, text2; no header.

A token is a byte plus 1. Of each text the first 10,000 bytes count, of which the first `max_length` stay. Nothing is
quoted: a quotation mark is a byte like any other.
"""

from pathlib import Path

from omegaconf import DictConfig

from train.data.lra.lines import columns, opened, quoted
from train.data.lra.tokens import Builder, TokenSet, limited
from train.errors import UserError

FILES = {"train": "new_aan_pairs.train.tsv", "dev": "new_aan_pairs.eval.tsv", "test": "new_aan_pairs.test.tsv"}
LONGEST = 10000
LABELS = {b"0": 0, b"0.0": 0, b"1": 1, b"1.0": 1}


def read(path: Path, max_length: int, padded_length: int) -> TokenSet:
    """One split; of a line no more than `max_length` bytes of each text are kept.

    Raises:
        UserError: naming file and line of what is wrong.
    """
    built = Builder(max_length, padded_length, shift=1, documents=2)
    for number, line in opened(path):
        label, _, _, *texts = columns(path, number, line, 5)
        if label not in LABELS:
            raise UserError(f"{path}, line {number}: the label is {quoted(label)}, not 0.0 or 1.0")
        if not all(text.strip() for text in texts):
            raise UserError(f"{path}, line {number}: a text is empty")
        built.add(LABELS[label], *(text[:LONGEST] for text in texts))
    return built.done()


def load(options: DictConfig, root: Path) -> dict[str, TokenSet]:
    """The three splits."""
    found = {}
    for split, name in FILES.items():
        samples = read(root / options.folder / name, options.max_length, options.padded_length)
        key = "train_size" if split == "train" else "eval_size"
        found[split] = limited(samples, getattr(options, key), key)
    return found
