"""Mask R-CNN as mmdet configures it (mask-rcnn_r50_fpn, shipped inside mmdet), on our XCiT backbone."""

import copy
import difflib
import functools
import os
import sys
from pathlib import Path

import mmdet
import torch
import torch.distributed as dist
from mmdet.models import MaskRCNN, SingleRoIExtractor
from mmdet.registry import MODELS
from mmengine.config import Config, ConfigDict
from mmengine.logging import MMLogger
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from train.errors import UserError
from train.tasks.detection import backbone, weights

BASE = Path(mmdet.__file__).parent / ".mim/configs/_base_/models/mask-rcnn_r50_fpn.py"


class Detector(MaskRCNN):
    """mmdet's Mask R-CNN; called with photos alone it gives the pyramid's maps."""

    def _forward(self, images: Tensor, samples: list | None = None) -> tuple[Tensor, ...]:
        return self.extract_feat(images) if samples is None else super()._forward(images, samples)


class RegionFeatures(SingleRoIExtractor):
    """mmdet's RoI extractor in float32: it would round regions to the maps' type (bfloat16: to 4 pixels of 1,000)."""

    def forward(self, feats: tuple[Tensor, ...], rois: Tensor, roi_scale_factor: float | None = None) -> Tensor:
        """Features of the regions [R, C, P, Q] from the maps; rois [R, 5]."""
        return super().forward(tuple(map.float() for map in feats), rois.float(), roi_scale_factor)


@functools.cache
def base() -> dict:
    """mmdet's own config of Mask R-CNN, without its backbone; not to be changed."""
    chosen = Config.fromfile(BASE, import_custom_modules=False, lazy_import=False).to_dict()["model"]
    chosen.pop("backbone")
    return chosen


def settings(config: DictConfig) -> dict:
    """mmdet's config of the model, with the config's classes, widths and `model.detector` put in.

    Raises:
        UserError: `model.detector` names a key that mmdet's config does not have.
    """
    asked = OmegaConf.to_container(config.model.detector, resolve=True)
    merged = merge(copy.deepcopy(base()), asked)
    channels = merged["neck"]["out_channels"]
    merged["rpn_head"]["in_channels"] = channels
    for part in ("bbox", "mask"):
        merged["roi_head"][f"{part}_head"] |= {"num_classes": config.dataset.classes, "in_channels": channels}
        merged["roi_head"][f"{part}_roi_extractor"] |= {"type": RegionFeatures, "out_channels": channels}
    merged["data_preprocessor"] |= {
        "mean": list(config.dataset.mean),
        "std": list(config.dataset.std),
        "pad_size_divisor": config.dataset.pad,
    }
    return merged


def merge(base: dict, asked: dict, at: str = "model.detector") -> dict:
    """`base` with the values of `asked`, which may name no key that is not there."""
    merged = dict(base)
    for key, value in asked.items():
        if key not in base:
            close = difflib.get_close_matches(key, map(str, base), n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(map(str, base))}"
            raise UserError(f"unknown key '{at}.{key}' of mmdet's config: {hint}")
        inner = isinstance(base[key], dict)
        merged[key] = merge(base[key], value, f"{at}.{key}") if inner and isinstance(value, dict) else value
    return merged


def build(config: DictConfig) -> nn.Module:
    """The detector, freshly initialised, neither conditioned nor pretrained.

    Raises:
        UserError: the config asks for what timm or mmdet does not have.
    """
    MMLogger.get_instance("mmengine").setLevel("ERROR")  # it would list every layer's initialisation
    chosen = settings(config)
    body = backbone.build(config.model)
    width = body.blocks[0].norm1.normalized_shape[0]
    chosen["neck"]["in_channels"] = [width] * len(backbone.STRIDES)
    chosen["backbone"] = {"type": _given, "module": body}
    try:
        model = MODELS.build(ConfigDict(chosen, type=Detector))
    except (TypeError, AssertionError, ValueError, KeyError) as error:
        raise UserError(f"model.detector: mmdet says {' '.join(str(error).split())[:300]}") from None
    if not any(parameter.is_meta for parameter in model.parameters()):
        model.init_weights()
    return model


def _given(module: nn.Module) -> nn.Module:
    """What mmdet's registry calls for the backbone: it is built already."""
    return module


def build_conditioned(config: DictConfig) -> nn.Module:
    """The detector, with the backbone's weights and the corrections that the config asks for.

    Raises:
        UserError: see `weights.start`.
    """
    model = build(config)
    try:
        line = weights.start(model, config)
    except ValueError as error:
        raise UserError(f"conditioning: {error}") from None
    if line and os.environ.get("RANK", "0") == "0":
        print(line, file=sys.stderr, flush=True)
    return synchronised(model)


def synchronised(model: nn.Module) -> nn.Module:
    """The recipe's SyncBN between GPUs. It refuses CPU tensors: CPU workers keep batch normalisations of their own."""
    if torch.cuda.is_available() and dist.is_initialized() and dist.get_backend() == "nccl":
        return nn.SyncBatchNorm.convert_sync_batchnorm(model)
    return model
