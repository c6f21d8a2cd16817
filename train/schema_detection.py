"""The typed schema of detection: its part of train/schema.py."""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING


@dataclass
class Detection:
    """Boxes and masks by mmdet's Mask R-CNN."""

    name: str = "detection"
    group: int = 2  # photos of like aspect (wide or tall) that stay together in a batch
    evaluation_batch: int = 1  # photos at a time on a device; above 1 they are padded to one size


@dataclass
class Detector:
    """timm's XCiT as a backbone, and what differs from mmdet's own Mask R-CNN (mask-rcnn_r50_fpn)."""

    name: str = MISSING  # timm's name of the backbone
    args: dict[str, Any] = field(default_factory=dict)  # go to timm.create_model as they are
    taps: list[int] = MISSING  # the blocks, from 0, whose outputs become the strides 4, 8, 16, 32
    detector: dict[str, Any] = field(default_factory=dict)  # merged into mmdet's config of the model
    pretrained: str | None = None  # the backbone's weights: a file, timm[:<tag>] for timm's own, None: none
    correction: str = "carry"  # of a conditioned file: carry (C goes on being added) | fold (W + C become W)


@dataclass
class Shapes:
    """What scripts/make_shapes.py draws."""

    train: int = 400
    val: int = 100
    side: int = 128  # pixels
    seed: int = 0


@dataclass
class Coco:
    """A set in COCO's format: annotations/instances_{train,val}2017.json, {train,val}2017/."""

    name: str = MISSING
    classes: int = MISSING
    photos: list[int] | None = None  # how many there are, training and validation
    mean: list[float] = field(default_factory=lambda: [123.675, 116.28, 103.53])  # RGB, of 0..255
    std: list[float] = field(default_factory=lambda: [58.395, 57.12, 57.375])
    flip: float = 0.5
    short_sides: list[int] = MISSING  # training: resized to one of them, at random
    longest: int = MISSING  # but no side above this
    crop_sides: list[int] | None = None  # the crop branch, half of the time: first to one of these,
    crop: list[int] | None = None  # then a window of this to that many pixels, then as without it
    test_side: int = MISSING
    min_side: int = 32  # training photos with a shorter side, and those without objects, are left out
    pad: int = 32  # photos are padded to a multiple of this
    shapes: Shapes | None = None  # a drawn set: how scripts/make_shapes.py draws it
