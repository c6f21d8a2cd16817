"""One tiny model of every family, and where its weights are, written down independently of the package's table."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import timm
import torch
import transformers as hf
from torch import nn

from specattn import condition
from specattn.models.nystromformer import Nystromformer


@dataclass(frozen=True)
class Case:
    """How to build the model and its inputs; `weights`: (pattern of a parameter's name, what it stacks, layers)."""

    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[], tuple]
    weights: tuple[tuple[str, str, int], ...]
    head_dim: int = 4
    transposed: bool = False


def images():
    return (torch.randn(2, 3, 16, 16),)


def large_images():
    return (torch.randn(2, 3, 32, 32),)


def token_ids():
    return (torch.randint(0, 20, (2, 8)),)


def sequences():
    return (torch.randn(2, 5, 12),)


def from_timm(name, **arguments):
    return lambda: timm.create_model(name, num_classes=3, **arguments)


VIT = {"img_size": 16, "patch_size": 8, "embed_dim": 12, "depth": 2, "num_heads": 3}
SWIN = {"img_size": 16, "patch_size": 2, "window_size": 2, "embed_dim": 8, "depths": (2, 2), "num_heads": (2, 4)}
DAVIT = {"embed_dims": (8, 8, 8, 16), "depths": (1, 1, 1, 1), "num_heads": (2, 2, 2, 4), "window_size": 2}
BERT = {
    "vocab_size": 20,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 16,
    "max_position_embeddings": 16,
}
SPECIAL_TOKENS = {"bos_token_id": 1, "eos_token_id": 2}
GPT2 = {"vocab_size": 20, "n_positions": 16, "n_embd": 12, "n_layer": 2, "n_head": 3} | SPECIAL_TOKENS


