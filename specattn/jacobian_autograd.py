"""The Jacobian of any differentiable attention by batched vector-Jacobian products, on the same small-side Gram.

For attention that is not softmax(Q Kᵀ) V: cross-covariance, channel attention, Nyström, normalised or rotated
queries. Slower than the closed form by the cost of a forward and backward pass for every row or column.

Shape suffixes: Z leading dimensions, R rows (outputs), C columns (weights), B products computed at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

# Products run at a time.
_CHUNK = 64


class AutogradJacobian:
    """The Jacobian of function(*weights) with respect to the weights, as a `JacobianMap`.

    Args:
        function: maps the weights to a tensor; pure, made of operations that `torch.func` can transform.
        weights: the point at which to differentiate, in the dtype to compute with.
        part: index of the only weight to differentiate in (J_Q, J_K or J_V); None for all of them.

    No null space is assumed: κ counts min(rows, columns) values, and weights that change nothing (W_Q and W_K up
    to a scale, where queries are normalised) show as rank below that.
    """

    gauge_dim = 0

    def __init__(self, function: Callable[..., Tensor], weights: tuple[Tensor, ...], part: int | None = None):
        self.function, self.part = function, part
        self.weights = tuple(w.detach() for w in weights)
        self.free = self.weights if part is None else (self.weights[part],)
        self.like = self.free[0]

    def _outputs(self, *free: Tensor) -> Tensor:
        weights = list(self.weights)
        weights[slice(None) if self.part is None else slice(self.part, self.part + 1)] = free
        return self.function(*weights).flatten()

    @cached_property
    def _backward(self) -> tuple[Tensor, Callable]:
        # Fused attention kernels have no second derivative, which `matvec` needs.
        with sdpa_kernel(SDPBackend.MATH):
            return torch.func.vjp(self._outputs, *self.free)

    @cached_property
    def _forward(self) -> Callable:
        # Jᵀ u is linear in u, and the transpose of that linear map is J.
        zero_R = torch.zeros_like(self._backward[0])

        def transposed(u_R: Tensor) -> tuple[Tensor, ...]:
            with sdpa_kernel(SDPBackend.MATH):
                return torch.func.vjp(self._outputs, *self.free)[1](u_R)

        return torch.func.vjp(transposed, zero_R)[1]

    @property
    def shape(self) -> tuple[int, int]:
        """(outputs, weights)."""
        return self._backward[0].numel(), sum(w.numel() for w in self.free)

    @property
    def max_rank(self) -> int:
        """min(rows, columns)."""
        return min(self.shape)

    def rmatvec(self, rows_ZR: Tensor) -> Tensor:
        """Jᵀ u: (…, rows) → (…, columns)."""

        def one(u_R: Tensor) -> Tensor:
            return torch.cat([g.flatten() for g in self._backward[1](u_R)])

        return _batched(one, rows_ZR)

    def matvec(self, weights_ZC: Tensor) -> Tensor:
        """J w: (…, columns) → (…, rows), as the transpose of `rmatvec`."""
        sizes = [w.numel() for w in self.free]

        def one(w_C: Tensor) -> Tensor:
            parts = [p.view(w.shape) for p, w in zip(w_C.split(sizes), self.free, strict=True)]
            return self._forward(tuple(parts))[0]

        return _batched(one, weights_ZC)

    def row_gram(self) -> Tensor:
        """J Jᵀ, a chunk of columns at a time."""
        return self._gram(self.shape[0], lambda unit: self.matvec(self.rmatvec(unit)))

    def column_gram(self) -> Tensor:
        """Jᵀ J, a chunk of columns at a time."""
        return self._gram(self.shape[1], lambda unit: self.rmatvec(self.matvec(unit)))

    def _gram(self, order: int, product: Callable[[Tensor], Tensor]) -> Tensor:
        gram = self.like.new_empty(order, order)
        for start, unit_BO in _units(order, self.like):
            gram[start : start + len(unit_BO)] = product(unit_BO)
        return gram

    def column_blocks(self) -> Iterator[Tensor]:
        """The dense matrix in one block."""
        rows, _ = self.shape
        yield torch.cat([self.rmatvec(unit_BO) for _, unit_BO in _units(rows, self.like)])

    def squared_norm(self) -> float:
        """‖J‖_F², by one product for every row."""
        return float(sum(self.rmatvec(unit).square().sum() for _, unit in _units(self.shape[0], self.like)))

    def gauge_basis(self) -> None:
        """No null space is known in advance."""
        return None

    def reduced(self) -> AutogradJacobian:
        """Itself: nothing is known to reduce."""
        return self


def _units(order: int, like: Tensor) -> Iterator[tuple[int, Tensor]]:
    for start in range(0, order, _CHUNK):
        stop = min(start + _CHUNK, order)
        unit_BO = like.new_zeros(stop - start, order)
        unit_BO.diagonal(start).fill_(1.0)
        yield start, unit_BO


def _batched(one: Callable[[Tensor], Tensor], vectors: Tensor) -> Tensor:
    """`one` over all leading dimensions, at most `_CHUNK` at a time."""
    lead = vectors.shape[:-1]
    flat = vectors.reshape(-1, vectors.shape[-1])
    return torch.vmap(one, chunk_size=_CHUNK)(flat).reshape(*lead, -1)
