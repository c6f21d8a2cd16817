"""Singular values of an attention Jacobian, all of them or the extremes alone, with their resolution stated.

A Gram matrix squares the condition number: its eigenvalues are good to about n ε σ_max², so that a singular value
below σ_max √(n ε) (the *floor*; n the Gram's order) cannot be told from zero. `resolve=True` goes through QR or
the SVD of the Jacobian itself, where the floor is σ_max n ε, at the price of a longer wait.

κ is σ_1 over the smallest of the min(rows, 3 D d − d²) values that can be non-zero, `inf` where that one lies below
the floor; `kappa_nonzero` is σ_1 over the smallest value above the floor, and `rank` counts the values above it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Protocol

import torch
from torch import Tensor


class JacobianMap(Protocol):
    """What a spectrum needs of a Jacobian: `AttentionJacobian` (closed form) or `AutogradJacobian` (general)."""

    shape: tuple[int, int]
    max_rank: int
    like: Tensor  # any tensor of the dtype and device to compute with

    def matvec(self, weights_ZC: Tensor) -> Tensor:
        """J w."""

    def rmatvec(self, rows_ZR: Tensor) -> Tensor:
        """Jᵀ u."""

    def row_gram(self) -> Tensor:
        """J Jᵀ, lower triangle."""

    def column_gram(self) -> Tensor:
        """Jᵀ J, lower triangle."""

    def gauge_basis(self) -> Tensor | None:
        """Orthonormal columns of the known null space, or None."""

    def column_blocks(self) -> Iterator[Tensor]:
        """Blocks of columns of the dense matrix."""

    def reduced(self) -> JacobianMap:
        """A map with the same singular values and no more columns."""


@dataclass(frozen=True)
class JacobianSpectrum:
    """The spectrum of one Jacobian; `record()` is the same as a plain dict without the list of values.

    sigma_max, sigma_min: σ_1 and the smallest of `count` values; None where it lies below `floor`.
    kappa, kappa_nonzero, rank: see the module's docstring.
    floor: the singular value below which nothing is resolved, in the unit of the singular values.
    count: min(rows, columns − gauge dimension), the number of values that can be non-zero.
    relative_error: bound on the relative error of sigma_min: rounding for `values`, the residual for extremes.
    method: "gram" or, after `resolve=True`, "svd"; `side` is the side of the Gram matrix, its order beside it.
    values: all `count` singular values in descending order, or None where only the extremes were asked for.
    """

    sigma_max: float
    sigma_min: float | None
    kappa: float
    kappa_nonzero: float
    rank: int
    floor: float
    count: int
    rows: int
    columns: int
    side: str
    method: str
    relative_error: float
    values: Tensor | None = field(default=None, repr=False)

    def record(self) -> dict:
        """Plain numbers and strings, without `values`."""
        return {key: value for key, value in asdict(self).items() if key != "values"}


def singular_values(jacobian: JacobianMap, resolve: bool = False) -> JacobianSpectrum:
    """All singular values, by `eigvalsh` of the smaller Gram matrix (by `svdvals` of J with `resolve`).

    Costs O(n³) for n = min(N d, 3 D d) and n² numbers of memory; with `resolve` O(n² m) and n m, m the other side.
    """
    rows, columns = jacobian.shape
    side = "rows" if rows <= columns else "columns"
    if resolve:
        sigma = torch.linalg.svdvals(torch.cat(list(jacobian.reduced().column_blocks()), 1))
        return _from_values(jacobian, sigma, side, "svd")
    gram = jacobian.row_gram() if side == "rows" else jacobian.column_gram()
    sigma = torch.linalg.eigvalsh(gram).flip(0).clamp(min=0).sqrt()
    return _from_values(jacobian, sigma, side, "gram")


def _from_values(jacobian: JacobianMap, sigma: Tensor, side: str, method: str) -> JacobianSpectrum:
    sigma = sigma[: jacobian.max_rank]
    top, bottom = float(sigma[0]), float(sigma[-1])
    floor = resolution_floor(top, jacobian.shape, sigma.dtype, method)
    rank = int((sigma > floor).sum())
    nonzero = top / float(sigma[rank - 1]) if rank else math.inf
    resolved = bottom > floor
    # Relative to σ_min, an error of floor² in σ² is floor² / (2 σ_min²); an error of floor in σ is floor / σ_min.
    share = floor / bottom if resolved else math.inf
    return JacobianSpectrum(
        sigma_max=top,
        sigma_min=bottom if resolved else None,
        kappa=top / bottom if resolved else math.inf,
        kappa_nonzero=nonzero,
        rank=rank,
        floor=floor,
        count=len(sigma),
        rows=jacobian.shape[0],
        columns=jacobian.shape[1],
        side=side,
        method=method,
        relative_error=share**2 / 2 if method == "gram" else share,
        values=sigma,
    )


def resolution_floor(sigma_max: float, shape: tuple[int, int], dtype: torch.dtype, method: str) -> float:
    """The singular value below which rounding hides everything: σ_max √(n ε) by a Gram matrix of order n = the
    smaller side, σ_max n ε with n = the larger side by an orthogonal factorisation of J.
    """
    eps = torch.finfo(dtype).eps
    return sigma_max * (math.sqrt(min(shape) * eps) if method == "gram" else max(shape) * eps)
