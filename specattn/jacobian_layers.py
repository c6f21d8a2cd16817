"""The spectrum of the attention Jacobian of every layer of a real model, by the closed form where it applies."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from specattn.attention_layer import AttentionLayer, attention_layers
from specattn.jacobian_autograd import AutogradJacobian
from specattn.jacobian_extremes import extreme_singular_values
from specattn.jacobian_spectrum import JacobianMap, JacobianSpectrum, singular_values
from specattn.theorems import TERMS, theorem_3_4


def jacobian_spectra(
    model: nn.Module,
    batch: object,
    modules: str | None = None,
    tokens: int | None = None,
    per_head: bool = False,
    heads: tuple[int, ...] | None = None,
    resolve: bool = False,
    parts: bool = False,
    bound: bool = False,
) -> list[dict]:
    """σ_max, σ_min, κ, rank and floor of the Jacobian of each attention layer in W_Q, W_K, W_V at a batch.

    Args:
        model, batch, modules, tokens: see `attention_layers`. The Jacobian is that of the first sample.
        per_head: one record for each head instead of one for the layer, whose singular values are the heads'
            together (its Jacobian is block diagonal).
        heads: which heads to look at; None takes all.
        resolve: the slower path that resolves σ_min below the Gram matrix's floor.
        parts: the spectra of J_Q, J_K, J_V as well, as `sigma_max_q`, `kappa_nonzero_q`, `rank_q`, ….
        bound: Theorem 3.4's bound and its terms as well (see `theorem_3_4`), in the records of a single head of a
            layer that has the closed form; None elsewhere.

    Returns:
        One dict per layer (and head) with the fields of `JacobianSpectrum` and

        attention, layer, head: dotted name, index, head or None;
        path: "closed form" or "autograd";
        share_q, share_k, share_v: how much of the trace of J Jᵀ each part holds. They sum to 1.

    Raises:
        ValueError: see `attention_layers`; or a head that does not exist.
    """
    records = []
    for index, layer in enumerate(attention_layers(model, batch, modules, tokens)):
        found = []
        for head, jacobian, by_part in _blocks(layer, heads):
            record = {
                "attention": layer.name,
                "layer": index,
                "head": head,
                "path": "closed form" if layer.closed is not None else "autograd",
            }
            record |= extreme_singular_values(jacobian, resolve).record()
            norms = {p: j.squared_norm() for p, j in by_part.items()}
            if bound and (per_head or len(heads or layer.closed or ()) == 1):
                record |= _bound(layer, head)
            record["squared_norm"] = sum(norms.values())
            record |= {f"squared_norm_{p}": n for p, n in norms.items()}
            if parts:
                for p, j in by_part.items():
                    record |= _part_record(
                        p, singular_values(j, resolve) if p == "v" else extreme_singular_values(j, resolve)
                    )
            found.append(record)
        records += [_shares(r) for r in (found if per_head or len(found) == 1 else [_together(found)])]
        if not per_head:
            records[-1]["head"] = None
    return records


def _blocks(
    layer: AttentionLayer, chosen: tuple[int, ...] | None
) -> Iterator[tuple[int | None, JacobianMap, dict[str, JacobianMap]]]:
    """(head, J, {part: J of that part}) for each diagonal block of the layer's Jacobian."""
    count = layer.heads if layer.closed is not None or _separable(layer) else None
    if count is None:
        if chosen:
            raise ValueError(f"{layer.name} has no separate heads: leave `heads` out")
        weights = layer.weights()
        yield None, AutogradJacobian(layer, weights), _autograd_parts(layer, weights)
        return
    for head in range(count) if chosen is None else chosen:
        if not 0 <= head < count:
            raise ValueError(f"{layer.name} has heads 0 to {count - 1}, not {head}")
        if layer.closed is not None:
            jacobian = layer.closed[head]
            yield head, jacobian, {p: jacobian.part(p) for p in "qkv"}
        else:
            function, weights = _one_head(layer, head)
            yield head, AutogradJacobian(function, weights), _autograd_parts(function, weights)


