"""Crammed BERT (Geiping and Goldstein, 2023): the encoder, its masked-language-model head and its classifier.

As the recipe's own code builds it (bert-c5 of the legacy version, crammed-bert of the current one): layer norm
before each sub-layer, after the embedding and at the end; no bias in any dense layer, the layer norms keep theirs;
gated feed-forward units, GELU of the second half times the first; sinusoidal positions times one learned scalar; the
decoder is the embedding, without bias or transform before it. W_Q, W_K and W_V are one `qkv` layer in plain q, k, v
order, as in the legacy version (the current one interleaves them head by head), so that `specattn.condition` finds
them.

Shape suffixes: B batch, N tokens, D width, H heads, d head width, F gated units, V vocabulary, M chosen positions.
"""

import json
import math
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class CrammedBertConfig:
    """The sizes of a model; the defaults are the paper-scale ones."""

    vocabulary: int = 32768
    width: int = 768
    depth: int = 16
    heads: int = 12
    feed_forward: int = 3072  # outputs of the first dense layer; the gate leaves half of them
    length: int = 128  # the most tokens
    dropout: float = 0.0  # of embeddings, sub-layers, attention and the classifier's hidden layer
    classes: int = 0  # 0: a masked language model; 1: a regression; more: a classifier
    head_width: int = 1024  # the classifier's hidden layer
    pad: int = 0  # the token that fills a batch's shorter sequences

    def __post_init__(self) -> None:
        if self.heads < 1 or self.width % self.heads:
            raise ValueError(f"width {self.width} is not divisible by the {self.heads} heads")
        if self.width % 2 or self.feed_forward % 2:
            raise ValueError(f"width {self.width} and feed_forward {self.feed_forward} must be even")
        if min(self.vocabulary, self.width, self.depth, self.feed_forward, self.length) < 1:
            raise ValueError(f"every size must be at least 1: {self}")


class Attention(nn.Module):
    """Self-attention with one dense layer for q, k and v, stacked in this order."""

    def __init__(self, config: CrammedBertConfig) -> None:
        super().__init__()
        self.num_heads, self.dropout = config.heads, config.dropout
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.proj = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x_BND: Tensor, seen_B11N: Tensor | None = None) -> Tensor:
        """Mix the tokens; `seen` is False at the keys that nobody may look at."""
        qkv_3BHNd = self.qkv(x_BND).unflatten(2, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        q_BHNd, k_BHNd, v_BHNd = qkv_3BHNd.unbind(0)
        mixed_BHNd = F.scaled_dot_product_attention(
            q_BHNd, k_BHNd, v_BHNd, seen_B11N, self.dropout if self.training else 0.0
        )
        return self.proj(mixed_BHNd.transpose(1, 2).flatten(2))


class GatedUnits(nn.Module):
    """Feed-forward layer whose second half gates the first (GEGLU)."""

    def __init__(self, config: CrammedBertConfig) -> None:
        super().__init__()
        self.dense_in = nn.Linear(config.width, config.feed_forward, bias=False)
        self.dense_out = nn.Linear(config.feed_forward // 2, config.width, bias=False)

    def forward(self, x_BND: Tensor) -> Tensor:
        """Dense, gate, dense."""
        x_BNF, gate_BNF = self.dense_in(x_BND).chunk(2, dim=-1)
        return self.dense_out(F.gelu(gate_BNF) * x_BNF)


class Block(nn.Module):
    """Attention, then gated units, each on normalised inputs and added to them."""

    def __init__(self, config: CrammedBertConfig) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width, eps=1e-12)
        self.attn = Attention(config)
        self.norm2 = nn.LayerNorm(config.width, eps=1e-12)
        self.ffn = GatedUnits(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x_BND: Tensor, seen_B11N: Tensor | None = None) -> Tensor:
        """One layer of the encoder."""
        x_BND = x_BND + self.dropout(self.attn(self.norm1(x_BND), seen_B11N))
        return x_BND + self.dropout(self.ffn(self.norm2(x_BND)))


class Encoder(nn.Module):
    """Token identifiers to normalised hidden states."""

    def __init__(self, config: CrammedBertConfig) -> None:
        super().__init__()
        self.pad = config.pad
        self.embedding = nn.Embedding(config.vocabulary, config.width, padding_idx=config.pad)
        self.position_scale = nn.Parameter(torch.tensor(config.width**-0.5))
        self.register_buffer("positions_ND", sinusoids(config.length, config.width), persistent=False)
        self.norm = nn.LayerNorm(config.width, eps=1e-12)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.depth))
        self.final_norm = nn.LayerNorm(config.width, eps=1e-12)

    def forward(self, tokens_BN: Tensor, padded: bool) -> Tensor:
        """Hidden states [B, N, D]; with `padded`, no token looks at padding."""
        seen_B11N = (tokens_BN != self.pad)[:, None, None] if padded else None
        positions_ND = self.position_scale * self.positions_ND[: tokens_BN.shape[1]]
        x_BND = self.dropout(self.norm(self.embedding(tokens_BN) + positions_ND))
        for block in self.blocks:
            x_BND = block(x_BND, seen_B11N)
        return self.final_norm(x_BND)


