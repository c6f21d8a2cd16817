"""The shapes of the files that tables, figures and the report read: a damaged file is one line that names it."""

import json
import math
from pathlib import Path

import yaml

from train.errors import UserError

NUMBER = (int, float)
COUNT = (int,)
TEXT = (str,)
MAYBE = (int, float, type(None))  # a number that was not finite is null

# A shape is types, {key: shape} (more keys may be there), {...: shape} for any keys, (None, shape), or [shape].
SUMMARY = {"status": TEXT, "experiment": TEXT, "row": {}, "seed": COUNT}
COMPLETE = SUMMARY | {
    "steps": COUNT, "epochs": NUMBER, "parameters": COUNT, "primary": TEXT, "metrics": {...: MAYBE},
    "timing": {"seconds": MAYBE},
}  # fmt: skip
GIT = {"commit": TEXT, "dirty": (bool,)}
SESSION = {"versions": {...: (str, type(None))}, "python": TEXT, "git": (None, GIT), "device": TEXT}
SESSIONS = {"sessions": [SESSION]}
EVENTS = {
    "train": {"step": COUNT, "loss": MAYBE},
    "evaluate": {"step": COUNT},
    "spectra": {"step": COUNT, "weights": [
        {"projection": TEXT, "kappa_conditioned": MAYBE, "sigma_min_conditioned": MAYBE}
    ]},
    "attention": {"step": COUNT, "layers": [{"entropy": MAYBE, "saturated_rows": MAYBE}]},
    "jacobian": {"step": COUNT, "layers": [{"kappa_nonzero": MAYBE}]},
}  # fmt: skip
# What the tables of a family of rows (`coco` of reduced/coco_xcit) read besides, in a run's metrics and in its config.
METRICS = {
    "coco": {f"ap_{kind}{part}": MAYBE for kind in ("box", "mask") for part in ("", "_50", "_75")},
    "lra": {"test_accuracy": MAYBE, "test_majority": NUMBER, "test_count": NUMBER},
}
CONFIG = {"dataset": {"name": TEXT}}
CONFIGS = {
    "coco": {"dataset": {"shapes": (None, {"train": COUNT, "val": COUNT, "side": COUNT})}, "batch_size": COUNT},
    "lra": {"dataset": {"padded_length": COUNT}},
}
COST = {
    "rows": [{"name": TEXT, "scale": TEXT, "seconds": NUMBER, "ratio": NUMBER, "null_ratio": MAYBE,
              "memory_bytes": NUMBER, "flops": NUMBER, "parameters": NUMBER}],
    "environment": {...: {}},
}  # fmt: skip
LINEAR = {"top1": NUMBER}
PAPER = {...: {"rows": {...: {"name": TEXT, "values": [(*MAYBE, str, dict)]}}}}


def misfit(value: object, shape: object, where: str = "") -> str:
    """What is wrong with a value, as `metrics.top1 is no number`; empty where it has the shape."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return f"{where or 'the file'} is no mapping"
        items = {key: part for key, part in shape.items() if key is not ...}
        items |= dict.fromkeys(value, shape[...]) if ... in shape else {}
        for key, part in items.items():
            name = f"{where}.{key}" if where else str(key)
            if key not in value:
                return f"{name} is missing"
            if found := misfit(value[key], part, name):
                return found
        return ""
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{where or 'the file'} is no list"
        return next((found for i, item in enumerate(value) if (found := misfit(item, shape[0], f"{where}[{i}]"))), "")
    if isinstance(shape[-1], dict):
        return "" if value is None else misfit(value, shape[-1], where)
    if isinstance(value, bool) and bool not in shape:
        return f"{where} is true or false, not a value"
    if not isinstance(value, shape):
        return f"{where} is {type(value).__name__}, not {' or '.join(kind.__name__ for kind in shape)}"
    return "" if not isinstance(value, float) or math.isfinite(value) else f"{where} is not finite"


def held(path: Path, shape: object, mend: str) -> dict:
    """What a JSON or YAML file holds.

    Raises:
        UserError: it cannot be read, or has not that shape; says what is wrong and how to `mend` it.
    """
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"{path} cannot be read ({type(error).__name__}): {mend}") from None
    if wrong := misfit(content, shape):
        raise UserError(f"{path} is damaged: {wrong}: {mend}")
    return content
