"""What attention does on data: entropy, largest probability, saturation and gradient norms, layer by layer.

`attention_statistics` measures; `saturation_warning` says in one line what a too large λ has done.
A row of attention is *saturated* when one key gets more than 0.9 of it; a layer is when that holds on average.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from specattn.attention_capture import attention_modules, watch_softmax
from specattn.projections import find_projections

#: Largest probability above which a row counts as saturated, and a mean above which a layer does.
SATURATED = 0.9
#: A gradient of W_Q below this share of that of W_V has vanished. Plain models are at 0.1 to 1; a ViT-B whose rows
#: are split between saturated and not (λ = 3, mean largest probability 0.7) is at 1e-6, as it is at λ = 10.
VANISHED = 1e-4
# What a λ that "would not saturate" must reach: mean largest probability at most this in every layer.
_RELAXED = 0.25
# Rows looked at when searching for that λ.
_ROWS = 4096


def attention_statistics(
    model: nn.Module,
    batch: object,
    loss: Callable[[nn.Module, object], Tensor] | None = None,
    modules: str | None = None,
    gradients: bool = True,
) -> list[dict]:
    """What every attention layer does on a batch, in evaluation mode; the model is left as it was.

    Args:
        model: any model whose attention `find_projections` knows, conditioned or not.
        batch: a tensor, a (tensor, labels) pair, or a dict of keyword arguments.
        loss: loss(model, batch) → scalar, for the gradients. None: the model's own `.loss`, else cross-entropy
            where the batch has integer labels, else half the mean squared norm of the output.
        modules: a glob on the attention module's dotted name; None takes all.
        gradients: False runs the forward pass alone; the gradient norms are then None.

    Returns:
        One dict per attention module, in the model's order:

        attention, layer: dotted name and index;
        keys: how many keys a row is spread over (tokens; channels in cross-covariance attention);
        entropy: mean over rows of the entropy divided by the logarithm of the visible keys, 0 to 1;
        max_probability: mean over rows of the largest probability; saturated_rows: share above 0.9;
        gradient_q, gradient_k, gradient_v: Frobenius norms of the loss's gradient in W_Q, W_K, W_V;
        relaxing_scale: where max_probability > 0.25, the factor on the logits that brings it there, else None.

        A module that computes several softmaxes (Nyström attention: three) gets their average over rows. Rows
        with fewer than two visible keys are left out; a layer without softmax has None everywhere.

    Raises:
        ValueError: no attention projection is found, or the loss is not a scalar.
    """
    layers: dict[str, list[dict]] = defaultdict(list)

    def see(name: str, logits: Tensor) -> None:
        layers[name].append(_row_statistics(logits))

    projections = find_projections(model, modules)
    with _evaluating(model), torch.set_grad_enabled(gradients), watch_softmax(model, see, modules):
        value = loss(model, batch) if loss is not None else _default_loss(model, batch)
    norms = _gradient_norms(projections, value) if gradients else {}
    records = []
    for index, name in enumerate(attention_modules(model, modules)):
        record = {"attention": name, "layer": index} | _averaged(layers[name])
        for which in "qkv":
            record[f"gradient_{which}"] = norms.get((name, which))
        records.append(record)
    return records


def saturation_warning(
    statistics: list[dict], lam: float, threshold: float = SATURATED, vanished: float = VANISHED
) -> str | None:
    """One line that names λ and what would not saturate, or None where attention is in order.

    Args:
        statistics: what `attention_statistics` returned for the conditioned model.
        lam: the λ it is conditioned with; 0 for a plain model.
        threshold: mean largest probability above which a layer is saturated.
        vanished: gradient of W_Q over gradient of W_V below which the former has vanished.

    The λ that it suggests scales the logits of the saturated layers as λ², which holds where the correction
    dominates them, to a mean largest probability of 0.25: an estimate, to be checked by running it.
    """
    softmax = [r for r in statistics if r["max_probability"] is not None]
    saturated = [r for r in softmax if r["max_probability"] > threshold]
    dead = [r for r in softmax if _vanished(r, vanished)]
    if not saturated and not dead:
        return None
    cause = f"λ = {lam:g}" if lam else "the attention, without a correction (λ = 0),"
    parts = []
    if saturated:
        worst = max(saturated, key=lambda r: r["max_probability"])
        parts.append(
            f"saturates the softmax in {len(saturated)} of {len(softmax)} attention layers "
            f"({worst['attention']}: mean largest probability {worst['max_probability']:.2f})"
        )
    if dead:
        low = min(dead, key=lambda r: r["gradient_q"])
        parts.append(
            f"all but stops the gradient of W_Q in {len(dead)} of {len(softmax)} "
            f"({low['attention']}: {low['gradient_q']:.1g}, against {low['gradient_v']:.1g} for W_V)"
        )
    message = f"{cause} {' and '.join(parts)}"
    if lam:
        scales = [r["relaxing_scale"] for r in softmax if r["relaxing_scale"] is not None]
        estimate = abs(lam) * math.sqrt(min(scales)) if scales else None
        message += "; what would not saturate: targets='v' (the softmax keeps its weights)"
        message += f", or λ of about {_round_down(estimate):g} (logits scaled by λ²)" if estimate else ""
    return message


def _vanished(record: dict, share: float) -> bool:
    q, v = record["gradient_q"], record["gradient_v"]
    # Uniform attention over tokens that are all alike has no gradient either, and nothing has saturated there.
    peaked = record["max_probability"] > _RELAXED
    return peaked and q is not None and v is not None and v > 0 and q <= share * v


def _round_down(value: float) -> float:
    """To one significant digit, never up: 1.37 → 1."""
    unit = 10.0 ** math.floor(math.log10(value))
    return math.floor(value / unit) * unit


def _row_statistics(logits: Tensor) -> dict:
    """Sums over the rows of one softmax call. Masked keys are −inf or the most negative number of the dtype."""
    lowest = torch.finfo(logits.dtype).min / 2
    logits = logits.float().flatten(0, -2)
    visible = (logits > lowest).sum(-1)
    logits, visible = logits[visible > 1], visible[visible > 1]
    log_p = torch.log_softmax(logits, -1)
    p = log_p.exp()
    largest = p.amax(-1)
    entropy = torch.special.entr(p).sum(-1) / visible.log()
    rows = len(largest)
    return {
        "rows": rows,
        "keys": logits.shape[-1],
        "entropy": float(entropy.double().sum()),
        "max_probability": float(largest.double().sum()),
        "saturated_rows": float((largest > SATURATED).double().sum()),
        "relaxing_scale": _relaxing_scale(logits) if rows and float(largest.mean()) > _RELAXED else None,
    }


def _relaxing_scale(logits: Tensor) -> float | None:
    """The factor t < 1 at which softmax(t · logits) has a mean largest probability of 0.25, by bisection on log t.

    None where no factor does it, because most rows see too few keys.
    """
    logits = logits[:: max(1, len(logits) // _ROWS)]
    low, high = -30.0, 0.0
    if float(torch.softmax(2**low * logits, -1).amax(-1).mean()) > _RELAXED:
        return None
    for _ in range(30):
        middle = (low + high) / 2
        if float(torch.softmax(2**middle * logits, -1).amax(-1).mean()) > _RELAXED:
            high = middle
        else:
            low = middle
    return 2**low


def _averaged(calls: list[dict]) -> dict:
    names = ("entropy", "max_probability", "saturated_rows")
    rows = sum(call["rows"] for call in calls)
    if not rows:
        return {"keys": None} | dict.fromkeys(names) | {"relaxing_scale": None}
    scales = [call["relaxing_scale"] for call in calls if call["relaxing_scale"] is not None]
    means = {name: sum(call[name] for call in calls) / rows for name in names}
    return {"keys": max(call["keys"] for call in calls)} | means | {"relaxing_scale": min(scales, default=None)}


def _default_loss(model: nn.Module, batch: object) -> Tensor:
    labels = None
    if isinstance(batch, dict):
        output, labels = model(**batch), batch.get("labels")
    elif isinstance(batch, tuple | list):
        output, labels = model(batch[0]), batch[1]
    else:
        output = model(batch)
    if isinstance(getattr(output, "loss", None), Tensor):
        return output.loss
    for name in ("logits", "last_hidden_state"):
        output = getattr(output, name, output)
    output = output[0] if isinstance(output, tuple | list) else output
    if isinstance(labels, Tensor) and not labels.is_floating_point() and output.ndim == labels.ndim + 1:
        return F.cross_entropy(output.flatten(0, -2), labels.flatten())
    return output.square().flatten(1).sum(1).mean() / 2


def _gradient_norms(projections: list, value: Tensor) -> dict[tuple[str, str], float]:
    if value.ndim:
        raise ValueError(f"the loss must be a scalar, not of shape {tuple(value.shape)}")
    stored = {id(p.stored): p.stored for p in projections if p.stored.requires_grad}
    if not stored or not value.requires_grad:
        return {}
    # torch.autograd.grad leaves `.grad` alone, so that a step under way is not disturbed.
    found = torch.autograd.grad(value, list(stored.values()), allow_unused=True)
    gradients = dict(zip(stored, found, strict=True))
    norms = {}
    for projection in projections:
        gradient = gradients.get(id(projection.stored))
        if gradient is not None:
            norms[projection.attention, projection.which] = float(projection.select(gradient).double().norm())
    return norms


@contextmanager
def _evaluating(model: nn.Module):
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
