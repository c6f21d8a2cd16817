"""σ_max, σ_min and κ of an attention Jacobian without an eigendecomposition.

σ_max: block Lanczos on J Jᵀ, with products of the cost of one forward and one backward pass.
σ_min: one Cholesky factorisation of the smaller Gram matrix and block Lanczos on its inverse (n³/3 operations,
all in matrix products, against some 4/3 n³, half of them bound by memory, for `eigvalsh`); large ones are factored
in float32, which then preconditions. σ_min is then the norm
‖Jᵀ u‖ at the vector found, which is accurate to the square of the vector's error.
Where the Gram matrix is singular to rounding, LDLᵀ of G − floor² I counts the eigenvalues above the floor
(Sylvester's law of inertia) and its inverse finds the smallest of them.

Shape suffixes: O order of the Gram matrix, W vectors, C columns of J.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from specattn.cholesky import cholesky_in_place, smallest_by_float32
from specattn.jacobian_spectrum import JacobianMap, JacobianSpectrum, resolution_floor
from specattn.lanczos import largest_eigenpair

# Order from which a factor in float32 pays: 0.14 s against 0.18 s at 2,048, 7 s against 10 s at 12,608.
_LARGE = 1024


def extreme_singular_values(jacobian: JacobianMap, resolve: bool = False) -> JacobianSpectrum:
    """σ_max, σ_min, κ, rank and `kappa_nonzero`; `values` stays None.

    Args:
        jacobian: `AttentionJacobian` or `AutogradJacobian`, best in float64.
        resolve: factor J by QR instead of its Gram matrix: the floor drops from σ_max √(n ε) to σ_max n ε.

    Returns:
        The spectrum with `relative_error` the bound ‖J Jᵀ u − σ² u‖ / (2 σ²) on σ_min, which holds for some
        singular value near it; the rounding of that residual itself makes it about ε κ².

    Raises:
        NotConvergedError: Lanczos did not converge (a cluster wider than its basis).
    """
    rows, columns = jacobian.shape
    # A side with more than max_rank rows or columns has a null space by its shape.
    side = "rows" if rows == jacobian.max_rank else "columns"
    on_rows = side == "rows"
    small = jacobian.reduced() if on_rows else jacobian
    like = small.like
    order = rows if on_rows else columns

    def forth(w_WO: Tensor) -> Tensor:
        return small.rmatvec(w_WO) if on_rows else small.matvec(w_WO)

    def gram_product(v_OW: Tensor) -> Tensor:
        image = forth(v_OW.mT)
        return (small.matvec(image) if on_rows else small.rmatvec(image)).mT

    top = math.sqrt(max(largest_eigenpair(gram_product, order, like)[0], 0.0))
    floor = resolution_floor(top, (rows, columns), like.dtype, "svd" if resolve else "gram")
    spectrum = JacobianSpectrum(
        sigma_max=top,
        sigma_min=None,
        kappa=math.inf,
        kappa_nonzero=math.inf,
        rank=0,
        floor=floor,
        count=jacobian.max_rank,
        rows=rows,
        columns=columns,
        side=side,
        method="svd" if resolve else "gram",
        relative_error=math.inf,
    )
    if top == 0.0:
        return spectrum
    null = None if on_rows else small.gauge_basis()
    if resolve:
        triangle = _triangle(small, on_rows, None if null is None else top * null)
        solve = _triangle_solver(triangle)
    else:
        solve = None
        if order >= _LARGE and like.dtype == torch.float64:
            vector = smallest_by_float32(_gram(small, on_rows, null, top), gram_product, null, top)
            if vector is not None:
                return _resolved(spectrum, vector, forth, gram_product)
        solve = _cholesky_solver(_gram(small, on_rows, null, top))
    if solve is not None:
        _, vector = largest_eigenpair(solve, order, like)
        # Lanczos weighs directions by 1/λ, ‖Jᵀ u‖ by λ: one more inverse step takes the large ones out of u.
        vector = solve(vector[:, None])[:, 0]
        vector = vector / torch.linalg.vector_norm(vector)
        found = _resolved(spectrum, vector, forth, gram_product)
        if found.sigma_min is not None:
            return found
    if resolve:
        return _counted(spectrum, torch.linalg.svdvals(triangle))
    solve = None  # frees the factor before the Gram matrix, which it overwrote, is built again
    rank, smallest = _above(_gram(small, on_rows, null, top), floor**2, top**2, like)
    # On the column side the deflated null space counts as large.
    rank -= order - jacobian.max_rank if null is not None else 0
    return replace(spectrum, rank=rank, kappa_nonzero=top / math.sqrt(smallest) if rank > 0 else math.inf)


def _resolved(
    spectrum: JacobianSpectrum, vector_O: Tensor, forth: Callable, gram_product: Callable
) -> JacobianSpectrum:
    """The spectrum with σ_min = ‖Jᵀ u‖, where that lies above the floor."""
    sigma = float(torch.linalg.vector_norm(forth(vector_O[None])))
    if sigma <= spectrum.floor:
        return spectrum
    residual = gram_product(vector_O[:, None])[:, 0] - sigma**2 * vector_O
    kappa = spectrum.sigma_max / sigma
    return replace(
        spectrum,
        sigma_min=sigma,
        kappa=kappa,
        kappa_nonzero=kappa,
        rank=spectrum.count,
        relative_error=float(torch.linalg.vector_norm(residual)) / (2 * sigma**2),
    )


def _gram(jacobian: JacobianMap, on_rows: bool, null_CG: Tensor | None, top: float) -> Tensor:
    """The smaller Gram matrix, lower triangle."""
    gram = jacobian.row_gram() if on_rows else jacobian.column_gram()
    if null_CG is not None:
        # The known null space moves to σ_max², out of the way of the smallest eigenvalue.
        gram.addmm_(null_CG, null_CG.mT, alpha=top**2)
    return gram


def _counted(spectrum: JacobianSpectrum, sigma: Tensor) -> JacobianSpectrum:
    above = sigma[: spectrum.count][sigma[: spectrum.count] > spectrum.floor]
    return replace(spectrum, rank=len(above), kappa_nonzero=float(above[0] / above[-1]) if len(above) else math.inf)


def _cholesky_solver(gram_OO: Tensor) -> Callable[[Tensor], Tensor] | None:
    """v ↦ G⁻¹ v, or None where G is not positive definite to rounding; G is overwritten by its factor."""
    if not cholesky_in_place(gram_OO):
        return None

    def solve(v_OW: Tensor) -> Tensor:
        half = torch.linalg.solve_triangular(gram_OO, v_OW, upper=False)
        return torch.linalg.solve_triangular(gram_OO.mT, half, upper=True)

    return solve


def _triangle(jacobian: JacobianMap, on_rows: bool, null_CG: Tensor | None) -> Tensor:
    """R of the QR factorisation of Jᵀ (row side) or of J with the null space as extra rows (column side).

    The blocks of columns are folded in one after another, so that no more than one of them is held.
    """
    if not on_rows:
        dense = torch.cat(list(jacobian.column_blocks()), 1)
        return torch.linalg.qr(dense if null_CG is None else torch.cat([dense, null_CG.mT]), mode="r")[1]
    triangle = None
    for block in jacobian.column_blocks():
        stacked = block.mT if triangle is None else torch.cat([triangle, block.mT])
        triangle = torch.linalg.qr(stacked, mode="r")[1]
    return triangle


def _triangle_solver(triangle_OO: Tensor) -> Callable[[Tensor], Tensor] | None:
    """v ↦ (Rᵀ R)⁻¹ v, or None where R has a zero pivot."""
    if not bool((triangle_OO.diagonal() != 0).all()):
        return None

    def solve(v_OW: Tensor) -> Tensor:
        half = torch.linalg.solve_triangular(triangle_OO.mT, v_OW, upper=False)
        return torch.linalg.solve_triangular(triangle_OO, half, upper=True)

    return solve


def _above(gram_OO: Tensor, floor: float, top: float, like: Tensor) -> tuple[int, float]:
    """(how many eigenvalues of G lie above `floor`, the smallest of them); `top` is the largest eigenvalue of G.

    The zeros of G, seen from a shift s, weigh −1/s, and drown 1/(λ − s) in their rounding where s is far below the
    λ that is looked for. So s is first brought within four decades of it, by bisection on the counts.
    """
    count, solve = _inertia(gram_OO, floor)
    low, high = floor, 2 * top
    while count and high > 1e4 * low:
        middle = math.sqrt(low * high)
        above, solve_middle = _inertia(gram_OO, middle)
        if above == count:
            low, solve = middle, solve_middle
        else:
            high = middle
    if not count:
        return 0, math.inf
    return count, low + 1 / largest_eigenpair(solve, len(gram_OO), like)[0]


def _inertia(gram_OO: Tensor, shift: float) -> tuple[int, Callable[[Tensor], Tensor]]:
    """(how many eigenvalues of G lie above `shift`, v ↦ (G − shift I)⁻¹ v), from LDLᵀ."""
    gram_OO.diagonal().sub_(shift)
    factor, pivots, _ = torch.linalg.ldl_factor_ex(gram_OO)
    gram_OO.diagonal().add_(shift)
    single = pivots > 0
    # A 2 × 2 pivot of Bunch and Kaufman is indefinite: one eigenvalue of either sign, two entries of `pivots`.
    negative = int((factor.diagonal()[single] < 0).sum()) + int((~single).sum()) // 2
    return len(gram_OO) - negative, lambda v: torch.linalg.ldl_solve(factor, pivots, v)
