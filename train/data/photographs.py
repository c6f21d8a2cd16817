"""Where photographs lie and how one is read: class folders, the official archives, or the hub's parquet shards.

Each layout gives the same thing: `len`, `identifiers` (one per class), `label(i)`, `name(i)` and `read(i)`, which
returns an RGB image or raises one of `UNREADABLE`.
"""

import io
import re
from pathlib import Path

import numpy
from omegaconf import DictConfig
from PIL import Image
from torchvision.datasets import ImageFolder, ImageNet

from train.errors import UserError

UNREADABLE = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    Image.DecompressionBombError,
)  # what PIL raises for a bad file
SHARDS = {"train": "train-*.parquet", "val": "validation-*.parquet"}
LAYOUTS = ("folder", "archives", "parquet", "hub")


class Labelled:
    """What both layouts keep in memory: a label for each image."""

    _labels: numpy.ndarray  # int64 [N]

    def __len__(self) -> int:
        return len(self._labels)

    def label(self, index: int) -> int:
        """The class of an image."""
        return int(self._labels[index])

    def labels(self) -> numpy.ndarray:
        """The classes of all images, int64 [N]."""
        return self._labels


class Folder(Labelled):
    """`<root>/<split>/<class>/*`; the label is the class folder's place in alphabetical order."""

    def __init__(self, root: Path, split: str, found: ImageFolder | None = None) -> None:
        try:
            found = found or ImageFolder(str(root / split))
        except FileNotFoundError as error:
            raise UserError(str(error).splitlines()[0]) from None
        self.root = root / split
        self.identifiers = list(getattr(found, "wnids", found.classes))
        # Arrays, not a list of tuples: every loader worker would copy the list's pages as it counts references.
        self._names = numpy.array([str(Path(path).relative_to(self.root)).encode() for path, _ in found.samples])
        self._labels = numpy.array(found.targets)

    def name(self, index: int) -> str:
        """The file, beginning at its split."""
        return f"{self.root.name}/{self._names[index].decode()}"

    def read(self, index: int) -> Image.Image:
        """Decode one image."""
        with open(self.root / self._names[index].decode(), "rb") as file:
            return Image.open(file).convert("RGB")


class Parquet(Labelled):
    """`<split>-*.parquet` with columns `image` ({bytes, path}) and `label`, as on the hub; mapped, not loaded.

    The `datasets` library writes them once, as Arrow files, into its cache (HF_DATASETS_CACHE), where any image can
    be read at once; that takes as much disk as the shards themselves.
    """

    def __init__(self, root: Path, split: str, hub: tuple[str, str] | None = None) -> None:
        from datasets import Image as Encoded
        from datasets import disable_progress_bars, load_dataset

        self.split = split
        files = shards(root, split)
        disable_progress_bars()
        try:
            if files:
                table = load_dataset("parquet", data_files=[str(file) for file in files], split="train")
            elif hub is not None:
                name = "validation" if split == "val" else split
                table = load_dataset(hub[0], revision=hub[1], split=name)
            else:
                raise UserError(f"{root} holds no {SHARDS[split]}: set dataset.layout=hub to fetch them")
        except (OSError, ValueError, RuntimeError) as error:
            where = f"{len(files)} parquet shards in {root}" if files else f"{hub[0]} at {hub[1]} on the hub"
            raise UserError(f"{where} cannot be read: {str(error).splitlines()[0]}") from None
        if not {"image", "label"} <= set(table.column_names):
            raise UserError(
                f"{files[0] if files else hub[0]} has columns {table.column_names}: image, label are needed"
            )
        self._labels = numpy.array(table["label"], dtype=numpy.int64)
        self._table = table.cast_column("image", Encoded(decode=False)).select_columns(["image"])
        self.identifiers = self._identifiers()

    def _identifiers(self) -> list[str]:
        """Each class's identifier, from the file name that a shard keeps (`n01440764_10026.JPEG`), else its number."""
        found = []
        for label in range(int(self._labels.max()) + 1 if len(self._labels) else 0):
            places = numpy.flatnonzero(self._labels == label)
            names = re.findall(r"n\d{8}", self.name(int(places[0]))) if len(places) else []
            found.append(names[-1] if names else str(label))
        return found

    def name(self, index: int) -> str:
        """The file name that the shard keeps, and the row."""
        return f"{self.split} row {index} ({self._table[index]['image']['path']})"

    def read(self, index: int) -> Image.Image:
        """Decode one image."""
        return Image.open(io.BytesIO(self._table[index]["image"]["bytes"] or b"")).convert("RGB")


def shards(root: Path, split: str) -> list[Path]:
    """A split's parquet shards, in the folder itself or below `data/` (as the hub has them), in order."""
    return sorted(root.glob(SHARDS[split])) or sorted((root / "data").glob(SHARDS[split]))


def photographs(options: DictConfig, data_root: str, split: str) -> Folder | Parquet:
    """One split of an image set, in the layout that the config names.

    Args:
        options: the config's dataset.
        split: train or val.

    Raises:
        UserError: it is not there, or not what the layout says.
    """
    root = Path(data_root).expanduser() / options.name
    if options.layout == "folder":
        return Folder(root, split)
    if options.layout == "archives":
        try:
            return Folder(root, split, ImageNet(str(root), split))  # the first time it unpacks, which takes a while
        except (RuntimeError, OSError) as error:
            raise UserError(f"{root}: {' '.join(str(error).split())}") from None
    return Parquet(root, split, (options.hub, options.revision) if options.layout == "hub" else None)
