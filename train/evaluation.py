"""`mode=evaluate`: the metrics of a checkpoint's weights, printed as one JSON line; no record is touched."""

import json
from pathlib import Path

from omegaconf import DictConfig

from train import checkpoint, tasks
from train.distributed import Place
from train.errors import UserError
from train.optimizer import Precision
from train.record import Record


def evaluate(config: DictConfig, record: Record, place: Place) -> dict[str, float]:
    """Evaluate `config.checkpoint`, or the run folder's best checkpoint where none is named.

    Args:
        config: the run's config; it builds the model that the weights are loaded into.

    Raises:
        UserError: the checkpoint is missing or damaged, or belongs to another model or conditioning.
    """
    path = Path(config.checkpoint).expanduser() if config.checkpoint else record.folder / "best.pt"
    if not path.exists():
        raise UserError(f"{path} is not there: name the file to evaluate with checkpoint=<file>")
    state = checkpoint.load(path)
    task = tasks.build(config, place)
    model = tasks.build_model(config).to(place.device)
    averaged = state["ema"] is not None and config.ema.evaluate
    try:
        model.load_state_dict(state["ema"] if averaged else state["model"])
    except (RuntimeError, ValueError) as error:
        raise UserError(f"{path} does not fit this config: {' '.join(str(error).split())}") from None
    model.eval()
    with Precision(config.runtime.precision, place.device).autocast():
        metrics = task.evaluate(model)
    if place.first:
        print(json.dumps({"checkpoint": str(path), "step": state["step"], "averaged": averaged, **metrics}), flush=True)
    return metrics
