"""Check a row's data before a long run: classes and their order, counts, files that cannot be read.

    python -m scripts.check_data imagenet-vit [--all] [--sort-val] [dataset.layout=parquet data_root=... ...]

A thousand images of each split are decoded, all of them with --all. --sort-val sorts a flat val folder into class
folders by the development kit's ground truth. Exit status 0: sound, 1: problems, each said in a line, 2: a mistake.
"""

import argparse
import collections
import concurrent.futures
import itertools
import os
import sys
import time
from pathlib import Path

from omegaconf import DictConfig
from timm.data import ImageNetInfo

from scripts import check_language, check_sequences
from train.compose import nearest, options, resolve
from train.data.broken import reason
from train.data.photographs import UNREADABLE, Folder, Parquet, photographs
from train.data.presence import ARCHIVES, lacking, layout
from train.errors import USAGE, UserError
from train.progress import clock
from train.randomness import SUBSET, permutation

SAMPLE = 1000
SHOWN = 20
BLOCK = 4096  # images handed to the threads at a time


def experiment(row: str) -> str:
    """The experiment of a row's make target (imagenet-vit: paper/imagenet_vit)."""
    names = {name.removeprefix("paper/").replace("_", "-"): name for name in options("experiment") if "paper/" in name}
    if row not in names:
        raise UserError(f"ROW={row}: {nearest(row, names)}")
    return names[row]


def class_problems(config: DictConfig, splits: dict[str, Folder | Parquet]) -> list[str]:
    """Number, identifiers and order of the classes."""
    problems = []
    wanted = None
    if config.dataset.synsets:
        wanted = ImageNetInfo(config.dataset.synsets).label_names()
    for split, images in splits.items():
        found = images.identifiers
        if len(found) != config.dataset.classes:
            problems.append(f"{split}: {len(found)} classes, not {config.dataset.classes}")
        if wanted and set(found) != set(wanted):
            lacking, more = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
            problems += [f"{split}: {len(lacking)} classes are missing: {', '.join(lacking[:5])}"] if lacking else []
            problems += [f"{split}: {len(more)} classes do not belong: {', '.join(more[:5])}"] if more else []
        elif wanted and found != wanted:
            first = next(i for i, pair in enumerate(zip(found, wanted, strict=True)) if len(set(pair)) > 1)
            problems.append(f"{split}: label {first} is {found[first]}, the order asks for {wanted[first]}")
    if len({tuple(images.identifiers) for images in splits.values()}) > 1:
        problems.append("train and val hold different classes")
    return problems


def count_problems(config: DictConfig, splits: dict[str, Folder | Parquet]) -> list[str]:
    """How many images there are, and classes without any."""
    problems = []
    expected = dict(zip(("train", "val"), config.dataset.images or (None, None), strict=True))
    for split, images in splits.items():
        print(f"{split}: {len(images)} images in {len(images.identifiers)} classes")
        if expected[split] is not None and len(images) != expected[split]:
            problems.append(f"{split}: {len(images)} images, not {expected[split]}")
        counts = collections.Counter(images.labels().tolist())
        empty = [name for label, name in enumerate(images.identifiers) if not counts[label]]
        problems += [f"{split}: no image of {', '.join(empty[:5])} ({len(empty)} classes)"] if empty else []
    return problems


def file_problems(splits: dict[str, Folder | Parquet], whole: bool) -> list[str]:
    """Images that cannot be decoded, of a sample or of all."""
    problems = []
    for split, images in splits.items():
        chosen = range(len(images)) if whole else permutation(len(images), SUBSET)[:SAMPLE].tolist()

        def look(index: int, images: Folder | Parquet = images) -> str | None:
            try:
                images.read(index)
            except UNREADABLE as error:
                return f"{images.name(index)}: {reason(error)}"
            return None

        began = shown = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            blocks = (pool.map(look, chosen[start : start + BLOCK]) for start in range(0, len(chosen), BLOCK))
            for done, problem in enumerate(itertools.chain.from_iterable(blocks), 1):
                problems += [problem] if problem else []
                if time.monotonic() - shown > (0.5 if sys.stderr.isatty() else 30) or done == len(chosen):
                    shown = time.monotonic()
                    left = (shown - began) / done * (len(chosen) - done)
                    end = "\n" if done == len(chosen) or not sys.stderr.isatty() else ""
                    text = f"{split}: {done} of {len(chosen)} decoded, {len(problems)} problems, left {clock(left)}"
                    print(f"\r\033[K{text}" if sys.stderr.isatty() else text, end=end, file=sys.stderr, flush=True)
    return problems


def sort_validation(config: DictConfig) -> None:
    """Move a flat val folder's images into class folders, by the development kit's ground truth.

    Raises:
        UserError: the kit is missing, or the images are not its 50,000.
    """
    from torchvision.datasets.imagenet import load_meta_file, parse_devkit_archive

    root = Path(config.data_root).expanduser() / config.dataset.name
    try:
        if not (root / "meta.bin").exists():
            parse_devkit_archive(str(root))
        truth = load_meta_file(str(root))[1]
    except (RuntimeError, OSError) as error:
        raise UserError(f"{root}: {ARCHIVES[0]} is needed: {' '.join(str(error).split())}") from None
    images = sorted(path for path in (root / "val").iterdir() if path.is_file())
    if len(images) != len(truth):
        raise UserError(f"{root / 'val'} holds {len(images)} files, the ground truth is for {len(truth)}")
    for name in set(truth):
        (root / "val" / name).mkdir(exist_ok=True)
    for path, name in zip(images, truth, strict=True):
        path.rename(root / "val" / name / path.name)
    print(f"val: {len(images)} images sorted into {len(set(truth))} class folders")


def main() -> int:
    """Check and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("row", help="imagenet-vit, lra-listops, ...")
    parser.add_argument("words", nargs="*", help="key=value words for the config")
    parser.add_argument("--all", action="store_true", help="decode every image")
    parser.add_argument("--sort-val", action="store_true", help="sort a flat val folder into class folders first")
    chosen = parser.parse_intermixed_args()
    try:
        config = resolve([f"experiment={experiment(chosen.row)}", *chosen.words])
        if chosen.sort_val and config.data_root:
            sort_validation(config)
        if config.task.name in ("glue", "language_modeling"):
            return told(check_language.check(config), "every file was read")
        if missing := lacking(config):
            raise UserError(missing)
        if layout(config) == "coco":
            from scripts.check_coco import coco_problems

            looked = "all photos" if chosen.all else f"a sample of {SAMPLE} photos of each split"
            return told(coco_problems(config, chosen.all), f"{looked} decoded", None if chosen.all else SHOWN)
        if "kind" in config.dataset:
            return told(check_sequences.check(config), "every file was read")
        splits = {split: photographs(config.dataset, config.data_root, split) for split in ("train", "val")}
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    problems = class_problems(config, splits) + count_problems(config, splits) + file_problems(splits, chosen.all)
    looked = "every image" if chosen.all else f"a sample of {SAMPLE} images of each split"
    return told(problems, f"{looked} decoded", None if chosen.all else SHOWN)


def told(problems: list[str], looked: str, most: int | None = None) -> int:
    """Print the problems, `most` of them where given, and what was looked at; the exit status."""
    for problem in problems[:most]:
        print(f"problem: {problem}")
    if most is not None and len(problems) > most:
        print(f"and {len(problems) - most} more")
    print(f"{len(problems)} problems; {looked}" if problems else f"sound; {looked}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
