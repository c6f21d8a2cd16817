"""Block Lanczos with full reorthogonalisation: the largest eigenvalue of a symmetric operator.

Used on J Jᵀ for σ_max and on the inverse of a factored Gram matrix for σ_min: an inverse needs few steps, because
1/λ spreads the small eigenvalues far apart. A block converges through clusters that one vector would stick in,
and reads a large triangular factor once for all of its vectors.

Shape suffixes: O order of the operator, W block width, S basis vectors so far.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class NotConvergedError(RuntimeError):
    """The eigenvalue did not reach the tolerance within the allowed basis."""


def largest_eigenpair(
    apply: Callable[[Tensor], Tensor],
    order: int,
    like: Tensor,
    tolerance: float = 1e-9,
    block: int | None = None,
    max_basis: int = 1200,
) -> tuple[float, Tensor]:
    """The algebraically largest eigenvalue and a unit eigenvector of a symmetric operator.

    Args:
        apply: maps (order, W) to (order, W).
        order: the operator's order.
        like: a tensor of the dtype and device to compute with.
        tolerance: relative error of the eigenvalue to stop at. Some eigenvalue lies within the residual
            r = ‖A u − θ u‖ of θ, and within r² / gap where the next one is a gap away (Kato, Temple), which two
            bases in turn must say.
        block: vectors multiplied at a time; None for all up to order 64 (exact), then 4, and 8 from order 4,096 on,
            where reading a factor once for all of them is what costs.
        max_basis: basis vectors before giving up.

    Returns:
        θ and u, (order,).

    Raises:
        NotConvergedError: the tolerance was not reached.
    """
    if block is None:
        block = order if order <= 64 else 4 if order < 4096 else 8
    block = min(block, order)
    # Fixed start: the same matrix always gives the same digits.
    start = torch.Generator().manual_seed(0)
    fresh = torch.randn(order, block, generator=start, dtype=torch.float64).to(like)
    new_OW = torch.linalg.qr(fresh)[0]
    basis_OS = new_OW
    projected, met = like.new_zeros(0, 0), False
    while True:
        image_OW = apply(new_OW)
        size, width = basis_OS.shape[1], new_OW.shape[1]
        coupling_SW = basis_OS.mT @ image_OW
        grown = like.new_zeros(size, size)
        grown[: size - width, : size - width] = projected
        grown[:, size - width :] = coupling_SW
        grown[size - width :, :] = coupling_SW.mT
        projected = (grown + grown.mT) / 2
        # Twice is enough (Kahan, Parlett): after the second pass the basis is orthogonal to rounding.
        rest_OW = image_OW - basis_OS @ coupling_SW
        rest_OW = rest_OW - basis_OS @ (basis_OS.mT @ rest_OW)
        values, vectors = torch.linalg.eigh(projected)
        theta, ritz_S = values[-1], vectors[:, -1]
        residual = torch.linalg.vector_norm(rest_OW @ ritz_S[-width:])
        gap = theta - values[-2] if size > 1 else theta.abs()
        error = torch.minimum(residual, residual**2 / gap.clamp(min=torch.finfo(like.dtype).tiny))
        # A basis that has met one member alone of a cluster sees a gap that is not there; the next block meets more.
        met_before, met = met, bool(error <= tolerance * theta.abs())
        if (met and met_before) or residual <= tolerance * theta.abs() or size == order:
            vector = basis_OS @ ritz_S
            return float(theta), vector / torch.linalg.vector_norm(vector)
        if size >= max_basis:
            raise NotConvergedError(
                f"Lanczos: relative error {float(error / theta.abs()):.1e} after {size} vectors, not {tolerance:.0e}"
            )
        new_OW = torch.linalg.qr(rest_OW)[0][:, : order - size]
        # A rank-deficient remainder leaves QR's columns arbitrary: make them orthogonal to the basis again.
        new_OW = torch.linalg.qr(new_OW - basis_OS @ (basis_OS.mT @ new_OW))[0]
        basis_OS = torch.cat([basis_OS, new_OW], 1)
