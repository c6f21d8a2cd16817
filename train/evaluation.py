"""`mode=evaluate`: the metrics of a checkpoint's weights, printed as one JSON line; no record is touched.

`checkpoint=` takes a checkpoint of ours, an export of `specattn.fold` or timm's weights as a local file
(.safetensors, .pth, .bin), or `timm` / `timm:<tag>` for those that timm fetches from the hub. Without it the run
folder's best checkpoint is evaluated.
"""

import csv
import io
import json
import sys
from pathlib import Path

import timm
import torch
import torch.distributed as dist
from omegaconf import DictConfig, OmegaConf
from timm.models import load_state_dict
from torch import nn

from train import checkpoint, tasks
from train.compose import flatten, result_changing
from train.distributed import Place
from train.errors import UserError
from train.optimizer import Precision
from train.record import Record
from train.record_files import write


def evaluate(config: DictConfig, record: Record, place: Place) -> dict[str, float]:
    """Evaluate `config.checkpoint`, or the run folder's best checkpoint where none is named.

    Args:
        config: the run's config; it builds the model that the weights are loaded into.

    Raises:
        UserError: the weights are missing or damaged, or belong to another model or conditioning.
    """
    task = tasks.build(config, place)
    model, about = weights(config, record.folder)
    model.to(place.device).eval()
    detailed = hasattr(task, "class_names") or hasattr(task, "write_predictions")
    if (config.per_class and not detailed) or (
        config.predictions and not (detailed or hasattr(task, "write_test_predictions"))
    ):
        raise UserError(f"per_class and predictions: task {config.task.name!r} has none")
    details: list | None = [] if detailed and (config.per_class or config.predictions) else None
    with Precision(config.runtime.precision, place.device).autocast():
        metrics = task.evaluate(model, **({} if details is None else {"details": details}))
        if hasattr(task, "test"):
            metrics |= task.test(model)
        if config.predictions and not detailed:  # a test set without labels
            task.write_test_predictions(model, Path(config.predictions).expanduser())
    found = {**about, **metrics}
    if details is not None and hasattr(task, "write_predictions"):  # in a format of its own
        if config.per_class:
            found["per_class"] = task.per_class(details)
        if config.predictions and place.first:
            task.write_predictions(Path(config.predictions).expanduser(), details)
    elif details is not None:
        rows = gathered(torch.cat(details), place)
        if config.per_class:
            found["per_class"] = per_class(rows, task.class_names())
        if config.predictions and place.first:
            write_predictions(Path(config.predictions).expanduser(), rows, task)
    if place.first:
        print(json.dumps(found), flush=True)
    return metrics


def weights(config: DictConfig, folder: Path) -> tuple[nn.Module, dict]:
    """The model with the weights that are asked for, and what they are.

    Raises:
        UserError: as `evaluate`.
    """
    asked = config.checkpoint
    if asked and (asked == "timm" or asked.startswith("timm:")):
        return from_hub(config, asked)
    last = config.task.name == "glue" and checkpoint.checkpoints(folder)[-1:]  # its score is the last epoch's
    path = Path(asked).expanduser() if asked else last[0] if last else folder / "best.pt"
    if not path.exists():
        raise UserError(f"{path} is not there: name the file to evaluate with checkpoint=<file>")
    if path.suffix == ".pt":
        state = checkpoint.load(path)
        same_model(config, state.get("config", {}), path)
        model = tasks.build_model(config)
        averaged = state.get("ema") is not None and config.ema.evaluate
        fitted(model, state["ema"] if averaged else state["model"], path)
        return model, {"checkpoint": str(path), "step": state["step"], "averaged": averaged}
    return from_file(config, path), {"checkpoint": str(path), "plain": True}


def same_model(config: DictConfig, recorded: dict, path: Path) -> None:
    """Refuse a checkpoint of another model or conditioning, also where its weights would fit.

    Raises:
        UserError: naming the keys that differ.
    """
    asked = {key: value for key, value in result_changing(config).items() if key in ("model", "conditioning")}
    held = flatten({key: recorded.get(key, {}) for key in asked})
    wanted = flatten(asked)
    changed = [key for key in sorted(held.keys() | wanted.keys()) if held.get(key) != wanted.get(key)]
    if changed:
        shown = "; ".join(f"{key}: {held.get(key)!r} there, {wanted.get(key)!r} asked" for key in changed[:5])
        raise UserError(f"{path} does not fit this config ({shown})")


