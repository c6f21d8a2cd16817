"""The Long Range Arena's data: five tasks read from their official layouts into token sets.

`options` is the config's dataset: name, kind (one of `KINDS`), folder (below the data root), max_length,
padded_length, train_size, eval_size (None: all; a number: a fixed subset), and split for Pathfinder.
"""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from train.data.lra.presence import missing
from train.errors import UserError

if TYPE_CHECKING:
    from train.data.lra.tokens import TokenSet

__all__ = ["KINDS", "load", "missing"]

KINDS = ("listops", "text", "retrieval", "image", "pathfinder")  # each a module of this package


def load(options: DictConfig, root: Path) -> dict[str, "TokenSet"]:
    """A task's sets by the names train, dev and test.

    Raises:
        UserError: naming the file (and line) of what is missing or wrong.
    """
    if options.kind not in KINDS:
        raise UserError(f"dataset.kind={options.kind}: there are {', '.join(KINDS)}")
    # Not at the top: whether files are missing is asked before torch is imported.
    task = importlib.import_module(f"train.data.lra.{options.kind}")
    return task.load(options, Path(root).expanduser())
