"""A loss or a weight that is not finite: which layer was the first, under what circumstances, and what helps."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import nn

from train import randomness

if TYPE_CHECKING:
    from train.loop import Run


@torch.no_grad()
def first_non_finite(model: nn.Module, forward: Callable[[], object]) -> str:
    """Run a forward pass again and name the first module whose weights or output are not finite.

    Args:
        model: the model that `forward` calls.
        forward: computes the loss again.

    Returns:
        The module's dotted name and what was wrong with it; "the loss itself" where every output is finite.
    """
    found = []

    def hook(name: str) -> Callable:
        def look(module: nn.Module, inputs: tuple, output: object) -> None:
            if found:
                return
            for key, value in module.named_parameters(recurse=False):
                if not torch.isfinite(value).all():
                    found.append(f"layer {name or 'model'} (its {key})")
                    return
            if not all(torch.isfinite(tensor).all() for tensor in _tensors(output)):
                found.append(f"layer {name or 'model'} (its output)")

        return look

    handles = [module.register_forward_hook(hook(name)) for name, module in model.named_modules()]
    try:
        forward()
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else "the loss itself (every layer's output is finite)"


def _tensors(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def explained(run: "Run", batches: list, loss: float, lr: float) -> str:
    """One line on a loss that is not finite."""

    def again() -> None:
        for index, batch in enumerate(batches):
            randomness.seed_everything(run.config.seed, randomness.MODEL, run.step, run.place.rank, index)
            with run.precision.autocast():
                run.task.loss(run.model, batch)

    where = first_non_finite(run.model, again)
    return f"step {run.step + 1}: the loss is {loss}; first in {where}; {circumstances(run, lr)}"


def circumstances(run: "Run", lr: float) -> str:
    """What a divergence usually comes from, and what helps."""
    conditioning = run.config.conditioning
    return (
        f"lr {lr:g}, λ {conditioning.lam:g} ({conditioning.method}), {run.precision.name}: "
        "lower the learning rate or λ, or clip the gradient"
    )
