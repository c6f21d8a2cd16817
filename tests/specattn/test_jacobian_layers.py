"""Jacobian spectra of real layers: the general path against the closed form, and both against jacrev on the module."""

import json
import math

import pytest
import timm
import torch
from torch import nn
from torch.nn import functional as F

from specattn.attention_layer import attention_layers
from specattn.conditioning import condition
from specattn.jacobian import attention_jacobian
from specattn.jacobian_autograd import AutogradJacobian
from specattn.jacobian_extremes import extreme_singular_values
from specattn.jacobian_layers import jacobian_spectra
from specattn.jacobian_spectrum import singular_values

F64 = torch.float64


class Attention(nn.Module):
    """timm's fused attention; `kind` departs from softmax(s Q Kᵀ) V in one way or another."""

    def __init__(self, dim=8, num_heads=2, kind="plain"):
        super().__init__()
        self.num_heads, self.kind = num_heads, kind
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.position = nn.Parameter(torch.randn(num_heads, 5, 5))
        self.mix = nn.Parameter(torch.randn(num_heads, num_heads))

    def forward(self, x):
        b, n, dim = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        if self.kind == "normalised":
            q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        if self.kind == "channels":
            out = ((F.normalize(q, dim=-2).mT @ F.normalize(k, dim=-2)).softmax(-1) @ v.mT).mT
        else:
            bias = self.position if self.kind == "biased" else 0
            p = (q @ k.mT * (dim // self.num_heads) ** -0.5 + bias).softmax(-1)
            if self.kind == "mixed":
                p = torch.einsum("gh,bhij->bgij", self.mix, p)
            out = p @ v
        return self.proj(out.transpose(1, 2).reshape(b, n, dim))


def net(kind="plain"):
    torch.manual_seed(0)
    model = nn.Sequential(Attention(kind=kind), Attention(kind=kind))
    return model.double(), torch.randn(2, 5, 8, dtype=F64)


def truth(layer, x, weight):
    """Singular values of the Jacobian of what enters `proj`, in the whole qkv weight, by jacrev."""
    seen = []
    handle = layer.proj.register_forward_pre_hook(lambda _, args: seen.append(args[0][0]))

    def function(w):
        torch.func.functional_call(layer, {"qkv.weight": w}, (x,))
        return seen.pop()

    jacobian = torch.func.jacrev(function)(weight)
    handle.remove()
    return torch.linalg.svdvals(jacobian.detach().reshape(-1, weight.numel()))


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("plain", "closed form"),
        ("biased", "closed form"),
        ("normalised", "autograd"),
        ("channels", "autograd"),
        ("mixed", "autograd"),
    ],
)
@pytest.mark.parametrize("lam", [0.0, 0.5])
def test_every_kind_of_layer_takes_the_right_path_to_the_true_spectrum(kind, path, lam):
    model, x = net(kind)
    condition(model, lam=lam)
    records = jacobian_spectra(model, x)
    assert [r["attention"] for r in records] == ["0", "1"]
    inputs = [x[:1], model[0](x[:1]).detach()]
    for record, layer, given in zip(records, model, inputs, strict=True):
        sigma = truth(layer, given, layer.qkv._parameters["weight"].detach())[: record["count"]]
        assert record["path"] == path
        assert (record["rows"], record["columns"], record["head"]) == (40, 192, None)
        assert record["sigma_max"] == pytest.approx(float(sigma[0]), rel=1e-8)
        # A head with a smaller σ_max than the other has a lower floor of its own.
        assert int((sigma > record["floor"]).sum()) <= record["rank"] <= len(sigma)
        if float(sigma[-1]) > 2 * record["floor"]:
            assert record["rank"] == len(sigma)
        if record["rank"] == len(sigma):
            assert record["kappa"] == pytest.approx(float(sigma[0] / sigma[-1]), rel=1e-4)
        else:
            assert record["kappa"] == math.inf
            assert float(sigma[-1]) < 2 * record["floor"]
        assert sum(record[f"share_{p}"] for p in "qkv") == pytest.approx(1.0)
    assert json.loads(json.dumps(records)) == records


