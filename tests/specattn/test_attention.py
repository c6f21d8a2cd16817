"""Attention statistics against probabilities computed by hand, through every way models call attention."""

import json
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from specattn.attention import attention_statistics, saturation_warning
from specattn.conditioning import condition


class Attention(nn.Module):
    """Fused qkv as in timm; `how` is the call that computes the attention."""

    def __init__(self, dim=8, num_heads=2, how="sdpa", mask=None):
        super().__init__()
        self.num_heads, self.how, self.mask = num_heads, how, mask
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        b, n, dim = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        if self.how == "sdpa":
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask)
        else:
            logits = q @ k.mT * (dim // self.num_heads) ** -0.5
            if self.mask is not None:
                logits = logits.masked_fill(~self.mask, float("-inf"))
            out = {"method": logits.softmax, "function": lambda d: F.softmax(logits, dim=d)}[self.how](-1) @ v
        return self.proj(out.transpose(1, 2).reshape(b, n, dim))


def net(spread=1.0, **kwargs):
    torch.manual_seed(0)
    model = nn.Sequential(Attention(**kwargs), Attention(**kwargs))
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(spread)
    return model


def tokens(b=3, n=5, dim=8):
    return torch.randn(b, n, dim, generator=torch.Generator().manual_seed(1))


def probabilities(layer, x):
    b, n, dim = x.shape
    q, k, _ = layer.qkv(x).reshape(b, n, 3, layer.num_heads, -1).permute(2, 0, 3, 1, 4)
    logits = q @ k.mT * (dim // layer.num_heads) ** -0.5
    if layer.mask is not None:
        logits = logits.masked_fill(~layer.mask, float("-inf"))
    return logits.softmax(-1).detach()


@pytest.mark.parametrize("how", ["sdpa", "method", "function"])
@pytest.mark.parametrize("spread", [1.0, 6.0])
def test_figures_are_those_of_the_probabilities(how, spread):
    model, x = net(spread, how=how), tokens()
    records = attention_statistics(model, x)
    assert [r["attention"] for r in records] == ["0", "1"]
    inputs = [x, model[0](x)]
    for record, layer, given in zip(records, model, inputs, strict=True):
        p = probabilities(layer, given)
        entropy = -(p * p.clamp(min=1e-38).log()).sum(-1).mean() / math.log(5)
        assert record["keys"] == 5
        assert record["entropy"] == pytest.approx(float(entropy), rel=1e-4)
        assert record["max_probability"] == pytest.approx(float(p.amax(-1).mean()), rel=1e-5)
        assert record["saturated_rows"] == pytest.approx(float((p.amax(-1) > 0.9).float().mean()), abs=1e-6)
    assert json.loads(json.dumps(records)) == records


def test_gradient_norms_are_those_of_the_loss_and_nothing_is_left_behind():
    model, x = net(), tokens()
    model.train()
    model[1].eval()
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    labels = torch.tensor([0, 1, 2])

    def loss(net, batch):
        return F.cross_entropy(net(batch[0]).mean(1), batch[1])

    records = attention_statistics(model, (x, labels), loss)
    assert all(p.grad is None for p in model.parameters())
    assert model[0].training
    assert not model[1].training
    assert all(torch.equal(p, before[n]) for n, p in model.named_parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    loss(model, (x, labels)).backward()
    for record, layer in zip(records, model, strict=True):
        for which, gradient in zip("qkv", layer.qkv.weight.grad.chunk(3), strict=True):
            assert record[f"gradient_{which}"] == pytest.approx(float(gradient.norm()), rel=1e-5)


def test_without_gradients_nothing_but_the_forward_pass_runs():
    model = net()
    records = attention_statistics(model, tokens(), gradients=False)
    assert {r["gradient_q"] for r in records} == {None}
    assert records[0]["entropy"] is not None


def test_default_loss_uses_labels_and_falls_back_to_the_squared_output():
    class Classifier(nn.Sequential):
        def forward(self, x):
            return super().forward(x).mean(1)

    torch.manual_seed(0)
    model, x, labels = Classifier(Attention()), tokens(), torch.tensor([1, 2, 3])
    with_labels = attention_statistics(model, (x, labels))[0]["gradient_v"]
    without = attention_statistics(model, x)[0]["gradient_v"]
    weight = model[0].qkv.weight
    for value, expected in (
        (with_labels, F.cross_entropy(model(x), labels)),
        (without, model(x).square().sum(1).mean() / 2),
    ):
        gradient = torch.autograd.grad(expected, weight)[0].chunk(3)[2]
        assert value == pytest.approx(float(gradient.norm()), rel=1e-5)


@pytest.mark.parametrize("how", ["sdpa", "method"])
def test_masked_keys_do_not_count(how):
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    model, x = net(how=how, mask=mask), tokens()
    record = attention_statistics(model, x)[0]
    p = probabilities(model[0], x)[..., 1:, :]  # the first row sees itself alone: its entropy is no ratio
    visible = torch.arange(2, 6).float().log()
    entropy = (torch.special.entr(p).sum(-1) / visible).mean()
    assert record["entropy"] == pytest.approx(float(entropy), rel=1e-4)
    assert record["max_probability"] == pytest.approx(float(p.amax(-1).mean()), rel=1e-5)


@pytest.mark.parametrize("need_weights", [False, True])
def test_torch_multihead_attention_and_its_results_are_unchanged(need_weights):
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x):
            out, weights = self.attention(x, x, x, need_weights=need_weights)
            self.seen = weights
            return out

    torch.manual_seed(0)
    model, x = Layer(), tokens()
    model.eval()
    expected, weights = model(x), model.seen
    record = attention_statistics(model, x)[0]
    _, by_head = model.attention(x, x, x, average_attn_weights=False)
    assert record["max_probability"] == pytest.approx(float(by_head.detach().amax(-1).mean()), rel=1e-5)
    outputs = []
    attention_statistics(model, x, loss=lambda m, b: outputs.append(m(b)) or outputs[0].sum())
    torch.testing.assert_close(outputs[0], expected)
    if need_weights:
        torch.testing.assert_close(model.seen, weights)
    else:
        assert model.seen is None


def test_grouped_queries_and_causal_attention():
    class Grouped(nn.Module):
        def __init__(self):
            super().__init__()
            self.num_heads = 4
            self.q_proj, self.k_proj, self.v_proj = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 4)

        def forward(self, x):
            q, k, v = (
                layer(x).unflatten(-1, (-1, 2)).transpose(1, 2) for layer in (self.q_proj, self.k_proj, self.v_proj)
            )
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    torch.manual_seed(0)
    model, x = nn.Sequential(Grouped()), tokens()
    q, k = (f(x).detach().unflatten(-1, (-1, 2)).transpose(1, 2) for f in (model[0].q_proj, model[0].k_proj))
    logits = q @ k.repeat_interleave(2, 1).mT / 2**0.5
    p = logits.masked_fill(~torch.ones(5, 5, dtype=torch.bool).tril(), float("-inf")).softmax(-1)[..., 1:, :]
    record = attention_statistics(model, x)[0]
    assert record["max_probability"] == pytest.approx(float(p.amax(-1).mean()), rel=1e-5)


def test_timm_models_fused_and_not_agree_and_cross_covariance_counts_channels():
    timm = pytest.importorskip("timm")
    from timm.layers import set_fused_attn

    found = []
    image = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(2))
    try:
        for fused in (True, False):
            set_fused_attn(fused)
            torch.manual_seed(0)
            arguments = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}
            model = timm.create_model("vit_tiny_patch16_224", **arguments)
            found.append(attention_statistics(model, image))
    finally:
        set_fused_attn(True)
    for a, b in zip(*found, strict=True):
        assert a["keys"] == b["keys"] == 17
        for key in ("entropy", "max_probability", "gradient_q", "gradient_v"):
            assert a[key] == pytest.approx(b[key], rel=1e-3)
    torch.manual_seed(0)
    xcit = timm.create_model("xcit_nano_12_p16_224", img_size=32, embed_dim=16, depth=1, num_heads=2)
    keys = {r["attention"]: r["keys"] for r in attention_statistics(xcit, image)}
    assert keys["blocks.0.attn"] == 8
    assert all(value is not None for value in keys.values())