def from_file(config: DictConfig, path: Path) -> nn.Module:
    """A plain model with an export's or timm's weights: W + C is in them already, nothing is conditioned."""
    model = tasks.plain_model(config)
    try:
        state = load_state_dict(str(path), weights_only=True)
    except Exception as error:  # whatever torch's and safetensors' readers raise, these are no weights
        raise UserError(
            f"{path} holds no weights that can be read: {(str(error) or 'empty').splitlines()[0]}"
        ) from None
    convert = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    if convert is not None and state.keys() != model.state_dict().keys():
        state = convert(state, model)  # the authors' own names, which timm knows how to read
    fitted(model, state, path)
    return model


def from_hub(config: DictConfig, asked: str) -> tuple[nn.Module, dict]:
    """timm's pretrained weights, the model's default ones or those of a tag."""
    if config.task.name != "classification":
        raise UserError(f"checkpoint={asked} is for classification: timm has no weights of a detector")
    name = config.model.name + (f".{asked.removeprefix('timm:')}" if ":" in asked else "")
    arguments = OmegaConf.to_container(config.model.args, resolve=True)
    try:
        model = timm.create_model(name, pretrained=True, num_classes=config.dataset.classes, **arguments)
    except Exception as error:  # a name that timm lacks, no network, no such file on the hub
        raise UserError(f"timm's weights {name!r} cannot be had: {' '.join(str(error).split())[:200]}") from None
    trained = model.pretrained_cfg
    if trained["num_classes"] != config.dataset.classes:
        raise UserError(f"{name} was trained for {trained['num_classes']} classes, not {config.dataset.classes}")
    data = config.dataset
    pairs = {
        "mean": (trained["mean"], tuple(data.mean)),
        "std": (trained["std"], tuple(data.std)),
        "crop_ratio": (trained["crop_pct"], data.crop_ratio),
        "interpolation": (trained["interpolation"], data.interpolation),
    }
    for key, (theirs, ours) in pairs.items():
        if theirs != ours:
            print(f"note: dataset.{key} is {ours}, these weights were evaluated with {theirs}", file=sys.stderr)
    return model, {"checkpoint": f"timm:{trained['tag'] or ''}", "plain": True}


def fitted(model: nn.Module, state: dict, path: Path) -> None:
    """Load every tensor, or say in one line that they do not fit."""
    try:
        model.load_state_dict(state)
    except (RuntimeError, ValueError) as error:
        said = " ".join(str(error).split())
        raise UserError(f"{path} does not fit this config: {said[:400]}{'...' if len(said) > 400 else ''}") from None


def gathered(rows: torch.Tensor, place: Place) -> torch.Tensor:
    """All ranks' rows [N, 3] (label, prediction, its probability) in the order of the set, float64."""
    rows = rows.cpu()
    if place.world == 1:
        return rows
    parts: list = [None] * place.world
    dist.all_gather_object(parts, rows)
    whole = torch.empty(sum(len(part) for part in parts), rows.shape[1], dtype=rows.dtype)
    for rank, part in enumerate(parts):
        whole[rank :: place.world] = part  # as train.data.plan.shard deals them
    return whole


def per_class(rows: torch.Tensor, names: list[str]) -> dict[str, dict[str, float]]:
    """Top-1 in percent and the number of images of each class."""
    labels, right = rows[:, 0].long(), (rows[:, 0] == rows[:, 1]).long()
    count = labels.bincount(minlength=len(names))
    hits = labels.bincount(weights=right.double(), minlength=len(names))
    return {
        name: {"top1": 100 * hits[i].item() / count[i].item() if count[i] else None, "count": int(count[i])}
        for i, name in enumerate(names)
    }


def write_predictions(path: Path, rows: torch.Tensor, task: object) -> None:
    """A CSV file: one line an image.

    Raises:
        UserError: it cannot be written.
    """
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["index", "image", "label", "prediction", "probability"])
    classes = task.class_names()
    for index, (label, prediction, probability) in enumerate(rows.tolist()):
        table.writerow(
            [index, task.image_name(index), classes[int(label)], classes[int(prediction)], f"{probability:.6f}"]
        )
    try:
        write(path, text.getvalue())
    except OSError as error:
        raise UserError(f"predictions={path} cannot be written: {error.strerror}") from None