def test_shares_of_the_trace_are_those_of_the_dense_blocks():
    for kind in ("plain", "channels"):
        model, x = net(kind)
        layer = attention_layers(model, x)[0]
        whole = torch.func.jacrev(lambda *w, layer=layer: layer(*w), argnums=(0, 1, 2))(*layer.weights())
        norms = [float(j.square().sum()) for j in whole]
        record = jacobian_spectra(model, x)[0]
        for p, norm in zip("qkv", norms, strict=True):
            assert record[f"share_{p}"] == pytest.approx(norm / sum(norms), rel=1e-9)


def test_per_head_records_and_their_union():
    model, x = net()
    heads = jacobian_spectra(model, x, modules="0", per_head=True, parts=True)
    layer = jacobian_spectra(model, x, modules="0", parts=True)[0]
    assert [h["head"] for h in heads] == [0, 1]
    assert layer["sigma_max"] == max(h["sigma_max"] for h in heads)
    assert layer["sigma_min"] == min(h["sigma_min"] for h in heads)
    assert layer["rank"] == sum(h["rank"] for h in heads)
    assert layer["sigma_max_v"] == max(h["sigma_max_v"] for h in heads)
    only = jacobian_spectra(model, x, modules="0", per_head=True, heads=(1,))
    assert only[0]["kappa"] == heads[1]["kappa"]
    with pytest.raises(ValueError, match="heads 0 to 1, not 2"):
        jacobian_spectra(model, x, heads=(2,))


def test_heads_that_are_mixed_are_one_block():
    model, x = net("mixed")
    assert jacobian_spectra(model, x, per_head=True)[0]["head"] is None
    with pytest.raises(ValueError, match="no separate heads"):
        jacobian_spectra(model, x, heads=(0,))


def test_fewer_tokens_are_a_smaller_attention_and_a_layer_of_fixed_size_says_so():
    model, x = net()
    record = jacobian_spectra(model, x, modules="0", tokens=3)[0]
    own = attention_layers(model, x, "0")[0]
    kept = x[0, [0, 2, 4]]
    weights = own.weights()
    bias = own.module.qkv.bias.reshape(3, 2, 4)
    values = torch.cat(
        [
            singular_values(
                attention_jacobian(kept, *(w[4 * h : 4 * h + 4].mT for w in weights), biases=tuple(b[h] for b in bias))
            ).values
            for h in range(2)
        ]
    )
    assert record["rows"] == 24
    assert record["sigma_max"] == pytest.approx(float(values.max()), rel=1e-8)
    assert record["sigma_min"] == pytest.approx(float(values.min()), rel=1e-5)
    with pytest.raises(ValueError, match="3 of its tokens"):
        jacobian_spectra(net("biased")[0], x, tokens=3)