def _autograd_parts(function, weights: tuple[Tensor, ...]) -> dict[str, JacobianMap]:
    return {p: AutogradJacobian(function, weights, i) for i, p in enumerate("qkv")}


def _one_head(layer: AttentionLayer, head: int):
    """The layer's outputs of one head as a function of that head's rows of W_Q, W_K, W_V."""
    whole = layer.weights()
    width = whole[0].shape[0] // layer.heads
    rows = slice(head * width, (head + 1) * width)

    def function(*weights: Tensor) -> Tensor:
        filled = [torch.cat([w[: rows.start], part, w[rows.stop :]]) for w, part in zip(whole, weights, strict=True)]
        return layer(*filled)[..., rows]

    return function, tuple(w[rows] for w in whole)


def _separable(layer: AttentionLayer) -> bool:
    """Whether each head's outputs depend on its own rows of the weights alone, tried on a random cotangent."""
    heads, weights = layer.heads, tuple(w.clone().requires_grad_() for w in layer.weights())
    if heads is None or len({w.shape for w in weights}) != 1:
        return False
    value = layer(*weights)
    if value.shape[-1] != weights[0].shape[0]:
        return False
    width = value.shape[-1] // heads
    random = torch.randn(value[..., :width].shape, generator=torch.Generator().manual_seed(0), dtype=value.dtype)
    gradients = torch.autograd.grad(value[..., :width], weights, random.to(value.device))
    return not any(bool(g[width:].any()) for g in gradients)


def _bound(layer: AttentionLayer, head: int | None) -> dict[str, float | None]:
    """Theorem 3.4's terms for one head, all None where the layer is not the theorem's."""
    if layer.closed is None:
        return dict.fromkeys((*TERMS, "bound"))
    wv_OD = layer.projections["v"].effective_weight.detach()
    return theorem_3_4(layer.closed[head or 0], wv_OD.unflatten(0, (layer.heads, -1))[head or 0].mT)


def _part_record(part: str, spectrum: JacobianSpectrum) -> dict:
    names = ("sigma_max", "sigma_min", "kappa", "kappa_nonzero", "rank", "count", "floor")
    return {f"{name}_{part}": getattr(spectrum, name) for name in names}


def _shares(record: dict) -> dict:
    total = record.pop("squared_norm")
    for part in "qkv":
        norm = record.pop(f"squared_norm_{part}")
        record[f"share_{part}"] = norm / total if total else None
    return record


def _together(heads: list[dict]) -> dict:
    """The layer's record from its heads': the union of their singular values, each resolved by its own head's floor.

    `floor` is the highest of them.
    """
    layer = dict(heads[0])
    for suffix in ("", "_q", "_k", "_v"):
        if f"sigma_max{suffix}" not in layer:
            continue

        def column(name: str, suffix: str = suffix) -> list:
            return [head[f"{name}{suffix}"] for head in heads]

        top = max(column("sigma_max"))
        smallest = min((t / k for t, k in zip(column("sigma_max"), column("kappa_nonzero"), strict=True)), default=0)
        resolved = None not in column("sigma_min")
        layer |= {
            f"sigma_max{suffix}": top,
            f"sigma_min{suffix}": min(column("sigma_min")) if resolved else None,
            f"kappa{suffix}": top / min(column("sigma_min")) if resolved else math.inf,
            f"kappa_nonzero{suffix}": top / smallest if smallest else math.inf,
            f"floor{suffix}": max(column("floor")),
        }
        for name in ("rank", "count"):
            layer[f"{name}{suffix}"] = sum(column(name))
    for name in ("rows", "columns", "squared_norm", "squared_norm_q", "squared_norm_k", "squared_norm_v"):
        layer[name] = sum(head[name] for head in heads)
    layer["relative_error"] = max(head["relative_error"] for head in heads)
    return layer
