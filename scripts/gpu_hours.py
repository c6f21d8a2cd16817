"""How long each paper-scale row may take on a GPU, derived and not measured: the table of docs/reproduce.md.

    python -m scripts.gpu_hours [--into docs/reproduce.md]

FLOPs of one forward pass are counted on the meta device (matrix products and convolutions, attention as two products),
three times that for a training step, times the samples of the whole run; divided by what an A100 does in bf16 at the
utilisation that is stated. Models of a few ten thousand parameters are bound by launches, not by FLOPs: there the steps
are divided by a guessed rate. Pre-training has its hours from the recipe. Every number is an estimate for one run.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from omegaconf import DictConfig
from torch import nn

from train.compose import resolve

PEAK = 312e12  # FLOPs a second of an A100 in bf16, dense, as its data sheet has it
SHARE = {"classification": 0.35, "detection": 0.15}  # of the peak; guessed, in line with what such training reaches
STEPS_A_SECOND = 10  # guessed, for the small models of the Long Range Arena
COCO_SIDE, COCO_IMAGES = (800, 1216), 117266  # a photo as it is mostly shown; those of 118,287 with objects
ROIS, MASKS = 512, 128  # a photo's regions for the box head, and of them those for the mask head
BEGIN, END = "<!-- python -m scripts.gpu_hours -->", "<!-- end -->"
ROWS = (
    *(f"paper/imagenet_{name}" for name in ("vit", "deit", "swin", "xcit", "davit")),
    "paper/coco_xcit",
    *(f"paper/lra_{name}" for name in ("listops", "text", "retrieval", "image", "pathfinder")),
    "paper/glue_pretrain_legacy",
)


@dataclass(frozen=True)
class Estimate:
    """One row: hours of one run on one A100, and what they are derived from."""

    row: str
    hours: float
    basis: str

    def line(self) -> str:
        """A line of the table; the baseline and the conditioned run take twice the hours."""
        one = figure(self.hours)
        return f"| {self.row} | {one} | {figure(2 * float(one))} | {self.basis} |"


def figure(hours: float) -> str:
    """Two digits; more would say what is not known."""
    return f"{float(f'{hours:.2g}'):g}"


def estimate(config: DictConfig) -> Estimate:
    """The hours of one row."""
    name, kind, schedule = config.row.name, config.task.name, config.schedule
    if schedule.hours is not None:
        return Estimate(name, schedule.hours, "the recipe's budget, on whatever GPU")
    if kind == "long_range":
        basis = f"{schedule.steps:,} steps at {STEPS_A_SECOND} a second, guessed"
        return Estimate(name, schedule.steps / STEPS_A_SECOND / 3600, basis)
    images = COCO_IMAGES if kind == "detection" else config.dataset.images[0]
    samples = schedule.epochs * images
    forward = detector_flops(config) if kind == "detection" else image_flops(config)
    hours = 3 * forward * samples / (SHARE[kind] * PEAK) / 3600
    basis = f"{forward / 1e9:.1f} GFLOPs forward x 3 x {samples / 1e6:.1f} M samples, at {SHARE[kind]:.0%} of the peak"
    return Estimate(name, hours, basis)


def on_meta(config: DictConfig) -> nn.Module:
    """The row's model without memory, its attention as plain products."""
    from train.tasks import plain_model

    with torch.device("meta"):
        model = plain_model(config).eval()
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = False
    return model


def image_flops(config: DictConfig) -> int:
    """FLOPs of one image's forward pass."""
    from scripts.bench_cost import flops

    model, side = on_meta(config), config.dataset.image_size
    with torch.no_grad():
        return flops(lambda: model(torch.empty(1, 3, side, side, device="meta")))


def detector_flops(config: DictConfig) -> int:
    """FLOPs of one photo's forward pass in training: backbone and pyramid, proposals, box head and mask head."""
    from scripts.bench_cost import flops

    model = on_meta(config)

    def forward() -> None:
        levels = model.extract_feat(torch.empty(1, 3, *COCO_SIDE, device="meta"))
        model.rpn_head(levels)
        box, mask = model.roi_head.bbox_head, model.roi_head.mask_head
        box(torch.empty(ROIS, box.in_channels, 7, 7, device="meta"))
        mask(torch.empty(MASKS, mask.in_channels, 14, 14, device="meta"))

    with torch.no_grad():
        return flops(forward)


def table(estimates: list[Estimate]) -> list[str]:
    """The Markdown table."""
    head = ["| row | hours, one run | baseline and conditioned | estimated from |", "|---|---|---|---|"]
    return [*head, *(found.line() for found in estimates)]


def main() -> int:
    """Print the table, or put it where the document has its marks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--into", type=Path, help="a document with the marks of this table")
    chosen = parser.parse_args()
    if chosen.into is not None and not {BEGIN, END} <= set(chosen.into.read_text().splitlines()):
        print(f"error: {chosen.into} has no lines {BEGIN} and {END}", file=sys.stderr)
        return 2
    lines = table([estimate(resolve([f"experiment={name}"])) for name in ROWS])
    print("\n".join(lines))
    if chosen.into is not None:
        before, _, rest = chosen.into.read_text().partition(f"{BEGIN}\n")
        chosen.into.write_text(f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{rest.partition(END)[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
