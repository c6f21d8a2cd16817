"""A task is what differs between the rows: it feeds a model, and gives a loss and an evaluation.

| member | meaning |
|---|---|
| `primary` | the metric that tables show and that picks the best checkpoint (higher is better) |
| `steps_per_epoch` | optimizer steps in an epoch |
| `batches(start, stop)` | for each step this rank's micro-batches |
| `loss(model, batch)` | the mean loss of a micro-batch |
| `evaluate(model)` | name → number, over all ranks |
| `probe_batch(size)` | a fixed batch of inputs and labels for diagnostics |

A task may also have

| member | meaning |
|---|---|
| `start(model)` | put weights from elsewhere into the fresh model |
| `follow(spent)` | be told how to ask for the share of the run's budget that is spent |
| `seen()` | name → number of what it has used so far, for the record (`samples`, where steps differ in size) |
| `state()`, `load(state)` | what a checkpoint keeps of it |
| `write_predictions(model, folder)` | `predictions=` of an evaluation, where it is a test set without labels |
| `exhausted` | whether the run ends after this step whatever its budget |
| `probe_loss(model, batch)` | the loss of a probe batch, where it is no plain cross-entropy |
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
    if config.task.name == "language_modeling":
        from train.tasks.language_modeling import LanguageModeling

        return LanguageModeling(config, place)
    if config.task.name == "glue":
        from train.tasks.glue import Glue

        return Glue(config, place)
    raise UserError(f"unknown task.name={config.task.name!r}: there are: classification, language_modeling, glue")


def plain_model(config: DictConfig) -> nn.Module:
    """The config's model, freshly initialised, not conditioned."""
    from train.tasks import language_models, vision_models

    language = config.task.name in ("language_modeling", "glue")
    return (language_models if language else vision_models).build(config)


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
