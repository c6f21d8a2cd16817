"""One attention layer as a function of its own W_Q, W_K, W_V, at the input that a model gives it.

The function's value is what enters the layer's output projection (`proj`, `out_proj`, …), before any mixing of
heads; the whole module's output where there is no such layer inside. One sample of the batch is used: the first
(the first window in window attention).

Shape suffixes: N tokens, D inputs, O outputs = heads · d, H heads, d head width, F keys.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from specattn.attention_capture import attention_modules, watch_softmax
from specattn.jacobian import AttentionJacobian, attention_jacobian
from specattn.projections import Projection, find_projections

#: Names of the output projection inside an attention module.
OUTPUT_PROJECTIONS = ("proj", "out_proj", "o_proj", "c_proj", "out_lin", "dense", "to_out")
# Closed form and autograd must agree to this share on a random cotangent; both are float64.
_AGREEMENT = 1e-9


@dataclass
class AttentionLayer:
    """A float64 copy of one attention module with the arguments it was called with."""

    name: str
    module: nn.Module
    args: tuple
    kwargs: dict
    projections: dict[str, Projection]
    closed: list[AttentionJacobian] | None = field(default=None)

    @property
    def heads(self) -> int | None:
        """Number of heads, None where q, k and v do not have the same, known one."""
        known = {p.heads for p in self.projections.values()}
        return known.pop() if len(known) == 1 else None

    def weights(self) -> tuple[Tensor, Tensor, Tensor]:
        """W_Q, W_K, W_V, each (O, D), without the corrections."""
        return tuple(self.projections[p].weight.detach() for p in "qkv")

    def __call__(self, *weights: Tensor) -> Tensor:
        """The first sample's (N, O) before the output projection, with W_Q, W_K, W_V in place of its own."""
        return self.run(dict(zip("qkv", weights, strict=True)))

    def run(self, weights: dict[str, Tensor]) -> Tensor:
        """As calling it, for some of the weights alone."""
        stored: dict[int, tuple[str, Tensor]] = {}
        for which, weight in weights.items():
            p = self.projections[which]
            key = id(p.stored)
            path = f"{p.owner_name}.{p.parameter}" if p.owner_name else p.parameter
            _, whole = stored.get(key, (path, p.stored.detach()))
            whole = whole.mT if p.transposed else whole
            whole = torch.cat([whole[: p.outputs.start], weight, whole[p.outputs.stop :]])
            stored[key] = (path, whole.mT if p.transposed else whole)
        seen: list[Tensor] = []
        output = next(
            (m for n in OUTPUT_PROJECTIONS if isinstance(m := getattr(self.module, n, None), nn.Module)), None
        )
        handle = output.register_forward_pre_hook(lambda _, args: seen.append(args[0])) if output is not None else None
        try:
            result = torch.func.functional_call(self.module, dict(stored.values()), self.args, self.kwargs)
        finally:
            if handle is not None:
                handle.remove()
        result = seen[-1] if seen else result
        return (result[0] if isinstance(result, tuple | list) else result)[0]


def attention_layers(
    model: nn.Module, batch: object, modules: str | None = None, tokens: int | None = None
) -> list[AttentionLayer]:
    """Every attention layer of a model at the inputs that a batch gives it, in float64.

    Args:
        model: any model whose attention `find_projections` knows, conditioned or not.
        batch: a tensor, a (tensor, labels) pair or a dict of keyword arguments; one sample is enough.
        modules: a glob on the attention module's dotted name; None takes all.
        tokens: attend over the first and evenly spaced further tokens of the layer's input only, to make a large
            Jacobian small; None takes all of them.

    Returns:
        One `AttentionLayer` for each, with `closed`, the heads' closed-form Jacobians, where the layer is
        softmax(s Q Kᵀ + mask) V: that is not read off its class but checked, by a random cotangent's product
        with the closed form against autograd's. Elsewhere `closed` is None.

    Raises:
        ValueError: no attention projection is found, or a layer cannot run on a subset of its tokens.
    """
    calls: dict[str, tuple[tuple, dict]] = {}

    def remember(name: str):
        def hook(_, args: tuple, kwargs: dict) -> None:
            calls.setdefault(name, (args, kwargs))

        return hook

    found = attention_modules(model, modules)
    handles = [m.register_forward_pre_hook(remember(n), with_kwargs=True) for n, m in found.items()]
    training = [m for m in model.modules() if m.training]
    try:
        model.eval()
        with torch.no_grad():
            if isinstance(batch, dict):
                model(**batch)
            else:
                model(batch[0] if isinstance(batch, tuple | list) else batch)
    finally:
        for handle in handles:
            handle.remove()
        for module in training:
            module.training = True
    layers = []
    for name, module in found.items():
        if name in calls:
            args, kwargs = (_double(value, tokens) for value in calls[name])
            own = copy.deepcopy(module).double().eval().requires_grad_(False)
            layer = AttentionLayer(name, own, args, kwargs, {p.which: p for p in find_projections(own)[:3]})
            layer.closed = _closed_form(layer, tokens)
            layers.append(layer)
    return layers


