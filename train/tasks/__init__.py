"""A task is what differs between the rows: it feeds a model, and gives a loss and an evaluation.

| member | meaning |
|---|---|
| `primary` | the metric that tables show and that picks the best checkpoint (higher is better) |
| `steps_per_epoch` | optimizer steps in an epoch |
| `batches(start, stop)` | for each step this rank's micro-batches |
| `loss(model, batch)` | the mean loss of a micro-batch |
| `evaluate(model)` | name → number, over all ranks |
| `probe_batch(size)` | a fixed batch of inputs and labels for diagnostics |
"""

from importlib import import_module
from types import ModuleType
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
    if config.task.name == "detection":
        return _detection("task").Detection(config, place)
    raise UserError(f"unknown task.name={config.task.name!r}: there are: classification, detection")


def build_plain(config: DictConfig) -> nn.Module:
    """The config's model, freshly initialised, without conditioning and without weights from elsewhere."""
    if config.task.name == "detection":
        return _detection("model").build_plain(config)
    from train.tasks import vision_models

    return vision_models.build(config)


def build_model(config: DictConfig) -> nn.Module:
    """The config's model, freshly initialised (or from the weights that it names) and conditioned; reads no data.

    Raises:
        UserError: the library or the conditioning refuses what the config asks for.
    """
    if config.task.name == "detection":
        return _detection("model").build(config)
    model = build_plain(config)
    try:
        return specattn.condition(model, **config.conditioning)
    except ValueError as error:
        raise UserError(f"conditioning: {error}") from None


def _detection(part: str) -> ModuleType:
    """A module of train/tasks/detection/, with what it needs of mmdet made ready."""
    from train.tasks.detection.operators import load_mmdet

    load_mmdet()
    return import_module(f"train.tasks.detection.{part}")
