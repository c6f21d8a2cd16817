"""A linear classifier on CIFAR-10's pixels, the yardstick of the reduced rows: ridge regression on one-hot labels.

    DATA_ROOT=<folder with cifar10> python -m scripts.linear_cifar10

In closed form on all 50,000 training images, pixels standardised; the penalty is chosen on the last tenth of them.
"""

import json
import os
import sys
from pathlib import Path

import torch
from torch.nn import functional as F

from train.data.small import cifar10
from train.record_files import write

PENALTIES = (1e3, 1e4, 3e4, 1e5, 3e5)
RECORD = Path("results/linear_cifar10.json")


def gram(pixels_ND: torch.Tensor, labels_N: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """XᵀX [D, D] and XᵀY [D, 10] for one-hot labels Y."""
    return pixels_ND.T @ pixels_ND, pixels_ND.T @ (F.one_hot(labels_N, 10).float() - 0.1)


def top1(weights: torch.Tensor, pixels_ND: torch.Tensor, labels_N: torch.Tensor) -> float:
    """Accuracy in percent."""
    return 100 * ((pixels_ND @ weights).argmax(1) == labels_N).double().mean().item()


def main() -> int:
    """Fit, evaluate once on the test images, write the record."""
    if not os.environ.get("DATA_ROOT"):
        print("error: set DATA_ROOT to the folder that holds cifar10/", file=sys.stderr)
        return 2
    (images, labels), (test_images, test_labels) = cifar10(Path(os.environ["DATA_ROOT"]))
    pixels, test_pixels = images.flatten(1).float(), test_images.flatten(1).float()
    mean, std = pixels.mean(0), pixels.std(0)
    pixels, test_pixels = (pixels - mean) / std, (test_pixels - mean) / std
    held = len(labels) // 10
    part, rest = gram(pixels[:-held], labels[:-held]), gram(pixels[-held:], labels[-held:])
    identity = torch.eye(pixels.shape[1])
    found = {
        penalty: top1(torch.linalg.solve(part[0] + penalty * identity, part[1]), pixels[-held:], labels[-held:])
        for penalty in PENALTIES
    }
    best = max(found, key=found.get)
    weights = torch.linalg.solve(part[0] + rest[0] + best * identity, part[1] + rest[1])
    record = {"top1": top1(weights, test_pixels, test_labels), "penalty": best, "held_out_top1": found}
    write(RECORD, json.dumps(record, indent=1) + "\n")
    print(json.dumps(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
