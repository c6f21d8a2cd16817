"""Check a Long Range Arena task's data: every file read, counts, labels and lengths (make check-data ROW=lra-text)."""

from pathlib import Path

import numpy
from omegaconf import DictConfig

from train.data import lra
from train.data.lra.tokens import TokenSet
from train.data.presence import root_of


def check(config: DictConfig) -> list[str]:
    """Read the three sets whole, print what they hold, and return what is not as the config says.

    Raises:
        UserError: a file cannot be read, naming it and the line.
    """
    options = config.dataset
    sets = lra.load(options, Path(root_of(config)).expanduser())
    problems = []
    for index, (split, data) in enumerate(sets.items()):
        print(f"{split}: {described(data)}")
        limit = options.train_size if split == "train" else options.eval_size
        expected = options.sizes and (limit or options.sizes[index])
        if expected and len(data) != expected:
            problems.append(f"{split} holds {len(data):,} samples, the config says {expected:,}")
        lacking = sorted(set(range(options.classes)) - set(data.labels.unique().tolist()))
        if lacking:
            problems.append(f"{split} holds no sample of the classes {', '.join(map(str, lacking))}")
    return problems


def described(data: TokenSet) -> str:
    """Size, lengths in tokens and the share of each label, in one line."""
    lengths = numpy.diff(data.offsets)
    shares = data.labels.bincount().double() / len(data)
    labels = " ".join(f"{100 * share:.1f}" for share in shares.tolist())
    return (
        f"{len(data):,} samples, {lengths.min()} to {lengths.max()} tokens (median {numpy.median(lengths):.0f}), "
        f"labels in percent: {labels}"
    )
