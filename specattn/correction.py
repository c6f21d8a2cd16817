"""The corrections C of spectral conditioning, each a small function of a weight and λ.

Shapes: a projection is handled as `blocks`, a tensor [n, r, c] of n independent matrices: n = 1 for
`layout="matrix"` (the whole D_out × D_in projection), n = heads for `layout="head"` (one d × D_in matrix per
head). Blocks are in `nn.Linear` orientation [out, in], the transpose of the paper's W ∈ R^{D×d}; every
method below commutes with transposition, so nothing is lost.
"""

import hashlib
import math
from dataclasses import dataclass

import torch
from torch import Tensor

#: method -> λ used for `lam=None`. The paper runs `identity` with λ = 10; Theorem 3.5 is `svd` with λ = 1.
DEFAULT_LAM = {"identity": 10.0, "svd": 1.0, "relative": 1.0, "orthogonal": 1.0, "rescale": 1.0}
METHODS = tuple(DEFAULT_LAM)
#: Methods whose correction is a multiple of the (rectangular) identity: never stored as a matrix.
DIAGONAL_METHODS = ("identity", "relative")


@dataclass(frozen=True)
class DiagonalCorrection:
    """C = scale · I_k on each block, I_k the rectangular identity [r, c] (Definition 3.6 with C = λ I_k).

    `scale` is a float (`identity`: λ) or a tensor [n] (`relative`: λ σ_max of each block).
    """

    scale: float | Tensor
    blocks: int
    rows: int
    cols: int

    def dense(self, dtype: torch.dtype = torch.float32, device: torch.device | str | None = None) -> Tensor:
        """C as a new matrix [n·r, c]."""
        if device is None:
            device = self.scale.device if isinstance(self.scale, Tensor) else "cpu"
        zeros = torch.zeros(self.blocks * self.rows, self.cols, dtype=dtype, device=device)
        self.write(zeros)
        return zeros

    def write(self, zeros: Tensor) -> None:
        """Writes C into zeros [n·r, c], in place."""
        diagonal = zeros.unflatten(0, (self.blocks, self.rows)).diagonal(dim1=-2, dim2=-1)
        if isinstance(self.scale, Tensor):
            diagonal.copy_(self.scale[:, None])
        else:
            diagonal.fill_(self.scale)


