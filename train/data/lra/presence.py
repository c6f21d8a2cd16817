"""Whether a Long Range Arena task's files are there, in one line, without opening a sample."""

import json
import re
from pathlib import Path

from omegaconf import DictConfig

from train.data import presence

RELEASE = "the Long Range Arena release (lra_release.gz)"
FILES = {
    "listops": ("basic_train.tsv", "basic_val.tsv", "basic_test.tsv"),
    "text": ("train/neg", "train/pos", "test/neg", "test/pos"),
    "retrieval": ("new_aan_pairs.train.tsv", "new_aan_pairs.eval.tsv", "new_aan_pairs.test.tsv"),
    "pathfinder": ("metadata", "imgs"),
}
# What gets the files; {folder} is where they are to lie.
REMEDIES = {
    "listops": f"unpack {RELEASE}, or run python -m scripts.make_listops --out {{folder}}",
    "text": "unpack IMDB's aclImdb_v1.tar.gz there, from ai.stanford.edu/~amaas/data/sentiment",
    "retrieval": "put AAN's pairs there, or make pairs of our own: python -m scripts.make_retrieval --out {folder}",
    "pathfinder": f"unpack {RELEASE}, or run python -m scripts.make_pathfinder --out {{folder}}{{level}}",
}


def missing(options: DictConfig, root: str | Path | None) -> str | None:
    """What has to be done before a task's files can be read, in one line, or None.

    Args:
        options: the config's dataset: name, kind and folder.
        root: the data root, or None where none was named.
    """
    if options.kind == "image":
        return presence.missing("cifar10", None if root is None else str(root))
    if root is None:
        return f"no data root: set DATA_ROOT (or data_root=...) to the folder that holds {options.folder}"
    folder = Path(root).expanduser() / options.folder
    remedy = REMEDIES[options.kind].format(folder=folder, level=level(folder.name))
    if not folder.is_dir():
        return f"{folder} is not there: {remedy}"
    if unfinished(folder):
        return f"{folder} is not finished: run the command that makes it again, it goes on where it stopped"
    lacking = [name for name in FILES[options.kind] if not (folder / name).exists()]
    return f"{folder} lacks {', '.join(lacking)}: {remedy}" if lacking else None


def level(name: str) -> str:
    """The generator's argument for a Pathfinder level's folder; its default is length 14."""
    length = re.fullmatch(r"curv_(?:contour_length_(\d+)|baseline)", name)
    return f" --contour-length {length[1] or 6}" if length else ""


def unfinished(folder: Path) -> bool:
    """Whether one of our generators was stopped before the folder was complete."""
    try:
        return not json.loads((folder / "manifest.json").read_text())["complete"]
    except FileNotFoundError:
        return False  # not ours: the official files
    except (OSError, ValueError, KeyError, TypeError):
        return True
