"""Whether a config's data is there, said before anything heavy is imported or created."""

from pathlib import Path

EMBEDDED = ("digits",)
PARQUET = ("cifar10",)


def missing(name: str, root: str | None) -> str | None:
    """What has to be done before a data set can be read, in one line, or None. Opens no sample.

    Args:
        name: the data set's folder under the data root.
        root: the data root, or None where none was named.
    """
    if name in EMBEDDED:
        return None
    needs = f"{name}/{{train,test}}-*.parquet" if name in PARQUET else f"{name}/{{train,val}}/<class>/"
    if root is None:
        return f"no data root: set DATA_ROOT (or data_root=...) to the folder that holds {needs}"
    folder = Path(root).expanduser() / name
    if not folder.is_dir():
        return f"{folder} is not there: set DATA_ROOT (or data_root=...) to the folder that holds {needs}"
    if name in PARQUET:
        lacking = [f"{split}-*.parquet" for split in ("train", "test") if not list(folder.glob(f"{split}-*.parquet"))]
        return f"{folder} lacks {' and '.join(lacking)}: see README.md for the layout" if lacking else None
    for split in ("train", "val"):
        if not (folder / split).is_dir():
            return f"{folder / split} is not there: see README.md for the layout"
        if not any(entry.is_dir() for entry in (folder / split).iterdir()):
            return f"{folder / split} holds no class folders: sort its images into {folder / split}/<class>/"
    return None
