"""The encoder of the paper's Long Range Arena table: Nyströmformer as its authors trained it on LRA.

Architecture from their code (LRA/code/{model,attention,model_wrapper}.py): learned positions, pre-LN blocks of
attention and GELU MLP, a final LayerNorm, the mean over the whole padded length, and a two-layer classifier.

Shape suffixes: B batch, N tokens, E model width, C classes; `visible_BN1` is boolean, False at padding.
"""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor, nn

from specattn.models.nystrom_attention import PINV_INITS, HeadConvolution, nystrom_attention, softmax_attention

ATTENTIONS = ("nystrom", "softmax")


class Nystromformer(nn.Module):
    """Classifier of token sequences, or of pairs of them.

    Token 0 is padding and masked, as in the original. There this also holds for the black pixels of Image and the
    background of Pathfinder, whose token is 0 as well: the model does not see them. `mask_zero=False` shows it them.

    Args:
        vocab_size: number of tokens, padding included.
        max_length: padded length; with Nyström attention a multiple of `landmarks`.
        classes: number of classes C.
        dim, depth, num_heads, mlp_dim: width, blocks, heads, and hidden width of the MLPs and of the classifier.
        dropout: after the embedding, the attention, and each layer of the MLPs; with attention="softmax" on the
            attention probabilities too.
        attention: "nystrom", or "softmax", exact.
        landmarks: number of landmarks.
        conv_kernel: tokens under the filter of Nyström attention's residual, the depthwise convolution of v; None:
            no residual.
        pinv_init: "per_matrix", or "original", with which a sample's output depends on its batch mates (see
            `iterative_pinv`).
        pinv_iterations: iterations of the pseudo-inverse.
        pair: classify pairs of documents from [a, b, a · b, a - b], a and b the means of each.
        mask_zero: whether token 0 is masked.

    Embeddings start at N(0, 0.02), everything else as torch has it.

    Raises:
        ValueError: a choice is unknown, or sizes do not divide as they must.
    """

    def __init__(
        self,
        vocab_size: int,
        max_length: int,
        classes: int,
        dim: int = 64,
        depth: int = 2,
        num_heads: int = 2,
        mlp_dim: int = 128,
        dropout: float = 0.1,
        attention: str = "nystrom",
        landmarks: int = 64,
        conv_kernel: int | None = 35,
        pinv_init: str = "per_matrix",
        pinv_iterations: int = 6,
        pair: bool = False,
        mask_zero: bool = True,
    ):
        super().__init__()
        if attention == "nystrom" and max_length % landmarks:
            raise ValueError(f"max_length must be a multiple of landmarks, and {max_length} is none of {landmarks}")
        self.max_length, self.pair, self.mask_zero = max_length, pair, mask_zero
        self.token_embedding = nn.Embedding(vocab_size, dim)
        self.position_embedding = nn.Embedding(max_length, dim)
        for embedding in (self.token_embedding, self.position_embedding):
            nn.init.normal_(embedding.weight, std=0.02)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            Block(
                LongRangeAttention(
                    dim, num_heads, attention, dropout, landmarks, conv_kernel, pinv_init, pinv_iterations
                ),
                dim,
                mlp_dim,
                dropout,
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(dim)
        self.classifier = nn.Sequential(
            nn.Linear(4 * dim if pair else dim, mlp_dim), nn.ReLU(), nn.Linear(mlp_dim, classes)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """Integer tokens [B, N], or [B, 2, N] for pairs, to logits [B, C].

        N may be below max_length, where attention takes it; the mean is over the N that are given.

        Raises:
            ValueError: the tokens have another shape, or more than max_length of them come.
        """
        if tokens.ndim != 2 + self.pair or (self.pair and tokens.shape[1] != 2) or tokens.shape[-1] > self.max_length:
            raise ValueError(
                f"expected tokens of shape [batch, {'2, ' if self.pair else ''}at most {self.max_length}], "
                f"not {list(tokens.shape)}"
            )
        if not self.pair:
            return self.classifier(self.encode(tokens))
        # One after the other, as the original: pinv_init="original" takes its maximum over each of the two.
        a, b = self.encode(tokens[:, 0]), self.encode(tokens[:, 1])
        return self.classifier(torch.cat([a, b, a * b, a - b], -1))

    def encode(self, tokens_BN: Tensor) -> Tensor:
        """[B, N] → [B, E]: the mean over all N, in which padding counts as zeros."""
        visible_BN1 = tokens_BN[..., None] != 0 if self.mask_zero else torch.ones_like(tokens_BN[..., None]).bool()
        x_BNE = self.token_embedding(tokens_BN) + self.position_embedding.weight[: tokens_BN.shape[1]]
        x_BNE = self.dropout(x_BNE)
        for block in self.blocks:
            x_BNE = block(x_BNE, visible_BN1)
        return (self.norm(x_BNE) * visible_BN1).mean(1)


class Block(nn.Module):
    """Pre-LN block: x + attention(norm(x)), then x + MLP(norm(x))."""

    def __init__(self, attention: LongRangeAttention, dim: int, mlp_dim: int, dropout: float):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attention = attention
        self.dropout = nn.Dropout(dropout)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, mlp_dim), nn.GELU(), nn.Dropout(dropout), nn.Linear(mlp_dim, dim), nn.Dropout(dropout)
        )

    def forward(self, x_BNE: Tensor, visible_BN1: Tensor) -> Tensor:
        """[B, N, E] → [B, N, E]."""
        x_BNE = x_BNE + self.dropout(self.attention(self.norm1(x_BNE), visible_BN1))
        return x_BNE + self.mlp(self.norm2(x_BNE))


