"""An ImageNet checkpoint's weights for a detection backbone: ours, conditioned or not, or timm's.

Every tensor of the file and of the backbone is accounted for, in one line. A correction C that the file holds is
carried over: it goes on being added to W (`carry`, where the config is conditioned alike), or W + C become W (`fold`).
"""

from collections import Counter
from dataclasses import asdict
from pathlib import Path

import timm
import torch
from omegaconf import DictConfig, OmegaConf
from timm.models import load_state_dict
from timm.models.xcit import checkpoint_filter_fn
from torch import Tensor, nn

import specattn
from specattn.setting import Setting
from train import checkpoint
from train.errors import UserError

NOT_USED = ("cls_token", "cls_attn_blocks.", "norm.", "head.")  # of a classifier: what a backbone leaves out
NEW = ("to_strides.",)  # of a backbone: what a classifier does not have
MARK = ".specattn."  # in the name of everything that conditioning adds to a state


def start(model: nn.Module, config: DictConfig) -> str | None:
    """Load `model.pretrained` into the detector's backbone and condition the detector, in the order that suits both.

    Args:
        model: a plain detector with a `backbone`; conditioned in place.

    Returns:
        One line that accounts for every tensor; None where nothing is loaded.

    Raises:
        UserError: the file is missing or damaged, does not fit, or is conditioned in another way.
        ValueError: the conditioning is refused (specattn.condition).
    """
    options = config.model
    needed = options.pretrained and config.mode == "train" and not config.runtime.dry
    if not needed:  # an evaluation brings its own weights
        specattn.condition(model, **config.conditioning)
        return None
    state = read(options)
    held = {name.split(MARK)[0] for name in state if MARK in name}
    carried = options.correction == "carry" and any(name.startswith("blocks.") for name in held)
    if held and not carried:
        state = folded(state, options)
    if carried:
        # Conditioned first: the file's own C then takes the place of the one taken from the fresh weights.
        specattn.condition(model, **config.conditioning)
        line = load(model.backbone, state, options)
    else:
        line = load(model.backbone, state, options)
        specattn.condition(model, **config.conditioning)
    return line


def read(options: DictConfig) -> dict[str, Tensor]:
    """The state dict that `model.pretrained` names, on the CPU.

    Raises:
        UserError: it cannot be had or read.
    """
    asked = options.pretrained
    if asked == "timm" or asked.startswith("timm:"):
        name = options.name + (f".{asked.removeprefix('timm:')}" if ":" in asked else "")
        arguments = OmegaConf.to_container(options.args, resolve=True)
        try:
            return timm.create_model(name, pretrained=True, **arguments).state_dict()
        except Exception as error:  # a name that timm lacks, no network, no such file on the hub
            said = " ".join(str(error).split())[:200]
            raise UserError(
                f"timm's weights {name!r} cannot be had ({said}): name a file, model.pretrained=<file>"
            ) from None
    path = Path(asked).expanduser()
    if not path.is_file():
        raise UserError(f"model.pretrained={asked} is not there: name a checkpoint of ours or a file of timm's weights")
    if path.suffix == ".pt":
        saved = checkpoint.load(path)
        averaged = saved.get("ema") is not None and saved.get("config", {}).get("ema", {}).get("evaluate", True)
        return saved["ema"] if averaged else saved["model"]
    try:
        state = load_state_dict(str(path), weights_only=True)
    except Exception as error:  # whatever torch's and safetensors' readers raise, these are no weights
        raise UserError(
            f"{path} holds no weights that can be read: {(str(error) or 'empty').splitlines()[0]}"
        ) from None
    with torch.device("meta"):
        skeleton = timm.create_model(options.name, **OmegaConf.to_container(options.args, resolve=True))
    # The authors' own names and their one-matrix class attention, which timm knows how to read.
    return checkpoint_filter_fn(dict(state), skeleton)


def folded(state: dict[str, Tensor], options: DictConfig) -> dict[str, Tensor]:
    """A conditioned classifier's state with W + C in the place of W in its blocks, and no correction any more."""
    whole = timm.create_model(options.name, num_classes=0, **OmegaConf.to_container(options.args, resolve=True))
    plain = {name: tensor for name, tensor in state.items() if MARK not in name}
    for index, block in enumerate(whole.blocks):
        prefix = f"blocks.{index}."
        part = {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
        entries = [name for name in part if name.endswith("specattn._extra_state")]
        if not entries:
            continue
        try:
            specattn.condition(block, **asdict(Setting.decode(part[entries[0]])))
            block.load_state_dict(part)
        except (RuntimeError, ValueError) as error:
            raise UserError(f"{options.pretrained} does not fit model {options.name!r}: {short(error)}") from None
        specattn.fold(block)
        plain |= {prefix + name: tensor for name, tensor in block.state_dict().items()}
    return plain


def load(backbone: nn.Module, state: dict[str, Tensor], options: DictConfig) -> str:
    """Load what belongs to the backbone; returns the line that accounts for all the rest.

    Raises:
        UserError: a tensor lacks or is left over that should not be, or does not fit.
    """
    wanted = backbone.state_dict().keys()
    last = len(backbone.blocks)
    unused = {name for name in state if name.startswith(NOT_USED)}
    unused |= {name for name in state if name.startswith("blocks.") and int(name.split(".")[1]) >= last}
    used = state.keys() - unused
    new = {name for name in wanted - used if name.startswith(NEW)}
    if odd := sorted(name for name in used - wanted if MARK in name):
        # W is there, but the model is not conditioned where the file is: silently dropping C would change the model.
        raise UserError(
            f"model.pretrained={options.pretrained} is conditioned ({odd[0].split(MARK)[0]}), this config is not or in "
            "another way: set the same conditioning, or model.correction=fold to take W + C as the weights"
        )
    lacking, odd = sorted(wanted - used - new), sorted(used - wanted)
    if lacking or odd:
        parts = [
            f"it lacks {len(lacking)}, {lacking[0]}" if lacking else "",
            f"{len(odd)} more, {odd[0]}" if odd else "",
        ]
        raise UserError(
            f"model.pretrained={options.pretrained} does not fit model {options.name!r}: "
            f"{' and '.join(filter(None, parts))}"
        )
    own = backbone.state_dict()
    try:
        backbone.load_state_dict({name: state[name] for name in used} | {name: own[name] for name in new})
    except (RuntimeError, ValueError) as error:
        raise UserError(f"model.pretrained={options.pretrained} does not fit this config: {short(error)}") from None
    return f"backbone from {options.pretrained}: {len(used)} tensors; not used: {grouped(unused)}; new: {grouped(new)}"


def grouped(names: set[str]) -> str:
    """Tensors' names by their first part, each with how many there are."""
    counts = Counter(name.split(".")[0] for name in names)
    return ", ".join(f"{name} ({count})" for name, count in sorted(counts.items())) or "none"


def short(error: Exception) -> str:
    """What torch says, in one line."""
    said = " ".join(str(error).split())
    return said[:300] + ("..." if len(said) > 300 else "")
