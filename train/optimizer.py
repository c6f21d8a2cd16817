"""Optimizer, learning-rate schedule, loss scaling and weight average, from timm and torch."""

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch

import torch
from omegaconf import DictConfig
from timm.optim import create_optimizer_v2, param_groups_weight_decay
from timm.scheduler import CosineLRScheduler, MultiStepLRScheduler
from timm.utils import ModelEmaV3
from torch import nn

from train.errors import UserError

NOMINAL = 1_000_000  # steps that a run by the clock counts as for its schedule (train/budget.py)


@dataclass(frozen=True)
class Length:
    """How long a run is, in optimizer steps."""

    steps: int
    steps_per_epoch: int

    @classmethod
    def of(cls, schedule: DictConfig, steps_per_epoch: int) -> "Length":
        """The length that `schedule.steps` or `schedule.epochs` asks for, and the cooldown after it."""
        if schedule.hours is not None:
            return cls(NOMINAL, steps_per_epoch)
        cooldown = in_steps(schedule, steps_per_epoch, "cooldown_") or 0
        return cls(in_steps(schedule, steps_per_epoch) + cooldown, steps_per_epoch)


def in_steps(every: DictConfig, steps_per_epoch: int, prefix: str = "") -> int | None:
    """A duration given in `<prefix>steps` or `<prefix>epochs`, in steps; None where neither is set."""
    steps, epochs = every[f"{prefix}steps"], every[f"{prefix}epochs"]
    if steps is not None:
        return int(steps)
    return None if epochs is None else max(1, round(epochs * steps_per_epoch)) if epochs else 0


def lr_factor(config: DictConfig) -> float:
    """What the recipe's own rule multiplies its rates with for this global batch."""
    optimizer = config.optimizer
    return config.batch_size / optimizer.reference_batch if optimizer.lr_scaling == "linear" else 1.0


def scaled_lr(config: DictConfig) -> float:
    """The learning rate for this global batch, by the recipe's own rule (absolute, or linear in the batch)."""
    return config.optimizer.lr * lr_factor(config)


def lr_note(config: DictConfig) -> str | None:
    """One line where the global batch is not the one that the recipe's learning rate is written for."""
    optimizer = config.optimizer
    if optimizer.reference_batch in (None, config.batch_size):
        return None
    batches = f"batch_size={config.batch_size}, the recipe's is {optimizer.reference_batch}"
    if optimizer.lr_scaling == "linear":
        return f"{batches}: lr scaled linearly from {optimizer.lr:g} to {scaled_lr(config):g}"
    return f"warning: {batches}; its lr {optimizer.lr:g} is absolute and stays: optimizer.lr_scaling=linear scales it"


def parameter_groups(config: DictConfig, model: nn.Module) -> list[dict]:
    """timm's groups: the parameters that weight decay leaves out, and those that it acts on.

    `no_decay=1d` leaves out tensors of at most one axis, biases, and `no_decay_names` (the model's own list where
    that is not set); `names` leaves out what `no_decay_names`, globs, match and no more; `none` leaves out nothing.
    """
    options = config.optimizer
    if options.no_decay == "none":
        return [{"params": [p for p in model.parameters() if p.requires_grad], "weight_decay": options.weight_decay}]
    names = options.no_decay_names
    if options.no_decay == "names":
        groups: dict[bool, list] = {False: [], True: []}
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                groups[any(fnmatch(name, pattern) for pattern in names)].append(parameter)
        return [
            {"params": groups[True], "weight_decay": 0.0},
            {"params": groups[False], "weight_decay": options.weight_decay},
        ]
    if names is None:
        names = model.no_weight_decay() if hasattr(model, "no_weight_decay") else ()
    return param_groups_weight_decay(model, options.weight_decay, no_weight_decay_list=tuple(names))


def build_optimizer(config: DictConfig, model: nn.Module) -> torch.optim.Optimizer:
    """A timm optimizer with its groups of decayed and undecayed parameters."""
    options = config.optimizer
    extra = {"betas": tuple(options.betas)} if "adam" in options.name or options.name == "lion" else {}
    try:
        return create_optimizer_v2(
            parameter_groups(config, model),
            opt=options.name,
            lr=scaled_lr(config),
            weight_decay=options.weight_decay,
            eps=options.eps,
            **extra,
        )
    except (AssertionError, TypeError, ValueError) as error:
        raise UserError(f"optimizer.name={options.name}: {str(error).splitlines()[0]}") from None


