"""Whether a config's data is there, said before anything heavy is imported or created."""

import itertools
from pathlib import Path

from omegaconf import DictConfig

EMBEDDED = ("digits",)
PARQUET = ("cifar10",)
ARCHIVES = ("ILSVRC2012_devkit_t12.tar.gz", "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar")
SUFFIXES = (".jpeg", ".jpg", ".png", ".webp")


def root_of(config: DictConfig) -> str | None:
    """The folder below which a config's data lies: the data root; for sets that the project makes, `outputs/data`."""
    made = config.dataset.get("made_by")
    return str(Path(config.output_root).expanduser() / "data") if made else config.data_root


def lacking(config: DictConfig) -> str | None:
    """What has to be done before a config's data can be read, in one line, or None. Opens no sample."""
    options = config.dataset
    if config.task.name in ("language_modeling", "glue"):
        from train.data import presence_language

        return presence_language.missing(config)
    if "kind" not in options:
        return missing(options.name, config.data_root, layout(config))
    from train.data import lra

    root = root_of(config)
    if root is None:
        return f"no data root: set DATA_ROOT (or data_root=...) to the folder that holds {options.folder}"
    found = lra.missing(options, Path(root))
    if found and options.made_by:
        place = Path(root) / options.folder
        return f"{place} is not there: python -m {options.made_by} --out {place}"
    return found


def missing(name: str, root: str | None, layout: str = "folder") -> str | None:
    """What has to be done before a data set can be read, in one line, or None. Opens no sample.

    Args:
        name: the data set's folder under the data root.
        root: the data root, or None where none was named.
        layout: how photographs lie (`dataset.layout`); other sets have one layout.
    """
    if name in EMBEDDED or (layout == "hub" and root is not None):
        return None
    needs = f"{name}/{{train,test}}-*.parquet" if name in PARQUET else f"{name}/{NEEDS[layout]}"
    if root is None:
        return f"no data root: set DATA_ROOT (or data_root=...) to the folder that holds {needs}"
    folder = Path(root).expanduser() / name
    if layout == "coco":
        return missing_coco(folder)
    if not folder.is_dir():
        return f"{folder} is not there: set DATA_ROOT (or data_root=...) to the folder that holds {needs}"
    if name in PARQUET:
        lacking = [f"{split}-*.parquet" for split in ("train", "test") if not list(folder.glob(f"{split}-*.parquet"))]
        return f"{folder} lacks {' and '.join(lacking)}: see README.md for the layout" if lacking else None
    if layout == "parquet":
        return missing_shards(folder)
    if layout == "archives":
        lacking = [name for name in ARCHIVES if not (folder / name).exists() and not unpacked(folder, name)]
        return f"{folder} lacks {', '.join(lacking)}: from image-net.org" if lacking else None
    return missing_class_folders(folder)


NEEDS = {
    "folder": "{train,val}/<class>/",
    "archives": "{" + ",".join(ARCHIVES) + "}",
    "parquet": "{train,validation}-*.parquet",
    "coco": "{annotations/instances_{train,val}2017.json,train2017/,val2017/}",
    "hub": "",
}


def unpacked(folder: Path, archive: str) -> bool:
    """Whether torchvision has unpacked an archive already."""
    split = "train" if "train" in archive else "val"
    return (folder / "meta.bin").exists() and ("devkit" in archive or (folder / split).is_dir())


def missing_shards(folder: Path) -> str | None:
    """What is lacking of the hub's shards."""
    for split in ("train", "validation"):
        if not any(itertools.chain(folder.glob(f"{split}-*.parquet"), folder.glob(f"data/{split}-*.parquet"))):
            return f"{folder} lacks {split}-*.parquet: put the hub's shards there, or set dataset.layout=hub"
    return None


def missing_class_folders(folder: Path) -> str | None:
    """What is lacking of {train,val}/<class>/; a val folder as the archive unpacks it is recognised."""
    for split in ("train", "val"):
        place = folder / split
        if not place.is_dir():
            if missing_shards(folder) is None:
                return f"{place} is not there, but parquet shards are: set dataset.layout=parquet"
            if any((folder / name).exists() for name in ARCHIVES):
                return f"{place} is not there, but an archive is: set dataset.layout=archives, which unpacks it"
            return f"{place} is not there: see README.md for the layout"
        if not any(entry.is_dir() for entry in place.iterdir()):
            flat = any(entry.suffix.lower() in SUFFIXES for entry in itertools.islice(place.iterdir(), 1000))
            if split == "val" and flat:
                return (
                    f"{place} holds its images without class folders: put {ARCHIVES[0]} into {folder} and run "
                    "`make check-data ROW=imagenet-vit ARGS=--sort-val`, which sorts them"
                )
            return f"{place} holds no class folders: sort its images into {place}/<class>/"
    return None


def missing_coco(folder: Path) -> str | None:
    """What is lacking of a set in COCO's format; a set that is drawn comes with the command that draws it."""
    needed = [
        f"{kind}" for split in ("train", "val") for kind in (f"annotations/instances_{split}2017.json", f"{split}2017")
    ]
    lacking = [name for name in needed if not (folder / name).exists()]
    if lacking and folder.name == "shapes":
        return f"{folder} lacks {', '.join(lacking)}: python -m scripts.make_shapes --into '{folder}' draws it"
    return f"{folder} lacks {', '.join(lacking)}: see README.md for the layout" if lacking else None


def drawn_root(config: DictConfig) -> str | None:
    """The folder that holds a drawn set: the data root where it is there, else `data` below the output root."""
    if config.data_root and (Path(config.data_root).expanduser() / config.dataset.name).is_dir():
        return config.data_root
    return str(Path(config.output_root).expanduser() / "data")


def layout(config: DictConfig) -> str:
    """The layout that a config asks for; sets of other kinds have one and no key for it."""
    if config.task.name == "detection":
        return "coco"
    return config.dataset.layout if "layout" in config.dataset else "folder"
