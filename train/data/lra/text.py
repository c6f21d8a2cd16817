"""Text: IMDB's reviews as bytes, {train,test}/{neg,pos}/*.txt. The dev set is the test set, as in LRA.

A token is a byte plus 1. Label 1 is positive. The published lengths are settled here: 4,000 bytes of a review and 96
of padding (the original's loader says 1,000, its authors that the published score is for 4,000).
"""

from pathlib import Path

from omegaconf import DictConfig

from train.data.lra.tokens import Builder, TokenSet, chosen
from train.errors import UserError

LABELS = ("neg", "pos")


def reviews(folder: Path) -> list[tuple[Path, int]]:
    """The files of a split and their labels, in the order of label and name."""
    found = []
    for label, name in enumerate(LABELS):
        files = sorted((folder / name).glob("*.txt"))
        if not files:
            raise UserError(f"{folder / name} holds no .txt file")
        found += [(file, label) for file in files]
    return found


def read(folder: Path, options: DictConfig, key: str) -> TokenSet:
    """One split, or the fixed subset of it that `options.<key>` asks for."""
    files = reviews(folder)
    indices = chosen(len(files), getattr(options, key), key)
    built = Builder(options.max_length, options.padded_length, shift=1)
    for file, label in files if indices is None else [files[index] for index in indices.tolist()]:
        try:
            with open(file, "rb") as opened:
                content = opened.read(options.max_length)
        except OSError as error:
            raise UserError(f"{file} cannot be read: {error.strerror}") from None
        if not content.strip():
            raise UserError(f"{file} is empty")
        built.add(label, content)
    return built.done()


def load(options: DictConfig, root: Path) -> dict[str, TokenSet]:
    """Train and test; dev is the same object as test."""
    test = read(root / options.folder / "test", options, "eval_size")
    return {"train": read(root / options.folder / "train", options, "train_size"), "dev": test, "test": test}