class Schedule:
    """The learning rate as a pure function of the step, so that a resumed run needs no state for it."""

    def __init__(self, config: DictConfig, optimizer: torch.optim.Optimizer, length: Length) -> None:
        schedule = config.schedule
        self.optimizer = optimizer
        self.per = length.steps_per_epoch if schedule.per == "epoch" else 1
        self.lag = schedule.lag or 0
        cooldown = in_steps(schedule, length.steps_per_epoch, "cooldown_") or 0
        total = math.ceil((length.steps - cooldown) / self.per)
        warmup = (in_steps(schedule, length.steps_per_epoch, "warmup_") or 0) / self.per
        if warmup >= total:
            raise UserError(f"schedule: the warm-up ({warmup:g}) is as long as the run ({total})")
        self.cycle = None
        if schedule.name == "one_cycle":
            self.cycle = one_cycle(config, total, warmup)
            return
        bounds = lr_factor(config) if schedule.scale_bounds else 1.0
        cosine = schedule.name == "cosine"
        if schedule.name == "steps":
            self.timm = MultiStepLRScheduler(
                optimizer,
                # timm looks one step ahead; + 1 makes the step after a milestone the first at the lower rate.
                decay_t=[round(epoch * length.steps_per_epoch / self.per) + 1 for epoch in schedule.milestones],
                decay_rate=0.1 if schedule.decay is None else schedule.decay,
                warmup_t=warmup,
                warmup_lr_init=schedule.warmup_lr * bounds,
                warmup_prefix=False,
                t_in_epochs=False,
            )
            return
        self.timm = CosineLRScheduler(
            optimizer,
            t_initial=total - (warmup if schedule.warmup_prefix else 0),
            lr_min=schedule.min_lr * bounds if cosine else scaled_lr(config),  # also the rate of the cooldown
            warmup_t=warmup,
            warmup_lr_init=schedule.warmup_lr * bounds,
            warmup_prefix=schedule.warmup_prefix,
            t_in_epochs=False,
        )

    def set(self, step: int) -> float:
        """Set every group's learning rate for the step (0 is the first); returns the first group's."""
        if self.cycle is not None:
            for group in self.optimizer.param_groups:
                group["lr"], momentum = self.cycle(step)
                if momentum is not None:
                    group["betas"] = (momentum, *group["betas"][1:])
            return self.optimizer.param_groups[0]["lr"]
        self.timm.step_update(max(0, step // self.per - self.lag))
        return self.optimizer.param_groups[0]["lr"]


def one_cycle(config: DictConfig, total: int, warmup: float) -> Callable[[int], tuple[float, float | None]]:
    """torch's OneCycleLR as a pure function of the step: the learning rate and, where it cycles, β1.

    The rate goes from lr / 25 to lr over the warm-up and on to lr / 250,000, torch's defaults; with
    `schedule.cycle_momentum` β1 goes the opposite way (torch: 0.95, 0.85, 0.95).

    Args:
        total, warmup: steps of the run, and of its first half.
    """
    schedule, top = config.schedule, scaled_lr(config)
    low, high = schedule.cycle_momentum or (None, None)
    peak, end = warmup - 1, total - 1  # torch's phases end on a step's index

    def between(first: float, last: float, part: float) -> float:
        if schedule.anneal == "cosine":
            return last + (first - last) * (1 + math.cos(math.pi * part)) / 2
        return first + (last - first) * part

    def at(step: int) -> tuple[float, float | None]:
        if step <= peak:
            part, rates, momenta = step / peak if peak else 1.0, (top / 25, top), (high, low)
        else:
            part, rates, momenta = (step - peak) / (end - peak), (top, top / 25e4), (low, high)
        return between(*rates, part), None if low is None else between(*momenta, part)

    return at


def build_ema(config: DictConfig, model: nn.Module, steps_per_epoch: int) -> ModelEmaV3 | None:
    """timm's weight average, or None."""
    if not config.ema.decay:
        return None
    copy_until = round(config.ema.copy_epochs * steps_per_epoch)
    return ModelEmaV3(model, decay=config.ema.decay, update_after_step=copy_until)


def update_ema(ema: ModelEmaV3, model: nn.Module, completed: int) -> None:
    """Average in the weights after `completed` steps; until `copy_epochs` the average only copies them."""
    ema.update(model, step=completed if ema.update_after_step else None)


class Precision:
    """Autocast and loss scaling: bf16, fp16 (with a scaler) or fp32."""

    def __init__(self, name: str, device: torch.device) -> None:
        if name == "auto":
            name = "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported(False) else "fp32"
        self.name = name
        self.device = device.type
        self.dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[name]
        self.scaler = torch.amp.GradScaler(self.device, enabled=name == "fp16")

    def autocast(self) -> contextlib.AbstractContextManager:
        """The context for a forward pass and its loss."""
        if self.name == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(self.device, self.dtype)
