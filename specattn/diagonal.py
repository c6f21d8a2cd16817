"""A linear layer under a correction that is a multiple of the identity: y = x (W + λ I_k)ᵀ + b = x Wᵀ + b + λ x.

λx is added to the output, in place. Chosen by measurement (scripts/numerics.py, scripts/bench_overhead.py):

- W + C is neither formed nor kept for the backward pass, and a pass over x costs less than one over W;
- under autocast, W + λI rounds the diagonal of W away beside λ (at λ = 10 in bf16, 84 % of it). Adding in the
  precision of x and rounding once is the most accurate of the ways measured, forward and backward.

One autograd function does it, because autograd's own derivative of the addition makes a copy of the output for
every block, which takes ten times as long.

Shapes: O outputs, I inputs; a run is a stretch start:stop of the outputs that is cut into n blocks of r.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

#: (start, stop, r) of each stretch of corrected outputs, in order
Runs = tuple[tuple[int, int, int], ...]


def linear_plus_diagonal(
    input: Tensor, weight: Tensor, bias: Tensor | None, runs: Runs, lam: float, sigma_max: Tensor | None
) -> Tensor:
    """`F.linear(input, weight + C, bias)`, [..., O].

    Args:
        input: x, [..., I].
        weight, bias: W in `nn.Linear` orientation [O, I], and [O] or None.
        runs: where C is λ σ_max I_k; it is zero elsewhere.
        lam: λ.
        sigma_max: [number of blocks in all runs]; None for 1.
    """
    if torch.compiler.is_compiling():
        # The compiler derives and fuses this as well as the function below does it by hand.
        return _add(F.linear(input, weight, bias), input, runs, lam, sigma_max)
    low = [input, weight, bias]
    device = input.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        # What autocast does to a linear layer. Not left to it: within an autograd function it would put casts
        # without a gradient into the cache that it shares with other layers.
        dtype = torch.get_autocast_dtype(device)
        low = [t if t is None or t.dtype == torch.float64 else t.to(dtype) for t in low]
    return _LinearPlusDiagonal.apply(*low, input, runs, lam, sigma_max)


class _LinearPlusDiagonal(torch.autograd.Function):
    """`input`, `weight` and `bias` as the product takes them; `addend`: x in the precision in which λx is added."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input, weight, bias, addend, runs, lam, sigma_max):
        return _add(F.linear(input, weight, bias), addend, runs, lam, sigma_max)

    @staticmethod
    def setup_context(ctx, inputs, output):
        input, weight, _, addend, ctx.runs, ctx.lam, sigma_max = inputs
        ctx.addend_dtype = addend.dtype
        ctx.save_for_backward(input, weight, sigma_max)
        ctx.save_for_forward(input, weight, sigma_max)

    @staticmethod
    def backward(ctx, grad):
        input, weight, sigma_max = ctx.saved_tensors
        grad_input = grad_weight = grad_bias = grad_addend = None
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[3]:
            grad_input = grad @ weight
            if ctx.addend_dtype == grad_input.dtype:
                _add_transposed(grad_input, grad, ctx.runs, ctx.lam, sigma_max)
            else:
                grad_addend = torch.zeros_like(grad_input, dtype=ctx.addend_dtype)
                _add_transposed(grad_addend, grad, ctx.runs, ctx.lam, sigma_max)
        if ctx.needs_input_grad[1]:
            grad_weight = grad.reshape(-1, grad.shape[-1]).mT @ input.reshape(-1, input.shape[-1])
        if ctx.needs_input_grad[2]:
            grad_bias = grad.reshape(-1, grad.shape[-1]).sum(dim=0)
        return grad_input, grad_weight, grad_bias, grad_addend, None, None, None

    @staticmethod
    def jvp(ctx, input, weight, bias, addend, *_):
        x, w, sigma_max = ctx.saved_tensors
        terms = [] if input is None else [_add(F.linear(input, w), addend, ctx.runs, ctx.lam, sigma_max)]
        terms += [] if weight is None else [F.linear(x, weight)]
        terms += [] if bias is None else [bias]
        return sum(terms)


def _add(output: Tensor, x: Tensor, runs: Runs, lam: float, sigma_max: Tensor | None) -> Tensor:
    """Adds x Cᵀ to `output`, in place and in the higher precision of the two."""
    for (start, stop, rows), sigma in _with_sigma(runs, sigma_max):
        width = min(rows, x.shape[-1])  # the rectangular identity hands on the first inputs
        term = x[..., None, :width]
        term = term if sigma is None else term * sigma[:, None]
        output[..., start:stop].unflatten(-1, (-1, rows))[..., :width].add_(term, alpha=lam)
    return output


def _add_transposed(total: Tensor, grad: Tensor, runs: Runs, lam: float, sigma_max: Tensor | None) -> None:
    """Adds grad C to `total`, in place: the gradient of x Cᵀ with respect to x."""
    for (start, stop, rows), sigma in _with_sigma(runs, sigma_max):
        width = min(rows, total.shape[-1])
        blocks = grad[..., start:stop].unflatten(-1, (-1, rows))[..., :width]
        blocks = blocks if sigma is None else blocks * sigma[:, None]
        # A few blocks are added one by one, without a buffer between; many (one for each head) summed first.
        few = blocks.shape[-2] <= 3
        for term in blocks.unbind(-2) if few else [blocks.sum(dim=-2, dtype=total.dtype)]:
            total[..., :width].add_(term, alpha=lam)


def _with_sigma(runs: Runs, sigma_max: Tensor | None) -> list[tuple[tuple[int, int, int], Tensor | None]]:
    if sigma_max is None:
        return [(run, None) for run in runs]
    sizes = [(stop - start) // rows for start, stop, rows in runs]
    return list(zip(runs, sigma_max.split(sizes), strict=True))
