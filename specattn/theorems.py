"""The paper's Theorems 3.4, 3.5 and 3.8 as numbers: each side of each inequality, term by term.

Nothing here assumes that a theorem holds; `scripts/theory_table.py` counts how often it does.
κ(M) is σ_1 over the smallest of min(rows, columns) singular values, `inf` below the resolution of float64,
max(rows, columns) ε σ_1, unless a function says otherwise.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from specattn.jacobian import AttentionJacobian

#: The terms of Theorem 3.4's bound, as `theorem_3_4` names them.
TERMS = ("kappa_x", "kappa_lambda", "kappa_wq", "kappa_wk", "kappa_wv", "kappa_softmax")


def kappa(matrix: Tensor) -> float:
    """Condition number of a matrix: σ_1 over the smallest of min(rows, columns) values, `inf` where not resolved."""
    sigma = torch.linalg.svdvals(matrix)
    floor = max(matrix.shape) * torch.finfo(sigma.dtype).eps * sigma[0]
    return float(sigma[0] / sigma[-1]) if bool(sigma[-1] > floor) else math.inf


def softmax_derivative_kappa(p_NF: Tensor) -> float:
    """κ(Λ) of Λ = blockdiag(Σ_1, …, Σ_N), Σ_i = diag(p_i) − p_i p_iᵀ, over its non-trivial spectrum.

    Every Σ_i is singular, Σ_i 1 = 0, so that κ(Λ) read literally is infinite for every attention and the bound of
    Theorem 3.4 with it. What can be meant is Λ on the complement of those N null vectors: the largest over the
    smallest of the N (F − 1) eigenvalues that remain. `inf` where the smallest is not resolved, which is the
    case as soon as one row nearly ignores two keys.
    """
    sigma_NFF = torch.diag_embed(p_NF) - p_NF[:, :, None] * p_NF[:, None, :]
    values_NF = torch.linalg.eigvalsh(sigma_NFF)
    if values_NF.shape[1] < 2:
        return math.inf
    largest, smallest = values_NF[:, -1].max(), values_NF[:, 1].min()
    floor = values_NF.shape[1] * torch.finfo(p_NF.dtype).eps * largest
    return float(largest / smallest) if bool(smallest > floor) else math.inf


def theorem_3_4(jacobian: AttentionJacobian, wv_Dd: Tensor) -> dict[str, float]:
    """The bound κ(J) ≤ κ(X)³ κ(Λ) κ(W_V) (κ(W_Q) + κ(W_K)) + κ(X) κ(softmax), term by term.

    Args:
        jacobian: one head; its `x_ND` must be the tokens themselves (not `reduced()`).
        wv_Dd: its W_V, which the Jacobian does not keep.

    Returns:
        kappa_x, kappa_lambda (`softmax_derivative_kappa`), kappa_wq, kappa_wk, kappa_wv, kappa_softmax (of the
        N × N matrix of probabilities), and `bound`. A bias is not part of the theorem and enters through P alone.
    """
    terms = {
        "kappa_x": kappa(jacobian.x_ND),
        "kappa_lambda": softmax_derivative_kappa(jacobian.p_NF),
        "kappa_wq": kappa(jacobian.wq_Dd),
        "kappa_wk": kappa(jacobian.wk_Dd),
        "kappa_wv": kappa(wv_Dd),
        "kappa_softmax": kappa(jacobian.p_NF),
    }
    weights = terms["kappa_wv"] * (terms["kappa_wq"] + terms["kappa_wk"])
    bound = terms["kappa_x"] ** 3 * terms["kappa_lambda"] * weights + terms["kappa_x"] * terms["kappa_softmax"]
    return terms | {"bound": bound}


def theorem_3_5(weight: Tensor, lam: float = 1.0) -> tuple[float, float]:
    """(κ(W), κ(W + C)) for C = λ σ_max U Vᵀ taken from W itself.

    The theorem: κ(W + C) ≤ (1 + λ) / λ, which is 2 for λ = 1. Proof: W + C = U (S + λ σ_max I) Vᵀ has singular
    values σ_i + λ σ_max, so that κ(W + C) = (1 + λ) σ_max / (σ_min + λ σ_max), and σ_min ≥ 0. It says nothing
    of a W that has moved on since C was computed.
    """
    u, s, vh = torch.linalg.svd(weight, full_matrices=False)
    return kappa(weight), kappa(weight + lam * s[0] * (u @ vh))


def theorem_3_8(weight: Tensor, lams: Tensor) -> tuple[float, Tensor]:
    """κ(W) and κ(W + λ I_k) for each λ, I_k the rectangular identity of W's shape; (), (len(lams),).

    For a general W, κ(W + λ I_k) < κ(W) is false at any λ: W = −λ I_k gives the zero matrix, and
    W = −λ diag(1, 1 + δ, …) a singular or a worse conditioned one. `sufficient_lam` says when it is true.
    """
    eye = torch.eye(*weight.shape, dtype=weight.dtype, device=weight.device)
    return kappa(weight), torch.tensor([kappa(weight + lam * eye) for lam in lams.tolist()], dtype=weight.dtype)


def identity_bound(sigma_max: float, lam: float) -> float:
    """Upper bound on κ(W + λ I_k) for λ > σ_max(W): (λ + σ_max) / (λ − σ_max); `inf` for smaller λ.

    Proof. All k singular values of the rectangular identity I_k are 1, so those of λ I_k are λ. By Weyl's
    inequality for singular values, |σ_i(A + B) − σ_i(A)| ≤ σ_max(B), with A = λ I_k and B = W:
    σ_1(W + λ I_k) ≤ λ + σ_max(W) and σ_k(W + λ I_k) ≥ λ − σ_max(W) > 0. Divide. ∎
    It is attained: W = diag(σ, −σ).
    """
    return (lam + sigma_max) / (lam - sigma_max) if lam > sigma_max else math.inf


def sufficient_lam(sigma_max: float, kappa_w: float) -> float:
    """The λ above which κ(W + λ I_k) < κ(W) is certain: σ_max (κ + 1) / (κ − 1), with κ = κ(W).

    Solving `identity_bound`(σ_max, λ) < κ for λ. For an ill-conditioned W that is barely more than σ_max, and
    for κ = ∞ it is σ_max; for κ(W) = 1 no λ improves W, and it is `inf`.
    """
    if math.isinf(kappa_w):
        return sigma_max
    return sigma_max * (kappa_w + 1) / (kappa_w - 1) if kappa_w > 1 else math.inf