class CrossAttention(nn.Module):
    """MultiheadAttention over keys and values of other widths."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(12, 3, kdim=8, vdim=6, batch_first=True)

    def forward(self, q, k, v):
        return self.attention(q, k, v)[0]


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(12, 3, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


def bert():
    return hf.BertForMaskedLM(hf.BertConfig(**BERT))


def gpt2(**more):
    return lambda: hf.GPT2LMHeadModel(hf.GPT2Config(**GPT2, **more))


def llama():
    config = BERT | SPECIAL_TOKENS | {"hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2}
    return hf.LlamaForCausalLM(hf.LlamaConfig(**config))


def encoder():
    layer = nn.TransformerEncoderLayer(12, 3, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def fused(pattern, layers=2):
    return ((pattern, "qkv", layers),)


def apart(pattern, names, layers=2):
    return tuple((pattern.format(name), which, layers) for name, which in zip(names, "qkv", strict=True))


QUERY = ("query", "key", "value")
PROJ = ("q_proj", "k_proj", "v_proj")
CASES = [
    Case("timm ViT", from_timm("vit_tiny_patch16_224", **VIT), images, fused(r"blocks\.\d\.attn\.qkv\.weight")),
    Case("timm DeiT", from_timm("deit_tiny_patch16_224", **VIT), images, fused(r"blocks\.\d\.attn\.qkv\.weight")),
    Case(
        "timm DeiT distilled",
        from_timm("deit_tiny_distilled_patch16_224", **VIT),
        images,
        fused(r"blocks\.\d\.attn\.qkv\.weight"),
    ),
    Case(
        "timm Swin",
        from_timm("swin_tiny_patch4_window7_224", **SWIN),
        images,
        fused(r"layers\.\d\.blocks\.\d\.attn\.qkv\.weight", 4),
    ),
    Case(
        "timm Swin V2",
        from_timm("swinv2_tiny_window8_256", **SWIN),
        images,
        fused(r"layers\.\d\.blocks\.\d\.attn\.qkv\.weight", 4),
    ),
    Case(
        "timm XCiT",
        from_timm("xcit_nano_12_p8_224", img_size=16, embed_dim=8, depth=2, num_heads=2),
        images,
        (
            *fused(r"blocks\.\d\.attn\.qkv\.weight"),
            *apart(r"cls_attn_blocks\.\d\.attn\.{}\.weight", "qkv"),
        ),
    ),
    Case(
        "timm DaViT",
        from_timm("davit_tiny", **DAVIT),
        large_images,
        fused(r"stages\.\d\.blocks\.\d\.\d\.attn\.qkv\.weight", 8),
    ),
    Case(
        "timm DaViT-Florence",
        from_timm("davit_base_fl", **DAVIT),
        large_images,
        fused(r"stages\.\d\.blocks\.\d\.(spatial|channel)_block\.attn\.qkv\.weight", 8),
    ),
    Case("timm BEiT", from_timm("beit_base_patch16_224", **VIT), images, fused(r"blocks\.\d\.attn\.qkv\.weight")),
    Case("timm EVA", from_timm("eva_giant_patch14_224", **VIT), images, fused(r"blocks\.\d\.attn\.qkv\.weight")),
    Case(
        "timm EVA-02",
        from_timm("eva02_tiny_patch14_224", **VIT, qkv_fused=False, use_rot_pos_emb=False),
        images,
        apart(r"blocks\.\d\.attn\.{}\.weight", PROJ),
    ),
    Case(
        "timm CaiT",
        from_timm("cait_xxs24_224", **VIT),
        images,
        (
            *fused(r"blocks\.\d\.attn\.qkv\.weight"),
            *apart(r"blocks_token_only\.\d\.attn\.{}\.weight", "qkv"),
        ),
    ),
    Case("BERT", bert, token_ids, apart(r"bert\.encoder\.layer\.\d\.attention\.self\.{}\.weight", QUERY)),
    Case(
        "RoBERTa",
        lambda: hf.RobertaModel(hf.RobertaConfig(**BERT)),
        token_ids,
        apart(r"encoder\.layer\.\d\.attention\.self\.{}\.weight", QUERY),
    ),
    Case(
        "DistilBERT",
        lambda: hf.DistilBertModel(
            hf.DistilBertConfig(vocab_size=20, dim=12, n_layers=2, n_heads=3, hidden_dim=16, max_position_embeddings=16)
        ),
        token_ids,
        apart(r"transformer\.layer\.\d\.attention\.{}\.weight", ("q_lin", "k_lin", "v_lin")),
    ),
    Case(
        "transformers ViT",
        lambda: hf.ViTModel(
            hf.ViTConfig(
                hidden_size=12,
                num_hidden_layers=2,
                num_attention_heads=3,
                intermediate_size=16,
                image_size=16,
                patch_size=8,
            )
        ),
        images,
        apart(r"layers\.\d\.attention\.{}\.weight", PROJ),
    ),
    Case(
        "Nyströmformer",
        lambda: hf.NystromformerModel(hf.NystromformerConfig(**BERT, num_landmarks=4, segment_means_seq_len=8)),
        token_ids,
        apart(r"encoder\.layer\.\d\.attention\.self\.{}\.weight", QUERY),
    ),
    Case(
        "our Nyströmformer",
        lambda: Nystromformer(20, 8, 3, dim=12, num_heads=3, mlp_dim=16, landmarks=4, conv_kernel=3),
        token_ids,
        apart(r"blocks\.\d\.attention\.{}\.weight", QUERY),
    ),
    Case(
        "our Nyströmformer with softmax attention",
        lambda: Nystromformer(20, 8, 3, dim=12, num_heads=3, mlp_dim=16, attention="softmax"),
        token_ids,
        apart(r"blocks\.\d\.attention\.{}\.weight", QUERY),
    ),
    Case("GPT-2", gpt2(), token_ids, fused(r"transformer\.h\.\d\.attn\.c_attn\.weight"), transposed=True),
    Case(
        "GPT-2 with cross-attention",
        gpt2(add_cross_attention=True),
        token_ids,
        (
            *fused(r"transformer\.h\.\d\.attn\.c_attn\.weight"),
            (r"transformer\.h\.\d\.crossattention\.q_attn\.weight", "q", 2),
            (r"transformer\.h\.\d\.crossattention\.c_attn\.weight", "kv", 2),
        ),
        transposed=True,
    ),
    Case(
        "Llama (grouped queries)",
        llama,
        token_ids,
        apart(r"model\.layers\.\d\.self_attn\.{}\.weight", PROJ),
    ),
    Case("torch MultiheadAttention", SelfAttention, sequences, fused(r"attention\.in_proj_weight", 1)),
    Case(
        "torch MultiheadAttention with kdim and vdim",
        CrossAttention,
        lambda: (torch.randn(2, 5, 12), torch.randn(2, 7, 8), torch.randn(2, 7, 6)),
        apart(r"attention\.{}_weight", PROJ, 1),
    ),
    Case("torch TransformerEncoder", encoder, sequences, fused(r"layers\.\d\.self_attn\.in_proj_weight")),
]
every_family = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def build(case, dtype=torch.float64):
    """The model of a case and its inputs, in evaluation mode; weights large enough that attention is not flat."""
    torch.manual_seed(0)
    model = case.build().to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model, tuple(x.to(dtype) if x.is_floating_point() else x for x in case.inputs())


def run(model, inputs):
    """The first tensor of the model's output."""
    output = model(*inputs)
    return output if isinstance(output, torch.Tensor) else output[0]