class LongRangeAttention(nn.Module):
    """Self-attention with a padding mask, by Nyström's method or exact; every projection has a bias.

    Computed in float32 at least, whatever autocast says. `specattn.attention_statistics` averages over the rows of
    every softmax that it computes: with "softmax" one, over the N keys; with "nystrom" three, of which none is a
    token's attention to N keys: tokens over landmarks, landmarks over landmarks, and landmarks over keys. The
    attention of a token to the keys is their product, whose rows need not be positive: it has no entropy.

    Args: as of `Nystromformer`; `dropout` is that of the probabilities, with "softmax" alone.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        attention: str = "nystrom",
        dropout: float = 0.0,
        landmarks: int = 64,
        conv_kernel: int | None = 35,
        pinv_init: str = "per_matrix",
        pinv_iterations: int = 6,
    ):
        super().__init__()
        for name, value, choices in (("attention", attention, ATTENTIONS), ("pinv_init", pinv_init, PINV_INITS)):
            if value not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}: not {value!r}")
        if dim % num_heads:
            raise ValueError(f"dim must be a multiple of num_heads, and {dim} is none of {num_heads}")
        self.num_heads, self.attention, self.dropout = num_heads, attention, dropout
        self.landmarks, self.pinv_init, self.pinv_iterations = landmarks, pinv_init, pinv_iterations
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)
        residual = attention == "nystrom" and conv_kernel is not None
        self.conv = HeadConvolution(num_heads, conv_kernel) if residual else None
        self.out_proj = nn.Linear(dim, dim)

    def forward(self, x_BNE: Tensor, visible_BN1: Tensor) -> Tensor:
        """[B, N, E] → [B, N, E], of which the rows at padding mean nothing and reach no other row.

        Raises:
            ValueError: N is not a multiple of the number of landmarks.
        """
        q_BNE, k_BNE, v_BNE = self.query(x_BNE), self.key(x_BNE), self.value(x_BNE)
        with without_autocast(x_BNE.device.type):
            wide = torch.promote_types(q_BNE.dtype, torch.float32)
            out_BNE = self._attend(q_BNE.to(wide), k_BNE.to(wide), v_BNE.to(wide), visible_BN1)
        return self.out_proj(out_BNE)

    def _attend(self, q_BNE: Tensor, k_BNE: Tensor, v_BNE: Tensor, visible_BN1: Tensor) -> Tensor:
        if self.attention == "softmax":
            dropout = self.dropout if self.training else 0.0
            return softmax_attention(q_BNE, k_BNE, v_BNE, visible_BN1, self.num_heads, dropout)
        out_BNE = nystrom_attention(
            q_BNE, k_BNE, v_BNE, visible_BN1, self.num_heads, self.landmarks, self.pinv_init, self.pinv_iterations
        )
        return out_BNE if self.conv is None else out_BNE + self.conv(v_BNE * visible_BN1)


def without_autocast(device: str) -> contextlib.AbstractContextManager:
    """The attention core's precision: float32 also under autocast (the meta device knows no autocast)."""
    return contextlib.nullcontext() if device == "meta" else torch.autocast(device, enabled=False)
