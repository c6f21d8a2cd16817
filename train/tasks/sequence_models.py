"""The model of the Long Range Arena as the configs name it."""

from omegaconf import DictConfig, OmegaConf
from torch import nn

from specattn.models.nystromformer import Nystromformer
from train.errors import UserError
from train.tasks.vision_models import remove_layer_norms


def build(config: DictConfig) -> nn.Module:
    """The Nyströmformer of `config.model`, freshly initialised, for the lengths and classes of the data set."""
    options, data = config.model, config.dataset
    if options.name != "nystromformer":
        raise UserError(f"unknown model.name={options.name!r} for {data.name}: there is: nystromformer")
    if options.attention_scale is not None:
        raise UserError("model.attention_scale is for timm's models: the Nyströmformer scales q and k themselves")
    arguments = OmegaConf.to_container(options.args, resolve=True)
    try:
        model = Nystromformer(
            vocab_size=data.vocab_size,
            max_length=data.padded_length,
            classes=data.classes,
            pair=data.pair,
            mask_zero=data.mask_zero,
            **arguments,
        )
    except (TypeError, ValueError) as error:
        raise UserError(f"model {options.name!r} with {arguments}: {str(error).splitlines()[0]}") from None
    if not options.norm:
        remove_layer_norms(model)
    return model
