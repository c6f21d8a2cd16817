"""Factoring a large Gram matrix: in place, and in float32 as a preconditioner for its smallest eigenvector.

Shape suffixes: O order of the matrix, W vectors, G null vectors, S basis vectors.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from specattn.lanczos import NotConvergedError, largest_eigenpair

# Columns factored at a time: the fastest of 96 to 512 where it was measured.
_BLOCK = 384
_LOBPCG_STEPS = 40


def cholesky_in_place(matrix_OO: Tensor, block: int = _BLOCK) -> bool:
    """Overwrites the lower triangle of a symmetric matrix, the only one it reads, by its Cholesky factor.

    Left-looking by blocks of columns: almost all of the n³/3 operations are two matrix products with long inner
    dimension, which took 0.7 of the processor time of LAPACK's `potrf` in MKL at n = 2,048 and 4,096, and no
    second matrix is held.

    Returns:
        False, with the matrix partly overwritten, where it is not positive definite to rounding.
    """
    order = len(matrix_OO)
    for start in range(0, order, block):
        stop = min(start + block, order)
        panel = matrix_OO[start:, start:stop]
        if start:
            panel.addmm_(matrix_OO[start:, :start], matrix_OO[start:stop, :start].mT, alpha=-1)
        corner, info = torch.linalg.cholesky_ex(panel[: stop - start])
        if int(info) != 0:
            return False
        panel[: stop - start] = corner
        if stop < order:
            panel[stop - start :] = torch.linalg.solve_triangular(
                corner.mT, panel[stop - start :], upper=True, left=False
            )
    return True


def smallest_by_float32(gram_OO: Tensor, gram_product: Callable, null_OG: Tensor | None, top: float) -> Tensor | None:
    """The unit eigenvector of G's smallest eigenvalue, with a float32 factor of G for a preconditioner.

    The factor takes half the time and memory of one in float64. Lanczos on its inverse starts close to the vector;
    LOBPCG, whose products with G are exact to float64, takes it to the accuracy of float64.

    Args:
        gram_OO: G, lower triangle; not kept.
        gram_product: v ↦ J Jᵀ v (or Jᵀ J v).
        null_OG: the known null space, which G holds at σ_max² and `gram_product` does not.
        top: σ_max.

    Returns:
        None where G is too ill-conditioned for float32: it is not positive definite there, or LOBPCG gets stuck.
    """
    factor = gram_OO.float()
    del gram_OO
    if not cholesky_in_place(factor):
        return None

    def precondition(v_OW: Tensor) -> Tensor:
        half = torch.linalg.solve_triangular(factor, v_OW.float(), upper=False)
        return torch.linalg.solve_triangular(factor.mT, half, upper=True).double()

    def product(v_OW: Tensor) -> Tensor:
        image = gram_product(v_OW)
        return image if null_OG is None else image + top**2 * (null_OG @ (null_OG.mT @ v_OW))

    try:
        _, start = largest_eigenpair(precondition, len(factor), factor[:0, :0].double(), tolerance=1e-5, max_basis=400)
    except NotConvergedError:
        return None
    basis_OS = start[:, None]
    for _ in range(_LOBPCG_STEPS):
        vector_O = basis_OS[:, :1]
        image = product(vector_O)
        value = (vector_O * image).sum()
        rest = image - value * vector_O
        # What rounding leaves of the residual cannot be reduced.
        if torch.linalg.vector_norm(rest) <= max(1e-10 * float(value), 30 * torch.finfo(torch.float64).eps * top**2):
            return vector_O[:, 0]
        wide_OS = torch.linalg.qr(torch.cat([basis_OS, precondition(rest)], 1))[0]
        small = wide_OS.mT @ product(wide_OS)
        _, turn = torch.linalg.eigh((small + small.mT) / 2)
        best = wide_OS @ turn[:, :1]
        # The next basis: the best vector, and the direction in which it moved.
        basis_OS = torch.cat([best, best - vector_O * (vector_O * best).sum()], 1)
        basis_OS = basis_OS / torch.linalg.vector_norm(basis_OS, dim=0)
    return None
