"""Theorem 3.3: the Jacobian of softmax attention with respect to W_Q, W_K, W_V, in closed form.

One head: A = P V with P = softmax(s Q Kᵀ + mask), Q = X W_Q + b_Q, K = X W_K + b_K, V = X W_V + b_V.
Row i of the differential, with Σ_i = diag(p_i) − p_i p_iᵀ (the derivative of softmax at row i):

    dA_i = M_i dW_Qᵀ x_i + B_i dW_K q_i + dW_Vᵀ y_i
    M_i = U_i K,  B_i = U_i X,  y_i = (P X)_i,  U_i = s Vᵀ Σ_i

so that block (i, j) of J Jᵀ is (x_i·x_j) M_i M_jᵀ + (q_i·q_j) B_i B_jᵀ + (y_i·y_j) I_d.

Shape suffixes: N tokens, D model width, d head width, F tokens again where rows and columns of P differ,
R rank coordinates of X (N where N < D, else D), E head width of the weight side, Z any leading batch.
Rows of J are (token, head channel), columns are [W_Q | W_K | W_V], each D×d in row-major order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specattn import jacobian_gram

# Entries of one dense block of columns that are built at a time (float64: 256 MB).
_BLOCK_ENTRIES = 2**25


@dataclass(frozen=True)
class AttentionJacobian:
    """The Jacobian of one softmax-attention head at X, as a linear map, a Gram matrix or a dense matrix.

    Build it with `attention_jacobian`. `parts` says which of the three column blocks J_Q, J_K, J_V are in.
    """

    x_ND: Tensor
    wq_Dd: Tensor
    wk_Dd: Tensor
    q_Nd: Tensor
    k_Nd: Tensor
    v_Nd: Tensor
    p_NF: Tensor
    scale: float
    query_bias: Tensor | None = None
    parts: str = "qkv"

    row_gram = jacobian_gram.row_gram
    column_gram = jacobian_gram.column_gram
    gauge_basis = jacobian_gram.gauge_basis

    @property
    def like(self) -> Tensor:
        """A tensor of the dtype and device of this Jacobian."""
        return self.x_ND

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns) = (N d, D d for every part)."""
        (n, width), head = self.x_ND.shape, self.v_Nd.shape[1]
        return n * head, len(self.parts) * width * head

    @property
    def gauge_dim(self) -> int:
        """Dimension of the weight changes that leave A unchanged for every X: W_Q G, W_K G⁻ᵀ.

        d². A query bias breaks the symmetry except along the d − 1 directions orthogonal to it (a key bias
        does not: it shifts whole rows of the logits), which leaves d² − d.
        """
        width, head = self.wq_Dd.shape
        # Narrower than a head only after `reduced`, where the N d rows are what limits the rank.
        if "q" not in self.parts or "k" not in self.parts or width < head:
            return 0
        biased = self.query_bias is not None and bool(self.query_bias.any())
        return head * (head - 1) if biased else head**2

    @property
    def max_rank(self) -> int:
        """How many singular values can be non-zero: min(N d, 3 D d − d²) for all three parts."""
        rows, columns = self.shape
        return min(rows, columns - self.gauge_dim)

    def part(self, parts: str) -> AttentionJacobian:
        """The columns of some of the parts alone, for example `part("q")` for J_Q."""
        if not parts or set(parts) - set("qkv") or len(set(parts)) != len(parts):
            raise ValueError(f"parts must be letters of 'qkv', each at most once, not {parts!r}")
        return replace(self, parts="".join(p for p in "qkv" if p in parts))

    def matvec(self, weights_ZC: Tensor) -> Tensor:
        """J w: (…, columns) → (…, N d). One forward-mode pass: O(N² d + N D d) for each vector."""
        lead, (n, width), head = weights_ZC.shape[:-1], self.x_ND.shape, self.v_Nd.shape[1]
        blocks = weights_ZC.reshape(*lead, len(self.parts), width, head).unbind(-3)
        change = {p: self.x_ND @ block for p, block in zip(self.parts, blocks, strict=True)}
        out_ZNd = weights_ZC.new_zeros(*lead, n, head)
        if "q" in change or "k" in change:
            ds_ZNF = 0.0
            if "q" in change:
                ds_ZNF = ds_ZNF + self.scale * change["q"] @ self.k_Nd.mT
            if "k" in change:
                ds_ZNF = ds_ZNF + self.scale * self.q_Nd @ change["k"].mT
            out_ZNd = self._softmax_derivative(ds_ZNF) @ self.v_Nd
        if "v" in change:
            out_ZNd = out_ZNd + self.p_NF @ change["v"]
        return out_ZNd.reshape(*lead, n * head)

    def rmatvec(self, rows_ZR: Tensor) -> Tensor:
        """Jᵀ u: (…, N d) → (…, columns). One backward pass, at the same cost as `matvec`."""
        lead, head = rows_ZR.shape[:-1], self.v_Nd.shape[1]
        u_ZNd = rows_ZR.reshape(*lead, -1, head)
        grads = []
        if "q" in self.parts or "k" in self.parts:
            ds_ZNF = self.scale * self._softmax_derivative(u_ZNd @ self.v_Nd.mT)
            grads += [ds_ZNF @ self.k_Nd] if "q" in self.parts else []
            grads += [ds_ZNF.mT @ self.q_Nd] if "k" in self.parts else []
        grads += [self.p_NF.mT @ u_ZNd] if "v" in self.parts else []
        return torch.stack([self.x_ND.mT @ g for g in grads], -3).reshape(*lead, -1)

    def _softmax_derivative(self, ds_ZNF: Tensor) -> Tensor:
        """Σ_i applied to row i (Σ_i is symmetric, so the same map serves forward and backward)."""
        weighted = self.p_NF * ds_ZNF
        return weighted - self.p_NF * weighted.sum(-1, keepdim=True)

    def reduced(self) -> AttentionJacobian:
        """The same singular values with min(N, D) in place of D: J factors through X = L Oᵀ, O orthonormal."""
        n, width = self.x_ND.shape
        if n >= width:
            return self
        basis_DR, tri_RN = torch.linalg.qr(self.x_ND.mT)
        return replace(
            self, x_ND=tri_RN.mT.contiguous(), wq_Dd=basis_DR.mT @ self.wq_Dd, wk_Dd=basis_DR.mT @ self.wk_Dd
        )

    def factors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """U (N, d, N), M (N, d, d), B (N, d, D) and Y (N, D) of the module's docstring."""
        out_Nd = self.p_NF @ self.v_Nd
        u_NdF = self.scale * self.p_NF[:, None, :] * (self.v_Nd.mT[None] - out_Nd[:, :, None])
        return u_NdF, u_NdF @ self.k_Nd, u_NdF @ self.x_ND, self.p_NF @ self.x_ND

    def column_blocks(self, entries: int = _BLOCK_ENTRIES) -> Iterator[Tensor]:
        """Dense blocks of columns, left to right, of about `entries` numbers each: (N d, c·d)."""
        _, m_NdE, b_NdD, y_ND = self.factors()
        (n, width), head = self.x_ND.shape, self.v_Nd.shape[1]
        step = max(1, entries // (n * head * head))
        eye_dE = torch.eye(head, dtype=self.x_ND.dtype, device=self.x_ND.device)
        for part in self.parts:
            for start in range(0, width, step):
                span = slice(start, start + step)
                if part == "q":
                    block = torch.einsum("nc,nae->nace", self.x_ND[:, span], m_NdE)
                elif part == "k":
                    block = torch.einsum("nac,ne->nace", b_NdD[:, :, span], self.q_Nd)
                else:
                    block = torch.einsum("nc,ae->nace", y_ND[:, span], eye_dE)
                yield block.reshape(n * head, -1)

    def matrix(self) -> Tensor:
        """The dense Jacobian (rows, columns); for small sizes."""
        return torch.cat(list(self.column_blocks()), 1)

    def squared_norm(self) -> float:
        """‖J‖_F², the trace of J Jᵀ and the sum of the squared singular values, in O(N² d (d + D))."""
        _, m_NdE, b_NdD, y_ND = self.factors()
        row = {
            "q": lambda: self.x_ND.square().sum(1) * m_NdE.square().sum((1, 2)),
            "k": lambda: self.q_Nd.square().sum(1) * b_NdD.square().sum((1, 2)),
            "v": lambda: y_ND.square().sum(1) * self.v_Nd.shape[1],
        }
        return float(sum(row[p]().sum() for p in self.parts))


def attention_jacobian(
    x_ND: Tensor,
    wq_Dd: Tensor,
    wk_Dd: Tensor,
    wv_Dd: Tensor,
    scale: float | None = None,
    biases: tuple[Tensor | None, Tensor | None, Tensor | None] = (None, None, None),
    mask: Tensor | None = None,
) -> AttentionJacobian:
    """Jacobian of A(X) = softmax(s (X W_Q + b_Q)(X W_K + b_K)ᵀ + mask) (X W_V + b_V) (Theorem 3.3).

    Args:
        x_ND: the tokens, (N, D).
        wq_Dd, wk_Dd, wv_Dd: the projections of one head as the paper writes them, (D, d): the transpose of
            a `torch.nn.Linear` weight. Pass W + C for conditioned attention: C is a constant, so that the
            derivatives with respect to W and to W + C are the same.
        scale: s; None for d^-1/2, 1.0 for the paper's formula.
        biases: b_Q, b_K, b_V, each (d,) or None.
        mask: added to the logits, broadcastable to (N, N): a relative position bias, or −inf where masked.

    Raises:
        ValueError: for shapes that do not fit together.
    """
    if x_ND.ndim != 2 or not (wq_Dd.shape == wk_Dd.shape == wv_Dd.shape) or wq_Dd.ndim != 2:
        shapes = [tuple(t.shape) for t in (x_ND, wq_Dd, wk_Dd, wv_Dd)]
        raise ValueError(f"X must be (N, D) and W_Q, W_K, W_V one (D, d), not {shapes}")
    if x_ND.shape[1] != wq_Dd.shape[0]:
        raise ValueError(f"X has width {x_ND.shape[1]} but the projections take {wq_Dd.shape[0]}")
    if wq_Dd.shape[1] > wq_Dd.shape[0]:
        raise ValueError(f"a head of width {wq_Dd.shape[1]} in a model of width {wq_Dd.shape[0]}: d must be at most D")
    scale = wq_Dd.shape[1] ** -0.5 if scale is None else float(scale)
    q, k, v = (x_ND @ w if b is None else x_ND @ w + b for w, b in zip((wq_Dd, wk_Dd, wv_Dd), biases, strict=True))
    logits = scale * (q @ k.mT)
    p_NF = torch.softmax(logits if mask is None else logits + mask, -1)
    return AttentionJacobian(x_ND, wq_Dd, wk_Dd, q, k, v, p_NF, scale, biases[0])


def multihead_jacobian(
    x_ND: Tensor,
    wq_HDd: Tensor,
    wk_HDd: Tensor,
    wv_HDd: Tensor,
    scale: float | None = None,
    biases: tuple[Tensor | None, Tensor | None, Tensor | None] = (None, None, None),
) -> list[AttentionJacobian]:
    """The diagonal blocks of the Jacobian of a multi-head layer (before its output projection), head by head.

    Head h's output depends on head h's columns of the projections alone, so that the layer's Jacobian is
    block diagonal and its singular values are the union of the heads'. W are (H, D, d), biases (H, d).
    """
    per_head = [[None] * len(wq_HDd) if b is None else list(b) for b in biases]
    return [
        attention_jacobian(x_ND, wq, wk, wv, scale, (bq, bk, bv))
        for wq, wk, wv, bq, bk, bv in zip(wq_HDd, wk_HDd, wv_HDd, *per_head, strict=True)
    ]
