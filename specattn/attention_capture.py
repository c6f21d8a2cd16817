"""Seeing the softmax of any attention module without knowing its class.

A `TorchFunctionMode` watches the calls that compute attention (`softmax`, `scaled_dot_product_attention`,
`multi_head_attention_forward`) while hooks say whose forward is running. Fused kernels never form the
probabilities, so they are formed here from the call's own arguments, mask and scale included.

Shape suffixes: L any leading dimensions (batch, heads), N queries, F keys, d head width.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from specattn.projections import find_projections, unwrap

#: Called as see(attention module's name, logits (…, N, F)) at every softmax inside an attention module.
See = Callable[[str, Tensor], None]

_SOFTMAX = (F.softmax, torch.softmax, Tensor.softmax)
_MHA_SIGNATURE = inspect.signature(F.multi_head_attention_forward)


def attention_modules(model: nn.Module, modules: str | None = None) -> dict[str, nn.Module]:
    """Dotted name → attention module, in the model's order, for every module that `find_projections` knows."""
    names = dict.fromkeys(p.attention for p in find_projections(model, modules))
    clean = {n.replace("_orig_mod.", "").removesuffix("_orig_mod"): m for n, m in unwrap(model).named_modules()}
    return {name: clean[name] for name in names}


@contextlib.contextmanager
def watch_softmax(model: nn.Module, see: See, modules: str | None = None) -> Iterator[None]:
    """Calls `see` with the logits of every attention softmax that `model` computes inside the context.

    Masked keys have logits of −inf. Nothing is changed in the model's results.
    """
    running: list[str] = []
    handles = []

    def leave(*_) -> None:
        running.pop()

    for name, module in attention_modules(model, modules).items():
        handles.append(module.register_forward_pre_hook(lambda *_, name=name: running.append(name)))
        handles.append(module.register_forward_hook(leave, always_call=True))
    try:
        with _SoftmaxMode(running, see):
            yield
    finally:
        for handle in handles:
            handle.remove()


class _SoftmaxMode(TorchFunctionMode):
    def __init__(self, running: list[str], see: See):
        super().__init__()
        self.running, self.see = running, see

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.running:
            if func in _SOFTMAX:
                logits = args[0] if args else kwargs["input"]
                dim = kwargs["dim"] if "dim" in kwargs else args[1]
                self.see(self.running[-1], logits.detach().movedim(dim, -1))
            elif func is F.scaled_dot_product_attention:
                self.see(self.running[-1], _sdpa_logits(*args, **kwargs).detach())
            elif func is F.multi_head_attention_forward:
                return self._multi_head(func, args, kwargs)
        return func(*args, **kwargs)

    def _multi_head(self, func, args, kwargs):
        """torch's own layer in one call: ask it for the probabilities, of which the logits are the logarithm."""
        bound = _MHA_SIGNATURE.bind(*args, **kwargs)
        bound.apply_defaults()
        asked = bound.arguments
        need, average = asked["need_weights"], asked["average_attn_weights"]
        asked.update(need_weights=True, average_attn_weights=False)
        output, probability = func(*bound.args, **bound.kwargs)
        self.see(self.running[-1], probability.detach().log())
        if not need:
            return output, None
        return output, probability.mean(-3) if average else probability


def _sdpa_logits(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """The logits (…, N, F) that `scaled_dot_product_attention` takes the softmax of; the signature is torch's."""
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    logits = query.detach() @ key.detach().mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        visible = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).tril()
        logits = logits.masked_fill(~visible, float("-inf"))
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        logits = logits.masked_fill(~attn_mask, float("-inf"))
    elif attn_mask is not None:
        logits = logits + attn_mask
    return logits
