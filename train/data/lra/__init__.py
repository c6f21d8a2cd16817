"""The Long Range Arena's data: five tasks read from their official layouts into token sets.

`options` is the config's dataset: name, kind (one of `KINDS`), folder (below the data root), max_length,
padded_length, train_size, eval_size (None: all; a number: a fixed subset), and split for Pathfinder.
"""

from pathlib import Path

from omegaconf import DictConfig

from train.data.lra import image, listops, pathfinder, retrieval, text
from train.data.lra.presence import missing
from train.data.lra.tokens import TokenSet
from train.errors import UserError

__all__ = ["KINDS", "TokenSet", "load", "missing"]

KINDS = {"listops": listops, "text": text, "retrieval": retrieval, "image": image, "pathfinder": pathfinder}


def load(options: DictConfig, root: Path) -> dict[str, TokenSet]:
    """A task's train, dev and test set.

    Raises:
        UserError: naming the file (and line) of what is missing or wrong.
    """
    if options.kind not in KINDS:
        raise UserError(f"dataset.kind={options.kind}: there are {', '.join(KINDS)}")
    return KINDS[options.kind].load(options, Path(root).expanduser())
