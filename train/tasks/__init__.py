"""A task is what differs between the rows: it feeds a model, and gives a loss and an evaluation.

| member | meaning |
|---|---|
| `primary` | the metric that picks the best checkpoint (higher is better), and that tables show |
| `steps_per_epoch` | optimizer steps in an epoch |
| `batches(start, stop)` | for each step this rank's micro-batches |
| `loss(model, batch)` | the mean loss of a micro-batch |
| `evaluate(model)` | name → number, over all ranks |
| `probe_batch(size)` | a fixed batch of inputs and labels for diagnostics |

A task may also have

| member | meaning |
|---|---|
| `reported` | the metric that tables show, where it is another than `primary` |
| `test(model)` | name → number on a set that only the best model so far is tried on |
| `notices()` | what happened on this rank since the last call that the record should keep |
| `start(model)` | put weights from elsewhere into the fresh model |
| `follow(spent)` | be told how to ask for the share of the run's budget that is spent |
| `seen()` | name → number of what it has used so far, for the record (`samples`, where steps differ in size) |
| `state()`, `load(state)` | what a checkpoint keeps of it |
| `class_names()`, `image_name(index)` | what an evaluation's `per_class=` and `predictions=` call things |
| `per_class(details)`, `write_predictions(path, details)` | the same in a format of the task's own |
| `write_test_predictions(model, folder)` | `predictions=` where it is a test set without labels |
| `exhausted` | whether the run ends after this step whatever its budget |
| `probe_loss(model, batch)` | the loss of a probe batch, where it is no plain cross-entropy |
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

# task.name → module and class of the task, and the module whose `build(config)` makes its model; imported when asked
# for, so that no row needs another one's libraries.
TASKS = {
    "classification": ("classification.Classification", "vision_models"),
    "long_range": ("long_range.LongRange", "sequence_models"),
    "language_modeling": ("language_modeling.LanguageModeling", "language_models"),
    "glue": ("glue.Glue", "language_models"),
    "detection": ("detection.task.Detection", "detection.model"),
}


def build(config: DictConfig, place: "Place"):
    """The config's task, with its data.

    Raises:
        UserError: there is no such task, or its data is not as the config says.
    """
    module, name = _named(config)[0].rsplit(".", 1)
    return getattr(_module(module), name)(config, place)


def plain_model(config: DictConfig) -> nn.Module:
    """The config's model, freshly initialised, not conditioned; reads no data.

    Raises:
        UserError: the library refuses what the config asks for.
    """
    return _module(_named(config)[1]).build(config)


def _module(path: str) -> ModuleType:
    """A module below train/tasks; for detection with what it needs of mmdet made ready."""
    if path.startswith("detection."):
        from train.tasks.detection.operators import load_mmdet

        load_mmdet()
    return import_module(f"train.tasks.{path}")


def _named(config: DictConfig) -> tuple[str, str]:
    if config.task.name not in TASKS:
        raise UserError(f"unknown task.name={config.task.name!r}: there are: {', '.join(TASKS)}")
    return TASKS[config.task.name]


def build_model(config: DictConfig) -> nn.Module:
    """The config's model, freshly initialised (or from the weights that it names) and conditioned; reads no data.

    Raises:
        UserError: the library or the conditioning refuses what the config asks for.
    """
    module = _module(_named(config)[1])
    if hasattr(module, "build_conditioned"):  # where weights from elsewhere bring their own correction
        return module.build_conditioned(config)
    model = module.build(config)
    try:
        return specattn.condition(model, **config.conditioning)
    except ValueError as error:
        raise UserError(f"conditioning: {error}") from None
