"""The weights that a fine-tuning begins with, the conditioning that they were trained under, and their tokenizer.

The correction is persistent in both phases: pre-training has learned W beside a fixed C, so that fine-tuning loads W
and the very same C, and trains W on. A fine-tuning asks for the conditioning of its pre-training; any other is refused.
An export holds W + C as plain weights: `conditioning=off` goes with it, and weight decay (0 in the recipe) would act on
the sum.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from torch import nn

from train.data.presence_language import source
from train.errors import UserError


@dataclass(frozen=True)
class Pretrained:
    """What was read."""

    path: Path
    weights: dict  # of the whole pre-trained model
    tokenizer: str  # JSON


def read(config: DictConfig) -> Pretrained:
    """Read the pre-trained weights and their tokenizer.

    Raises:
        UserError: they are missing or damaged, of another model, or of another conditioning.
    """
    path = source(config)
    if path.suffix == ".pt":
        from train import checkpoint

        state = checkpoint.load(path)
        about = state.get("task") or {}
        if "tokenizer" not in about:
            raise UserError(f"{path} is not the checkpoint of a pre-training: it holds no tokenizer")
        recorded = state["config"]
        _same(path, "conditioning", recorded["conditioning"], OmegaConf.to_container(config.conditioning))
        _same(path, "model", recorded["model"], OmegaConf.to_container(config.model))
        return Pretrained(path, state["model"], about["tokenizer"])
    return _export(config, path)


def _export(config: DictConfig, folder: Path) -> Pretrained:
    from specattn.models.crammed_bert import load

    if config.conditioning.lam:
        raise UserError(f"{folder} holds W + C as plain weights: fine-tune it with conditioning=off")
    try:
        model = load(folder)
        tokenizer = (folder / "tokenizer.json").read_text()
        json.loads(tokenizer)
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} cannot be read as an export: {str(error).splitlines()[0]}") from None
    sizes = {key: getattr(model.config, key) for key in config.model if key != "name"}
    _same(folder, "model", {"name": "crammed_bert", **sizes}, OmegaConf.to_container(config.model))
    return Pretrained(folder, model.state_dict(), tokenizer)


FREE = ("dropout", "head_width")  # of the model: no weight of the encoder has their size


def _same(path: Path, part: str, held: dict, asked: dict) -> None:
    changed = [key for key in sorted(held.keys() | asked.keys()) if held.get(key) != asked.get(key) and key not in FREE]
    if changed:
        shown = "; ".join(f"{part}.{key}: {held.get(key)!r} there, {asked.get(key)!r} asked" for key in changed)
        raise UserError(f"{path} does not fit this config ({shown}): fine-tuning keeps what pre-training had")


def start(model: nn.Module, found: Pretrained) -> None:
    """Load the encoder, W and C; the classifier stays as it was drawn.

    Args:
        model: freshly built and conditioned as the pre-trained one was; its own C is overwritten.
    """
    own = {name: value for name, value in model.state_dict().items() if not name.startswith("encoder.")}
    encoder = {name: value for name, value in found.weights.items() if name.startswith("encoder.")}
    try:
        model.load_state_dict(own | encoder)
    except (RuntimeError, ValueError) as error:
        raise UserError(f"{found.path} does not fit this config: {' '.join(str(error).split())[:300]}") from None