def dense_correction(weight, method, lam, blocks=1):
    """C of `weight` [out, in], block by block, written out in the paper's orientation W ∈ R^{D×d}."""
    corrections = []
    for block in weight.detach().unflatten(0, (blocks, -1)):
        w = block.T
        u, s, vh = torch.linalg.svd(w, full_matrices=False)
        eye = torch.zeros_like(w)
        for i in range(min(w.shape)):
            eye[i, i] = 1
        c = {
            "identity": lambda lam=lam, eye=eye: lam * eye,
            "relative": lambda lam=lam, eye=eye, s=s: lam * s[0] * eye,
            "svd": lambda lam=lam, u=u, s=s, vh=vh: u @ torch.diag(lam * s[0].repeat(len(s))) @ vh,
            "rescale": lambda lam=lam, w=w, s=s: w * ((s + lam * s[0]).norm() / w.norm()) - w,
        }[method]()
        corrections.append(c.T)
    return torch.cat(corrections)


def correct_by_hand(case, model, method, lam, layout, targets):
    """Replaces the weights of a plain model by W + C, knowing only the names in `case`."""
    for pattern, stacked, layers in case.weights:
        parameters = [p for name, p in model.named_parameters() if re.fullmatch(pattern, name)]
        assert len(parameters) == layers, f"{case.name}: {pattern} is in {len(parameters)} places"
        for parameter in parameters:
            weight = parameter.detach().T if case.transposed else parameter.detach()
            for which, part in zip(stacked, weight.chunk(len(stacked)), strict=True):
                if which in targets:
                    blocks = part.shape[0] // case.head_dim if layout == "head" else 1
                    part += dense_correction(part, method, lam, blocks)


BY_NAME = {case.name: case for case in CASES}
# One family of each way in which a weight is reached: through the linear layer, by F.linear on the weight, packed in
# an attention module, transposed.
ONE_OF_EACH = ["timm ViT", "timm BEiT", "torch TransformerEncoder", "GPT-2"]
METHODS = ["identity", "relative", "svd"]
one_of_each = pytest.mark.parametrize("name", ONE_OF_EACH)
each_method = pytest.mark.parametrize("method", METHODS)


def conditioned_model(name, method, dtype=torch.float64, lam=0.7, **arguments):
    model, inputs = build(BY_NAME[name], dtype)
    return condition(model, lam, method, **arguments), inputs


def gradients(model, inputs):
    model.zero_grad()
    run(model, inputs).float().square().sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