def test_padding_of_a_transformers_model_is_left_out():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    torch.manual_seed(0)
    model = transformers.BertModel(config)
    ids = torch.randint(0, 20, (2, 6))
    short = attention_statistics(model, {"input_ids": ids[:, :4]}, gradients=False)[0]
    mask = torch.tensor([[1, 1, 1, 1, 0, 0]] * 2)
    padded = attention_statistics(model, {"input_ids": ids, "attention_mask": mask}, gradients=False)[0]
    # The padding's own rows also see the four tokens alone, so that nothing reaches the uniform 1/6.
    assert padded["entropy"] == pytest.approx(short["entropy"], abs=1e-3)
    assert padded["max_probability"] == pytest.approx(short["max_probability"], abs=1e-3)
    assert padded["gradient_q"] is None


def conditioned(lam, targets="qkv"):
    model = nn.Sequential(*[Attention(dim=16, num_heads=2) for _ in range(2)])
    torch.manual_seed(0)
    for p in model.parameters():
        nn.init.normal_(p, std=0.02)
    return condition(model, lam=lam, targets=targets)


def test_the_warning_names_lambda_and_what_would_not_saturate():
    x = F.layer_norm(tokens(4, 12, 16), (16,))
    warning = saturation_warning(attention_statistics(conditioned(10.0), x), 10.0)
    assert "\n" not in warning
    assert "λ = 10 saturates the softmax in 2 of 2 attention layers" in warning
    assert "targets='v'" in warning
    suggestion = float(warning.split("λ of about ")[1].split()[0])
    assert 0 < suggestion < 10
    for model, lam in ((conditioned(suggestion), suggestion), (conditioned(10.0, "v"), 10.0), (conditioned(0.0), 0.0)):
        statistics = attention_statistics(model, x)
        assert max(r["max_probability"] for r in statistics) < 0.5
        assert saturation_warning(statistics, lam) is None


def record(**figures):
    return {
        "attention": "a",
        "max_probability": 0.5,
        "relaxing_scale": 0.25,
        "gradient_q": 1.0,
        "gradient_v": 1.0,
    } | figures


def test_a_vanished_gradient_alone_is_warned_about():
    assert saturation_warning([record()], 3.0) is None
    warning = saturation_warning([record(), record(gradient_q=0.0)], 3.0)
    assert "λ = 3 all but stops the gradient of W_Q in 1 of 2" in warning
    assert "saturates" not in warning.split(";")[0]
    # Logits scale as λ²: a quarter of the logits is half of λ, rounded down to one digit.
    assert "λ of about 1 " in warning
    assert saturation_warning([record(gradient_q=0.0, gradient_v=0.0)], 3.0) is None
    assert saturation_warning([record(gradient_q=None)], 3.0) is None


def test_a_plain_model_that_saturates_is_warned_about_without_a_lambda():
    warning = saturation_warning([record(max_probability=0.95)], 0)
    assert "without a correction" in warning
    assert "would not saturate" not in warning


def test_a_loss_that_is_no_scalar_is_refused():
    with pytest.raises(ValueError, match="scalar"):
        attention_statistics(net(), tokens(), loss=lambda m, b: m(b))