def test_the_model_is_left_as_it_was():
    model, x = net()
    model.train()
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    jacobian_spectra(model, x)
    assert all(m.training for m in model.modules())
    assert all(p.dtype == F64 and p.grad is None for p in model.parameters())
    assert all(torch.equal(p, before[n]) for n, p in model.named_parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("part", [None, 0, 1, 2])
def test_the_general_path_is_the_closed_form_where_both_apply(fused, part):
    torch.manual_seed(1)
    x = torch.randn(6, 7, dtype=F64)
    weights = [torch.randn(7, 3, dtype=F64) / 2 for _ in range(3)]

    def attention(q, k, v):
        q, k, v = x @ q, x @ k, x @ v
        if fused:
            return F.scaled_dot_product_attention(q[None], k[None], v[None])
        return torch.softmax(q @ k.mT / 3**0.5, -1) @ v

    general = AutogradJacobian(attention, weights, part)
    closed = attention_jacobian(x, *weights)
    closed = closed if part is None else closed.part("qkv"[part])
    dense = closed.matrix()
    assert general.shape == closed.shape
    for mine, theirs in (
        (general.matvec(torch.eye(dense.shape[1], dtype=F64)).mT, dense),
        (general.rmatvec(torch.eye(dense.shape[0], dtype=F64)), dense),
        (torch.cat(list(general.column_blocks()), 1), dense),
        (general.row_gram(), dense @ dense.mT),
        (general.column_gram(), dense.mT @ dense),
    ):
        torch.testing.assert_close(mine, theirs, atol=1e-12, rtol=1e-10)
    assert general.squared_norm() == pytest.approx(closed.squared_norm(), rel=1e-12)
    assert extreme_singular_values(general).kappa_nonzero == pytest.approx(
        extreme_singular_values(closed).kappa_nonzero, rel=1e-6
    )


@pytest.mark.parametrize(
    ("name", "arguments", "path"),
    [
        ("vit_tiny_patch16_224", {"img_size": 16, "patch_size": 8, "depth": 1}, ["closed form"]),
        ("xcit_nano_12_p16_224", {"img_size": 32, "depth": 1}, ["autograd"] * 3),
        ("swin_tiny_patch4_window7_224", {"img_size": 16, "depths": (2,), "window_size": 2}, ["closed form"] * 2),
        ("davit_tiny", {"depths": (1,), "window_size": 4}, ["closed form", "autograd"]),
    ],
)
def test_timm_families(name, arguments, path):
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    width = {"embed_dims": (16,), "num_heads": (2,)} if "davit" in name else {"embed_dim": 16, "num_heads": 2}
    width |= {"num_heads": (2,)} if "swin" in name else {}
    model = timm.create_model(name, **arguments, **width)
    size = arguments.get("img_size", 16)
    image = torch.randn(1, 3, size, size)
    records = jacobian_spectra(model, image)
    assert [r["path"] for r in records] == path
    for record, layer in zip(records, attention_layers(model, image), strict=True):
        # The whole layer at once by autograd and SVD: no heads taken apart, no closed form, no Gram matrix.
        whole = singular_values(AutogradJacobian(layer, layer.weights()), resolve=True)
        assert record["sigma_max"] == pytest.approx(whole.sigma_max, rel=1e-8)
        assert int((whole.values > record["floor"]).sum()) <= record["rank"] <= record["count"]


def test_transformers_families():
    transformers = pytest.importorskip("transformers")
    small = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    torch.manual_seed(0)
    ids = torch.randint(0, 20, (1, 8))
    bert = transformers.BertModel(transformers.BertConfig(**small, intermediate_size=16))
    nystrom = transformers.NystromformerModel(
        transformers.NystromformerConfig(
            **small, intermediate_size=16, num_landmarks=4, segment_means_seq_len=8, conv_kernel_size=3
        )
    )
    assert jacobian_spectra(bert, {"input_ids": ids})[0]["path"] == "closed form"
    record = jacobian_spectra(nystrom, {"input_ids": ids})[0]
    assert record["path"] == "autograd"
    assert record["rows"] == 8 * 16


def test_theorem_3_4s_bound_stands_beside_a_heads_kappa():
    """The record's terms are the theorem's for that head's own rows of the weights; None where it is not softmax."""
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=24, depth=1, num_heads=3)
    images = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    [record] = jacobian_spectra(model, images, tokens=6, heads=(1,), bound=True)
    weight = model.blocks[0].attn.qkv.weight.detach().double()
    for name, rows in {"kappa_wq": weight[8:16], "kappa_wk": weight[32:40], "kappa_wv": weight[56:64]}.items():
        assert record[name] == pytest.approx(float(torch.linalg.cond(rows)))
    weights = record["kappa_wv"] * (record["kappa_wq"] + record["kappa_wk"])
    first = record["kappa_x"] ** 3 * record["kappa_lambda"] * weights
    assert record["bound"] == pytest.approx(first + record["kappa_x"] * record["kappa_softmax"])
    xcit = timm.create_model("xcit_nano_12_p16_224", img_size=32, depth=1)
    [record] = jacobian_spectra(xcit, images, modules="blocks.0.attn", heads=(0,), bound=True)
    assert record["bound"] is None
