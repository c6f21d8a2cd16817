"""The language rows' model: crammed BERT, as a masked language model or with a classifier of a task's classes."""

from omegaconf import DictConfig

from specattn.models.crammed_bert import CrammedBert, CrammedBertConfig
from train.errors import UserError

SIZES = ("vocabulary", "length", "width", "depth", "heads", "feed_forward", "dropout", "head_width")


def build(config: DictConfig) -> CrammedBert:
    """The model of `config.model`, freshly initialised; reads no data.

    Raises:
        UserError: the sizes do not fit together, or the model has another name.
    """
    options = config.model
    if options.name != "crammed_bert":
        raise UserError(f"model.name={options.name!r}: the language rows have crammed_bert alone")
    classes = config.dataset.classes if config.task.name == "glue" else 0
    try:
        return CrammedBert(CrammedBertConfig(**{key: options[key] for key in SIZES}, classes=classes))
    except ValueError as error:
        raise UserError(f"model: {error}") from None