class CrammedBert(nn.Module):
    """The encoder with its masked-language-model head (`classes=0`) or with a classifier.

    Args:
        config: the sizes.
    """

    def __init__(self, config: CrammedBertConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        if config.classes:
            self.pooler = nn.Linear(config.width, config.head_width)
            self.dropout = nn.Dropout(config.dropout)
            self.head = nn.Linear(config.head_width, config.classes)
        self.apply(_initialise)

    def forward(self, tokens_BN: Tensor, chosen_M: Tensor | None = None) -> Tensor:
        """The logits.

        Args:
            tokens_BN: int64 token identifiers, at most `length` of them. A masked language model takes full
                sequences (packed text); a classifier takes padding at their ends and overlooks it.
            chosen_M: int64 positions in the flattened batch, b · N + n, that a masked language model is to predict;
                None: all of them. The decoder is by far its largest layer and runs at these alone.

        Returns:
            [M, V] or [B, N, V] for a masked language model, [B, classes] for a classifier.
        """
        hidden_BND = self.encoder(tokens_BN, padded=bool(self.config.classes))
        if self.config.classes:
            return self.head(self.dropout(torch.tanh(self.pooler(hidden_BND[:, 0]))))
        if chosen_M is not None:
            hidden_BND = hidden_BND.flatten(0, 1).index_select(0, chosen_M)
        return F.linear(hidden_BND, self.encoder.embedding.weight)


def sinusoids(length: int, width: int) -> Tensor:
    """Sines at even and cosines at odd places, of wavelengths 2π to 2π · 10,000: [length, width]."""
    position_N1 = torch.arange(length, dtype=torch.float64)[:, None]
    frequency_D = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10000.0) / width))
    angles_ND = position_N1 * frequency_D
    return torch.stack([angles_ND.sin(), angles_ND.cos()], -1).flatten(1).float()


@torch.no_grad()
def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        module.weight.normal_(std=0.02)
        if getattr(module, "bias", None) is not None:
            module.bias.zero_()
        if isinstance(module, nn.Embedding):
            module.weight[module.padding_idx].zero_()


def save(model: CrammedBert, folder: str | os.PathLike) -> None:
    """Write model.safetensors and config.json into a folder, which `load` reads; W + C stands in the weights.

    Args:
        model: a plain model: what was conditioned is folded first (`specattn.fold(model)`).

    Raises:
        ValueError: the model is conditioned.
    """
    from specattn.export import save as write
    from specattn.state import CHILD

    if any(f".{CHILD}." in name for name in model.state_dict()):
        raise ValueError("the model is conditioned: call specattn.fold(model) first")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write(model, folder / "model.safetensors")
    unfinished = folder / "config.json.unfinished"
    unfinished.write_text(json.dumps({"model": "crammed_bert", **asdict(model.config)}, indent=1) + "\n")
    unfinished.replace(folder / "config.json")


def load(folder: str | os.PathLike) -> CrammedBert:
    """The model that `save` wrote.

    Raises:
        ValueError: config.json or the weights are not those of such a model.
    """
    from safetensors.torch import load_file

    folder = Path(folder)
    try:
        said = json.loads((folder / "config.json").read_text())
        known = {field.name for field in fields(CrammedBertConfig)}
        if not isinstance(said, dict) or said.pop("model", None) != "crammed_bert" or said.keys() - known:
            raise ValueError("it is not the config of a crammed BERT")
        model = CrammedBert(CrammedBertConfig(**said))
    except (OSError, TypeError, ValueError) as error:
        raise ValueError(f"{folder / 'config.json'}: {error}") from None
    try:
        model.load_state_dict(load_file(folder / "model.safetensors"))
    except Exception as error:  # whatever safetensors and torch raise, these are not its weights
        raise ValueError(f"{folder / 'model.safetensors'}: {str(error).splitlines()[0]}") from None
    return model
