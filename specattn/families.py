"""Where W_Q, W_K and W_V live in an attention module: one table, one line per family.

A family is recognised by the names of its weights, not by its class, so that one line serves every model that
follows the same convention. To support another one, append a line:

    specattn.families.FAMILIES.append(Family("mine", separate("wq.weight", "wk.weight", "wv.weight")))
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """Part `part` of `parts` equal parts of the outputs of the parameter at `path`, below the module."""

    path: str
    part: int = 0
    parts: int = 1
    transposed: bool = False  # the parameter is [D_in, D_out] (transformers' Conv1D)


def fused(path: str, transposed: bool = False) -> tuple[Place, Place, Place]:
    """Q, k and v stacked in this order in one parameter."""
    return Place(path, 0, 3, transposed), Place(path, 1, 3, transposed), Place(path, 2, 3, transposed)


def separate(q: str, k: str, v: str) -> tuple[Place, Place, Place]:
    """Q, k and v in parameters of their own."""
    return Place(q), Place(k), Place(v)


@dataclass(frozen=True)
class Family:
    """One naming convention: where q, k and v are, and the attribute that holds the number of heads."""

    name: str
    places: tuple[Place, Place, Place]
    heads: tuple[str, ...] = ("num_heads", "num_attention_heads", "n_heads", "groups", "config.num_attention_heads")


#: First match wins. A line matches a module below which all three weights exist as matrices.
FAMILIES: list[Family] = [
    Family("fused qkv (timm ViT, DeiT, Swin, XCiT, DaViT, BEiT, EVA, CaiT)", fused("qkv.weight")),
    Family("q, k, v (timm class attention of XCiT and CaiT)", separate("q.weight", "k.weight", "v.weight")),
    Family("query, key, value (BERT, RoBERTa, Nyströmformer)", separate("query.weight", "key.weight", "value.weight")),
    Family("q_proj, k_proj, v_proj (Llama, ViT, EVA)", separate("q_proj.weight", "k_proj.weight", "v_proj.weight")),
    Family("q_lin, k_lin, v_lin (DistilBERT)", separate("q_lin.weight", "k_lin.weight", "v_lin.weight")),
    Family("in_proj_weight (torch MultiheadAttention)", fused("in_proj_weight")),
    Family("q_proj_weight (torch, kdim/vdim)", separate("q_proj_weight", "k_proj_weight", "v_proj_weight")),
    Family(
        "q_attn, c_attn (GPT-2 cross-attention)",
        (Place("q_attn.weight", 0, 1, True), Place("c_attn.weight", 0, 2, True), Place("c_attn.weight", 1, 2, True)),
    ),
    Family("c_attn (GPT-2)", fused("c_attn.weight", transposed=True)),
]

#: LoRA-style wrappers keep the layer they wrap under one of these names (peft: base_layer).
WRAPPED_LAYER = ("base_layer", "original_layer", "original", "linear", "base", "layer", "module")
