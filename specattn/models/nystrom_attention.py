"""Nyström attention as a function of q, k, v: softmax attention by way of M landmarks, linear in the sequence length.

Xiong et al., "Nyströmformer" (AAAI 2021), with the details of the authors' Long Range Arena code. With landmarks
q̃, k̃ (means of N/M neighbouring queries and keys) and σ the softmax of scaled products,

    out = σ(q k̃ᵀ) · pinv(σ(q̃ k̃ᵀ)) · σ(q̃ kᵀ) v + depthwise convolution of v.

The first and third kernel, [N, M] and [M, N], go through torch's fused attention and are never stored.

Shape suffixes: B batch, H heads, N tokens, D head width, E = H · D, M landmarks, S = N / M tokens in a segment,
K convolution kernel, L rows of a block, W = L + K - 1 inputs of a block.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PINV_INITS = ("per_matrix", "original")
# The convolution's weight gradient is a matrix product over blocks of so many tokens, in so many parts of the batch.
_BLOCK = 64
_CHUNKS = 8


def softmax_attention(
    q_BNE: Tensor, k_BNE: Tensor, v_BNE: Tensor, visible_BN1: Tensor, heads: int, dropout: float = 0.0
) -> Tensor:
    """Exact attention, [B, N, E]; arguments as for `nystrom_attention`, and dropout of the probabilities."""
    q_BHND, k_BHND, v_BHND = (_split(x, heads) for x in (q_BNE, k_BNE, v_BNE))
    return _merge(F.scaled_dot_product_attention(q_BHND, k_BHND, v_BHND, _key_mask(visible_BN1), dropout))


def nystrom_attention(
    q_BNE: Tensor,
    k_BNE: Tensor,
    v_BNE: Tensor,
    visible_BN1: Tensor,
    heads: int,
    landmarks: int,
    pinv_init: str = "per_matrix",
    pinv_iterations: int = 6,
) -> Tensor:
    """Nyström attention without its residual, [B, N, E].

    Args:
        q_BNE, k_BNE, v_BNE: the heads side by side, not yet scaled.
        visible_BN1: boolean, False for padding. Padded queries and keys count as zeros in the landmarks, and no
            landmark attends to a padded key. The output's rows at padding are for the caller to discard.
        heads: number of heads H.
        landmarks: number of landmarks M; the segments are N / M tokens long.
        pinv_init, pinv_iterations: see `iterative_pinv`.

    Raises:
        ValueError: N is not a multiple of `landmarks`.
    """
    tokens = q_BNE.shape[1]
    if tokens % landmarks:
        raise ValueError(
            f"Nyström attention with {landmarks} landmarks needs a multiple of {landmarks} tokens, not {tokens}: "
            "pad the sequence or change landmarks"
        )
    if tokens == landmarks:  # the authors' case as well: every token is a landmark
        return softmax_attention(q_BNE, k_BNE, v_BNE, visible_BN1, heads)
    mean_BM1S = (visible_BN1.to(q_BNE.dtype) * (landmarks / tokens)).view(-1, landmarks, 1, tokens // landmarks)

    def landmarks_of(x_BNE: Tensor) -> Tensor:
        return _split((mean_BM1S @ x_BNE.unflatten(1, (landmarks, -1))).squeeze(2), heads)

    q_landmarks_BHMD, k_landmarks_BHMD = landmarks_of(q_BNE), landmarks_of(k_BNE)
    scale = q_landmarks_BHMD.shape[-1] ** -0.5
    kernel_2_BHMM = torch.softmax(q_landmarks_BHMD @ k_landmarks_BHMD.mT * scale, -1)
    gathered_BHMD = F.scaled_dot_product_attention(
        q_landmarks_BHMD, _split(k_BNE, heads), _split(v_BNE, heads), _key_mask(visible_BN1)
    )
    # From the right: the product of N × M by M × M in the formula's order is never needed.
    values_BHMD = iterative_pinv(kernel_2_BHMM, pinv_init, pinv_iterations) @ gathered_BHMD
    return _merge(F.scaled_dot_product_attention(_split(q_BNE, heads), k_landmarks_BHMD, values_BHMD))


def _split(x_BNE: Tensor, heads: int) -> Tensor:
    return x_BNE.unflatten(-1, (heads, -1)).transpose(1, 2)


def _merge(x_BHND: Tensor) -> Tensor:
    return x_BHND.transpose(1, 2).flatten(2)


def _key_mask(visible_BN1: Tensor) -> Tensor:
    """[B, 1, 1, N]. A sample that is all padding attends to all of it, so that nothing is divided by zero."""
    return (visible_BN1 | ~visible_BN1.any(1, keepdim=True)).mT[:, None]


def iterative_pinv(matrix_BHMM: Tensor, init: str = "per_matrix", iterations: int = 6) -> Tensor:
    """Moore-Penrose inverse of row-stochastic matrices by the cubic iteration of Razavi et al. (2014).

    Z ← Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4, from Z = Aᵀ / c, which converges for c ≥ ‖A‖₁ ‖A‖_∞, of which
    the second factor is 1 here. It has not converged after 6 iterations where A is ill-conditioned: the result is
    then a smooth function of A and no inverse, which is what the authors train with.

    Args:
        matrix_BHMM: A, each row of which sums to 1.
        init: "per_matrix", c = ‖A‖₁ of each matrix; "original", the largest of them over batch and heads, with which
            a sample's output depends on the other samples of its batch.
        iterations: number of iterations.
    """
    column_sums_BHM = matrix_BHMM.sum(-2)
    norm = column_sums_BHM.max() if init == "original" else column_sums_BHM.amax(-1)[..., None, None]
    eye_MM = torch.eye(matrix_BHMM.shape[-1], dtype=matrix_BHMM.dtype, device=matrix_BHMM.device)
    z_BHMM = matrix_BHMM.mT / norm
    for _ in range(iterations):
        az_BHMM = matrix_BHMM @ z_BHMM
        z_BHMM = z_BHMM @ (13 * eye_MM - az_BHMM @ (15 * eye_MM - az_BHMM @ (7 * eye_MM - az_BHMM))) / 4
    return z_BHMM


class HeadConvolution(nn.Conv1d):
    """Convolution along the tokens with one filter for each head, shared by the head's channels; zero padding.

    Args:
        heads: number of heads H.
        kernel: number of tokens K under the filter, odd.

    Raises:
        ValueError: `kernel` is even, so that no output would be centred on its token.
    """

    def __init__(self, heads: int, kernel: int):
        if kernel % 2 == 0:
            raise ValueError(f"conv_kernel must be odd, or None for no convolution: not {kernel}")
        super().__init__(heads, heads, kernel, padding=kernel // 2, groups=heads, bias=False)

    def forward(self, v_BNE: Tensor) -> Tensor:
        """[B, N, E] → [B, N, E]."""
        return _Convolve.apply(v_BNE, self.weight.squeeze(1).to(v_BNE.dtype))


class _Convolve(torch.autograd.Function):
    """The convolution with a fast backward pass.

    The forward pass is torch's depthwise convolution, which is fast with the channels innermost. Its own gradients
    are many times slower on a CPU than they have to be: here the one in v is the forward pass with the filter
    reversed, and the one in the weight a matrix product of which the diagonals are summed.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(v_BNE: Tensor, weight_HK: Tensor) -> Tensor:
        heads, kernel = weight_HK.shape
        channels = v_BNE.shape[-1]
        weight_E11K = weight_HK.repeat_interleave(channels // heads, 0)[:, None, None]
        v_BE1N = v_BNE.mT[:, :, None]
        return F.conv2d(v_BE1N, weight_E11K, padding=(0, kernel // 2), groups=channels).squeeze(2).mT

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_BNE: Tensor) -> tuple[Tensor | None, Tensor | None]:
        v_BNE, weight_HK = ctx.saved_tensors
        grad_v = _Convolve.apply(grad_BNE, weight_HK.flip(-1)) if ctx.needs_input_grad[0] else None
        return grad_v, _weight_gradient(grad_BNE, v_BNE, *weight_HK.shape) if ctx.needs_input_grad[1] else None


def _weight_gradient(grad_BNE: Tensor, v_BNE: Tensor, heads: int, kernel: int) -> Tensor:
    """Σ over b, n and the head's channels of grad[n] · v[n + j - K/2] for each j, [H, K]."""
    batch, tokens, _ = grad_BNE.shape
    rest, window = -tokens % _BLOCK, _BLOCK + kernel - 1
    products_HLW = grad_BNE.new_zeros(heads, _BLOCK, window)
    # Every row of a block against every input of the block, summed over the blocks and channels: a few samples at a
    # time, whose copies then stay in the cache.
    chunks = min(batch, _CHUNKS)
    for grad, v in zip(grad_BNE.tensor_split(chunks), v_BNE.tensor_split(chunks), strict=True):
        inputs = F.pad(v.mT, (kernel // 2, kernel // 2 + rest)).unfold(-1, window, _BLOCK)
        rows = F.pad(grad.mT, (0, rest)).reshape(len(grad), heads, -1, _BLOCK)
        products_HLW = products_HLW + (rows.mT @ inputs.reshape(len(v), heads, -1, window)).sum(0)
    # Row l uses the inputs l to l + K - 1. One more column shifts row l by l: the diagonals become columns.
    return F.pad(products_HLW.flatten(1), (0, _BLOCK)).view(heads, _BLOCK, window + 1)[..., :kernel].sum(1)