@dataclass(frozen=True)
class DenseCorrection:
    """C as a matrix [n·r, c] (`svd`, `orthogonal`, `rescale`)."""

    matrix: Tensor

    def dense(self, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Tensor:
        """C as a matrix [n·r, c]; the stored tensor itself where neither argument changes it."""
        return self.matrix.to(device=device or self.matrix.device, dtype=dtype or self.matrix.dtype)

    def write(self, zeros: Tensor) -> None:
        """Writes C into zeros [n·r, c], in place."""
        zeros.copy_(self.matrix)


Correction = DiagonalCorrection | DenseCorrection


def sigma_max(blocks: Tensor) -> Tensor:
    """Largest singular value of each block: [n, r, c] -> [n]. `relative` is the identity in these units."""
    return torch.linalg.matrix_norm(at_least_float32(blocks), ord=2)


def svd(blocks: Tensor, lam: float) -> Tensor:
    """C = λ σ_max U Vᵀ of each block: [n, r, c] -> [n, r, c].

    Theorem 3.5 (λ = 1): with W = U S Vᵀ the singular values of W + C are σ_i + λ σ_max, so that
    κ(W + C) = (1 + λ) σ_max / (σ_min + λ σ_max) ≤ (1 + λ) / λ = 2.
    """
    u, s, vh = torch.linalg.svd(at_least_float32(blocks), full_matrices=False)
    return lam * s[:, :1, None] * (u @ vh)


def orthogonal(blocks: Tensor, lam: float, name: str) -> Tensor:
    """Control: C = λ σ_max Q with Q a random matrix whose k = min(r, c) singular values are all 1.

    It has exactly the norm (every unitarily invariant one) of the svd correction, but a direction that knows
    nothing of W. Q is a function of `name` and the shape alone, so that every process draws the same.
    """
    n, rows, cols = blocks.shape
    seed = int.from_bytes(hashlib.sha256(f"{name}/{n}x{rows}x{cols}".encode()).digest()[:8]) % 2**63
    generator = torch.Generator().manual_seed(seed)
    tall = torch.randn(n, max(rows, cols), min(rows, cols), generator=generator, dtype=torch.float64)
    q, r = torch.linalg.qr(tall)
    q = q * torch.diagonal(r, dim1=-2, dim2=-1).sign()[:, None, :]  # makes Q Haar distributed
    q = q if rows >= cols else q.mT
    sigma = sigma_max(blocks)
    return lam * sigma[:, None, None] * q.to(device=sigma.device, dtype=sigma.dtype)


def rescale(blocks: Tensor, lam: float) -> Tensor:
    """Control: C = (s - 1) W, with s such that W + C has the Frobenius norm that svd's W + C has.

    Larger weights, the same singular vectors and the same condition number: what `svd` gains beyond this
    cannot come from the size of the weights. As every C it is taken from W at the call and fixed after it.
    A block of zeros stays zero.
    """
    blocks = at_least_float32(blocks)
    singular_values = torch.linalg.svdvals(blocks)
    raised = singular_values + lam * singular_values[:, :1]
    norm = singular_values.norm(dim=-1)
    s = raised.norm(dim=-1) / torch.where(norm > 0, norm, 1)
    return (s - 1)[:, None, None] * blocks


def taken_from_weight(blocks: Tensor, method: str, lam: float, name: str) -> Tensor | None:
    """What must be kept of the weight, as it is now, to know its correction later; None for `identity`.

    Args:
        blocks: [n, r, c], see the module docstring.
        method: one of `METHODS`.
        lam: λ, a finite number.
        name: dotted name of the projection; seeds `orthogonal`.

    Returns:
        `relative`: σ_max of each block, [n]; the dense methods: C, [n·r, c]; in the dtype of the weight.

    Raises:
        ValueError: values are needed and the weight is on the meta device, or not finite.
    """
    if method == "identity":
        return None
    if blocks.is_meta:
        raise ValueError(
            f"method={method!r} needs the values of {name}, which is on the meta device: "
            "materialise the model and load its weights before condition()"
        )
    blocks = blocks.detach()
    if not bool(torch.isfinite(blocks).all()):
        raise ValueError(f"the weight of {name} holds values that are not finite; load or initialise it first")
    if method == "relative":
        return sigma_max(blocks).to(blocks.dtype)
    if method == "orthogonal":
        matrix = orthogonal(blocks, lam, name)
    else:
        matrix = {"svd": svd, "rescale": rescale}[method](blocks, lam)
    return matrix.flatten(0, 1).to(blocks.dtype)


def correction_from(taken: Tensor | None, method: str, lam: float, shape: tuple[int, int, int]) -> Correction:
    """The correction of blocks of `shape` [n, r, c] from what `taken_from_weight` kept."""
    if method == "identity":
        return DiagonalCorrection(lam, *shape)
    if method == "relative":
        return DiagonalCorrection(lam * taken, *shape)
    return DenseCorrection(taken)


def at_least_float32(x: Tensor) -> Tensor:
    """`x` in float32 where its own precision is lower: LAPACK knows no half precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def default_lam(method: str) -> float:
    """λ that `lam=None` stands for."""
    return DEFAULT_LAM[method]


def check_lam(lam: object) -> float:
    """`lam` as a float; ValueError in one line where it is no finite real number."""
    if isinstance(lam, bool) or not isinstance(lam, int | float) or not math.isfinite(lam):
        raise ValueError(f"lam must be a finite number (λ; 0 conditions nothing), got {lam!r}")
    return float(lam)
