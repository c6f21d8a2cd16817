"""timm models as the configs name them, and the readings of them that the ablations need."""

import timm
from omegaconf import DictConfig, OmegaConf
from torch import nn

from train.errors import UserError


def build(config: DictConfig) -> nn.Module:
    """The timm model of `config.model`, freshly initialised, with `dataset.classes` outputs."""
    options = config.model
    arguments = OmegaConf.to_container(options.args, resolve=True)
    try:
        model = timm.create_model(options.name, num_classes=config.dataset.classes, **arguments)
    except (TypeError, RuntimeError, AssertionError, ValueError, ZeroDivisionError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"model {options.name!r} with {arguments}: {reason}") from None
    check_input(config, model)
    if not options.norm:
        remove_layer_norms(model)
    if options.attention_scale is not None:
        set_attention_scale(model, options.attention_scale)
    return model


def check_input(config: DictConfig, model: nn.Module) -> None:
    """Refuse a model that expects images of another size or number of channels than the data set's."""
    sizes = {getattr(part, "img_size", None) for part in (model, getattr(model, "patch_embed", None))} - {None}
    expected = {size if isinstance(size, int) else max(size) for size in sizes}
    if expected - {config.dataset.image_size}:
        raise UserError(
            f"model {config.model.name!r} takes images of {expected.pop()} pixels, dataset.image_size is "
            f"{config.dataset.image_size}: set model.args.img_size"
        )
    first = next((module for module in model.modules() if isinstance(module, nn.Conv2d)), None)
    if first is not None and first.in_channels != len(config.dataset.mean):
        raise UserError(
            f"model {config.model.name!r} takes {first.in_channels} channels, dataset {config.dataset.name} has "
            f"{len(config.dataset.mean)}: set model.args.in_chans"
        )


def remove_layer_norms(model: nn.Module) -> None:
    """Put the identity in place of every LayerNorm (the paper's LayerNorm ablation)."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.LayerNorm):
                setattr(module, name, nn.Identity())


def set_attention_scale(model: nn.Module, scale: float) -> None:
    """Multiply q·k by `scale` in every attention layer of a timm model, in place of 1/sqrt(d).

    timm's fused path calls scaled_dot_product_attention without a scale, so that changing the attribute
    alone would change nothing there: those layers leave the fused path.
    """
    found = 0
    for module in model.modules():
        if isinstance(getattr(module, "scale", None), float) and hasattr(module, "num_heads"):
            module.scale = scale
            if hasattr(module, "fused_attn"):
                module.fused_attn = False
            found += 1
    if not found:
        raise UserError(f"model.attention_scale={scale}: {type(model).__name__} has no attention with a scale")
