"""Gram matrices of the attention Jacobian on either side, from the factors of Theorem 3.3.

The row side J Jᵀ (order N d) is built block by block from
(x_i·x_j) M_i M_jᵀ + (q_i·q_j) B_i B_jᵀ + (y_i·y_j) I_d; the column side Jᵀ J (order 3 D d) from sums over tokens of
Kronecker products. Neither needs the N d backward passes. Only the lower triangle is filled: that is what
Cholesky, LDLᵀ and `eigvalsh` read.

Shape suffixes: N tokens, D model width, d and e, f, g head channels, C = N d or 3 D d.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from specattn.jacobian import AttentionJacobian

# Rows of the row-side Gram computed at a time: large enough for full matrix-product speed.
_ROWS = 1024


def row_gram(jacobian: AttentionJacobian) -> Tensor:
    """The lower triangle of J Jᵀ, (N d, N d); what lies above its diagonal blocks is undefined."""
    jacobian = jacobian.reduced()
    _, m_NdE, b_NdD, y_ND = jacobian.factors()
    tokens, head = jacobian.v_Nd.shape
    x_ND, q_Nd = jacobian.x_ND, jacobian.q_Nd
    m_CE, b_CD = m_NdE.reshape(tokens * head, -1), b_NdD.reshape(tokens * head, -1)
    terms = []
    if "q" in jacobian.parts:
        terms.append((m_CE, x_ND @ x_ND.mT))
    if "k" in jacobian.parts:
        terms.append((b_CD, q_Nd @ q_Nd.mT))
    yy_NN = y_ND @ y_ND.mT if "v" in jacobian.parts else None
    gram_CC = x_ND.new_empty(tokens * head, tokens * head)
    step = max(1, _ROWS // head)
    for start in range(0, tokens, step):
        stop = min(start + step, tokens)
        rows, columns = slice(start * head, stop * head), slice(0, stop * head)
        target = gram_CC[rows, columns].zero_().unflatten(0, (-1, head)).unflatten(2, (-1, head))
        for factor_C, weight_NN in terms:
            product = (factor_C[rows] @ factor_C[columns].mT).view(target.shape)
            target.addcmul_(product, weight_NN[start:stop, None, :stop, None])
        if yy_NN is not None:
            target.diagonal(dim1=1, dim2=3).add_(yy_NN[start:stop, :stop, None])
    return gram_CC


def column_gram(jacobian: AttentionJacobian) -> Tensor:
    """Jᵀ J, (3 D d, 3 D d), both triangles."""
    _, m_NdE, b_NdD, y_ND = jacobian.factors()
    x_ND, q_Nd = jacobian.x_ND, jacobian.q_Nd
    head = q_Nd.shape[1]

    def summed(left: Tensor, right: Tensor, order: tuple[int, ...]) -> Tensor:
        """Σ_i left_i ⊗ right_i as one matrix product; `order` brings the four axes to (D, d, D, d)."""
        product = left.flatten(1).mT @ right.flatten(1)
        return product.reshape(*left.shape[1:], *right.shape[1:]).permute(order).flatten(2).flatten(0, 1)

    def outer(a: Tensor, b: Tensor) -> Tensor:
        return a[:, :, None] * b[:, None, :]

    blocks = {
        "qq": lambda: summed(outer(x_ND, x_ND), m_NdE.mT @ m_NdE, (0, 2, 1, 3)),
        "kk": lambda: summed(b_NdD.mT @ b_NdD, outer(q_Nd, q_Nd), (0, 2, 1, 3)),
        "vv": lambda: torch.kron(y_ND.mT @ y_ND, torch.eye(head, dtype=y_ND.dtype, device=y_ND.device)),
        # (a, f, e, c) → (a, e, c, f): Σ_i x_i[a] q_i[f] (M_iᵀ B_i)[e, c]
        "qk": lambda: summed(outer(x_ND, q_Nd), m_NdE.mT @ b_NdD, (0, 2, 3, 1)),
        # (a, c, f, e) → (a, e, c, f): Σ_i x_i[a] y_i[c] M_i[f, e]
        "qv": lambda: summed(outer(x_ND, y_ND), m_NdE, (0, 3, 1, 2)),
        # (f, a, e, c) → (a, e, c, f): Σ_i B_i[f, a] q_i[e] y_i[c]
        "kv": lambda: summed(b_NdD, outer(q_Nd, y_ND), (1, 2, 3, 0)),
    }
    parts = jacobian.parts
    size = x_ND.shape[1] * head
    gram = x_ND.new_zeros(len(parts) * size, len(parts) * size)
    for i, row in enumerate(parts):
        for j, column in enumerate(parts[: i + 1]):
            block = blocks[column + row]()
            gram[i * size : (i + 1) * size, j * size : (j + 1) * size] = block.mT
            gram[j * size : (j + 1) * size, i * size : (i + 1) * size] = block
    return gram


def gauge_basis(jacobian: AttentionJacobian) -> Tensor | None:
    """Orthonormal columns that span the weight changes with J w = 0 for every X; None where there are none.

    They are (W_Q H, −W_K Hᵀ, 0), the tangent of W_Q G, W_K G⁻ᵀ at G = I, for every H (with a query bias b, for
    bᵀ H = 0). On the column side they must be set aside before σ_min means anything.
    """
    dim = jacobian.gauge_dim
    if dim == 0:
        return None
    head = jacobian.q_Nd.shape[1]
    eye = torch.eye(head, dtype=jacobian.x_ND.dtype, device=jacobian.x_ND.device)
    allowed = eye
    if dim < head**2:
        # The last d − 1 left singular vectors of b span its orthogonal complement.
        allowed = torch.linalg.svd(jacobian.query_bias.to(eye)[:, None])[0][:, 1:]
    h_Gde = torch.einsum("da,eb->abde", allowed, eye).flatten(0, 1)
    blocks = {"q": jacobian.wq_Dd @ h_Gde, "k": -(jacobian.wk_Dd @ h_Gde.mT)}
    blocks["v"] = torch.zeros_like(blocks["q"])
    stacked = torch.cat([blocks[p].flatten(1) for p in jacobian.parts], 1)
    return torch.linalg.qr(stacked.mT)[0]
