"""What values a config may take beyond their types; said before anything is created."""

import math

from train.errors import UserError
from train.schema_language import RANGES as LANGUAGE

# key: (lowest, highest); None where there is no bound. Keys whose value is unset (None) are passed over.
RANGES: dict[str, tuple[float | None, float | None]] = {
    "seed": (0, 2**32 - 1),
    "batch_size": (1, None),
    "conditioning.lam": (-1e30, 1e30),
    "dataset.classes": (1, None),
    "dataset.crop_ratio": (0.01, 1),
    "dataset.flip": (0, 1),
    "dataset.image_size": (1, None),
    "dataset.longest": (1, None),
    "dataset.min_side": (0, None),
    "dataset.pad": (0, None),
    "dataset.random_erasing": (0, 1),
    "dataset.repeats": (1, None),
    "dataset.shapes.seed": (0, 2**32 - 1),
    "dataset.shapes.side": (32, None),
    "dataset.shapes.train": (1, None),
    "dataset.shapes.val": (1, None),
    "dataset.test_side": (1, None),
    "dataset.train_size": (1, None),
    "ema.copy_epochs": (0, None),
    "ema.decay": (0, 1),
    "ema.every": (1, None),
    "evaluate.epochs": (0, None),
    "evaluate.steps": (1, None),
    "model.attention_scale": (0, None),
    "optimizer.clip_grad": (1e-12, None),
    "optimizer.eps": (0, None),
    "optimizer.lr": (0, 1e30),
    "optimizer.reference_batch": (1, None),
    "optimizer.weight_decay": (0, None),
    "probe.epochs": (0, None),
    "probe.samples": (1, None),
    "probe.steps": (1, None),
    "probe.tokens": (2, None),
    "runtime.devices": (1, None),
    "runtime.jobs": (1, None),
    "runtime.log_steps": (1, None),
    "runtime.micro_batch": (1, None),
    "runtime.save_steps": (1, None),
    "runtime.threads": (1, None),
    "runtime.workers": (0, None),
    "schedule.decay": (0, 1),
    "schedule.min_lr": (0, None),
    "schedule.steps": (1, None),
    "schedule.warmup_epochs": (0, None),
    "schedule.warmup_lr": (0, None),
    "schedule.warmup_steps": (0, None),
    "task.cutmix": (0, None),
    "task.cutmix_probability": (0, 1),
    "task.evaluation_batch": (1, None),
    "task.group": (1, None),
    "task.label_smoothing": (0, 0.999),
    "task.mix_probability": (0, 1),
    "task.mixup": (0, None),
    **LANGUAGE,
}


def check_ranges(flat: dict[str, object]) -> None:
    """Refuse a number outside its range.

    Args:
        flat: dotted key → value.

    Raises:
        UserError: naming the key, its value and what it may be.
    """
    for key, value in flat.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{key}={value}: must be a finite number")
    for key, (low, high) in RANGES.items():
        value = flat.get(key)
        if value is None or ((low is None or value >= low) and (high is None or value <= high)):
            continue
        bounds = f"at least {low:g}" if high is None else f"{low:g} to {high:g}"
        raise UserError(f"{key}={value}: must be {bounds}")
    betas = flat.get("optimizer.betas")
    if betas is not None and not (len(betas) == 2 and all(0 <= beta < 1 for beta in betas)):
        raise UserError(f"optimizer.betas={betas}: must be two numbers in [0, 1)")
    mean, std = flat.get("dataset.mean"), flat.get("dataset.std")
    if mean is not None and not (0 < len(mean) == len(std) and all(value > 0 for value in std)):
        raise UserError(f"dataset.mean={mean}, dataset.std={std}: one number for each channel, std above 0")