def _double(value: object, tokens: int | None) -> object:
    """Arguments in float64; three-dimensional ones, (batch, tokens, width), cut down to `tokens`."""
    if isinstance(value, tuple | list):
        return type(value)(_double(v, tokens) for v in value)
    if isinstance(value, dict):
        return {k: _double(v, tokens) for k, v in value.items()}
    if type(value).__name__.endswith("Cache"):
        return None  # transformers' keys and values of earlier calls: the layer is to be a function of its input
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return value
    if tokens is not None and value.ndim == 3 and value.shape[1] > tokens:
        keep = torch.linspace(0, value.shape[1] - 1, tokens, device=value.device).round().long()
        value = value[:, keep]
    return value.detach().double()


def _closed_form(layer: AttentionLayer, tokens: int | None) -> list[AttentionJacobian] | None:
    """The heads' Jacobians by Theorem 3.3, or None where they are not this layer's Jacobian."""
    logits: list[Tensor] = []
    leaves = {w: t.clone().requires_grad_() for w, t in zip("qkv", layer.weights(), strict=True)}
    try:
        with watch_softmax(layer.module, lambda _, seen: logits.append(seen)):
            value_NO = layer.run(leaves)
    except RuntimeError as error:
        if tokens is None:
            raise
        raise ValueError(
            f"{layer.name} cannot run on {tokens} of its tokens ({str(error).splitlines()[0]}): use tokens=None"
        ) from error
    x = next((a for a in (*layer.args, *layer.kwargs.values()) if isinstance(a, Tensor) and a.ndim == 3), None)
    heads = layer.heads
    if len(logits) != 1 or x is None or heads is None or logits[0].ndim != 4 or logits[0].shape[1] != heads:
        return None
    jacobians = _heads(layer, x[0], logits[0][0])
    if jacobians is None or sum(j.shape[0] for j in jacobians) != value_NO.numel():
        return None
    cotangent_NHd = (
        torch.randn(value_NO.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        .to(value_NO.device)
        .unflatten(-1, (heads, -1))
    )
    truth = torch.autograd.grad(value_NO, list(leaves.values()), cotangent_NHd.flatten(-2))
    mine = [
        j.rmatvec(cotangent_NHd[:, h].flatten()).unflatten(0, (3, -1, j.v_Nd.shape[1])) for h, j in enumerate(jacobians)
    ]
    for index, gradient_OD in enumerate(truth):
        closed_OD = torch.cat([m[index].mT for m in mine])
        if not float((closed_OD - gradient_OD).norm()) <= _AGREEMENT * float(gradient_OD.norm()) + 1e-300:
            return None
    return jacobians


def _heads(layer: AttentionLayer, x_ND: Tensor, logits_HNF: Tensor) -> list[AttentionJacobian] | None:
    heads = layer.heads
    effective = [layer.projections[p].effective_weight.detach().unflatten(0, (heads, -1)) for p in "qkv"]
    biases = [_bias(layer.projections[p]) for p in "qkv"]
    biases = [None if b is None else b.unflatten(0, (heads, -1)) for b in biases]
    if effective[0].shape != effective[2].shape or effective[0].shape[-1] != x_ND.shape[-1]:
        return None
    scale = getattr(layer.module, "scale", None)
    scale = float(scale) if isinstance(scale, int | float) else effective[0].shape[1] ** -0.5
    jacobians = []
    for h in range(heads):
        wq, wk, wv = (w[h].mT for w in effective)
        bias = tuple(None if b is None else b[h] for b in biases)
        bare = attention_jacobian(x_ND, wq, wk, wv, scale, bias)
        if logits_HNF[h].shape != bare.p_NF.shape:
            return None
        # Whatever the layer adds to the logits (relative positions, −inf) is constant in the weights, if the
        # check against autograd passes.
        mask = logits_HNF[h] - scale * bare.q_Nd @ bare.k_Nd.mT
        jacobians.append(attention_jacobian(x_ND, wq, wk, wv, scale, bias, mask))
    return jacobians


def _bias(projection: Projection) -> Tensor | None:
    """The bias that belongs to a weight, where it is kept beside it under the usual name."""
    bias = getattr(projection.owner, projection.parameter.replace("weight", "bias"), None)
    return bias.detach()[projection.outputs] if isinstance(bias, Tensor) else None
