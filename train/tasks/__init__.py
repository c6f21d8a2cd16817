"""A task is what differs between the rows: it feeds a model, and gives a loss and an evaluation.

| member | meaning |
|---|---|
| `primary` | the metric that picks the best checkpoint (higher is better), and that tables show |
| `reported` | optional: the metric that tables show, where it is another |
| `steps_per_epoch` | optimizer steps in an epoch |
| `batches(start, stop)` | for each step this rank's micro-batches |
| `loss(model, batch)` | the mean loss of a micro-batch |
| `evaluate(model)` | name → number, over all ranks |
| `test(model)` | optional: name → number on a set that only the best model so far is tried on |
| `probe_batch(size)` | a fixed batch of inputs and labels for diagnostics |
| `notices()` | optional: what happened on this rank since the last call that the record should keep |
"""

from typing import TYPE_CHECKING

from omegaconf import DictConfig
from torch import nn

import specattn
from train.errors import UserError

if TYPE_CHECKING:
    from train.distributed import Place


def build(config: DictConfig, place: "Place"):
    """The config's task, with its data."""
    if config.task.name == "classification":
        from train.tasks.classification import Classification

        return Classification(config, place)
    if config.task.name == "long_range":
        from train.tasks.long_range import LongRange

        return LongRange(config, place)
    raise UserError(f"unknown task.name={config.task.name!r}: there are: classification, long_range")


def plain_model(config: DictConfig) -> nn.Module:
    """The config's model, freshly initialised, not conditioned; reads no data.

    Raises:
        UserError: the library refuses what the config asks for.
    """
    if config.task.name == "long_range":
        from train.tasks import sequence_models

        return sequence_models.build(config)
    from train.tasks import vision_models

    return vision_models.build(config)


def build_model(config: DictConfig) -> nn.Module:
    """The config's model, freshly initialised and conditioned; reads no data.

    Raises:
        UserError: the library or the conditioning refuses what the config asks for.
    """
    model = plain_model(config)
    try:
        return specattn.condition(model, **config.conditioning)
    except ValueError as error:
        raise UserError(f"conditioning: {error}") from None
