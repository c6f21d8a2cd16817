"""LRA's Pathfinder32, generated: imgs/<batch>/sample_<i>.png and metadata/<batch>.npy (which is text).

    python -m scripts.make_pathfinder --out FOLDER [--images 200000] [--contour-length 14] [--seed 0] [--processes N]

The levels' folders are curv_baseline (contour length 6), curv_contour_length_9 and curv_contour_length_14 under
lra/lra_release/pathfinder32. Byte-identical for the same settings whatever the number of processes. Ctrl-C stops; the
same command goes on. sheet.png shows the first images with their labels. All settings and where each comes from:
scripts/generators/pathfinder_settings.py.
"""

import argparse
import dataclasses
import functools
import sys
from pathlib import Path

from scripts.generators.folder import Claim
from scripts.generators.pathfinder_files import SHEET, labels, metadata, write_batch, write_sheet
from scripts.generators.pathfinder_settings import Pathfinder
from scripts.generators.work import Meter, command, cores, share_out
from train.errors import UserError

VERSION = 1  # of what is drawn: another one makes other files from the same seed


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--out", type=Path, required=True, help="the level's folder, see above")
    parser.add_argument("--images", type=int, default=200000, help="(200000)")
    parser.add_argument("--batch", type=int, default=1000, help="images in a folder (1000)")
    parser.add_argument("--contour-length", type=int, default=14, help="paddles of a target contour (14)")
    parser.add_argument("--distractor-length", type=int, help="paddles of a distractor (contour length // 3)")
    parser.add_argument("--distractors", type=int, help="(20 // distractor length)")
    parser.add_argument("--continuity", type=float, default=1.0, help="larger: straighter contours (1.0)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=cores(), help="all cores; changes no byte")
    return parser.parse_args()


def settings_of(options: argparse.Namespace) -> Pathfinder:
    """The level's settings.

    Raises:
        UserError: a number is out of its range.
    """
    if min(options.images, options.batch, options.processes) < 1 or options.contour_length < 2 or options.seed < 0:
        raise UserError("--images, --batch and --processes are at least 1, --contour-length 2, --seed 0")
    length = options.distractor_length if options.distractor_length is not None else options.contour_length // 3
    if length < 1 and options.distractors != 0:
        raise UserError("--distractor-length must be at least 1 (or --distractors 0)")
    distractors = options.distractors if options.distractors is not None else 20 // length
    if distractors < 0 or not 0 <= options.continuity <= 100:
        raise UserError("--distractors is at least 0, --continuity from 0 to 100")
    return Pathfinder(options.contour_length, length, distractors, options.continuity)


def shown(statistics: dict) -> str:
    """The balance of the labels in one line."""
    images, positive = statistics["images"], statistics["positive"]
    return f"{images:,} images, {positive:,} connected ({positive / images:.2%}; a fair coin for each)"


def fill(claim: Claim, options: argparse.Namespace, settings: Pathfinder) -> None:
    """Make what the folder lacks."""
    if claim.complete:
        print(f"{options.out} is complete: {shown(claim.content['statistics'])}")
        return
    (options.out / "metadata").mkdir(exist_ok=True)
    batches = range(-(-options.images // options.batch))
    left = [batch for batch in batches if not metadata(options.out, batch).exists()]
    there = sum(min(options.batch, options.images - batch * options.batch) for batch in set(batches) - set(left))
    task = functools.partial(write_batch, options.out, options.seed, settings, options.images, options.batch)
    share_out(task, left, options.processes, Meter(options.images, there, "images"))
    write_sheet(options.out)
    found = [label for batch in batches for label in labels(options.out, batch)]
    statistics = {"images": len(found), "positive": sum(found)}
    claim.finish([SHEET, *(f"metadata/{batch}.npy" for batch in batches)], **statistics)
    print(f"{shown(statistics)}\nsamples with their labels: {options.out / SHEET}")


def main() -> None:
    """Fill the folder, or go on filling it."""
    options = arguments()
    settings = settings_of(options)
    asked = {
        "seed": options.seed,
        "images": options.images,
        "batch": options.batch,
        **dataclasses.asdict(settings),
        "version": VERSION,
    }
    with Claim(options.out, "Pathfinder", asked) as claim:
        fill(claim, options, settings)


if __name__ == "__main__":
    sys.exit(command(main))
