"""The Long Range Arena encoder: padding, batch mates, heads, precision, and the package's own tools on it."""

import copy
import math

import pytest
import safetensors.torch
import torch
from torch import nn

from specattn import attention_statistics, condition, conditioned, fold, jacobian_spectra, weight_spectra
from specattn.attention_capture import watch_softmax
from specattn.models.nystromformer import LongRangeAttention, Nystromformer

VOCAB, LENGTH, CLASSES = 11, 24, 3
TINY = {"dim": 8, "mlp_dim": 16, "landmarks": 6, "conv_kernel": 5}
each_attention = pytest.mark.parametrize("attention", ["nystrom", "softmax"])


def build(dtype=torch.float64, **arguments):
    """A model in evaluation mode, its weights large enough that attention is not flat; sample 0 has padding."""
    torch.manual_seed(0)
    model = Nystromformer(VOCAB, LENGTH, CLASSES, **TINY | arguments).to(dtype).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p), alpha=0.3)
    return model, padded_tokens()


def padded_tokens(seed=0):
    tokens = torch.randint(1, VOCAB, (4, LENGTH), generator=torch.Generator().manual_seed(seed))
    tokens[0, 13:] = 0
    tokens[1, ::5] = 0
    return tokens


def randomised(model):
    """A copy with other values wherever only padding at the end of sample 0 looks."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.token_embedding.weight[0].normal_()
        other.position_embedding.weight[13:].normal_()
    return other


@each_attention
def test_padding_is_not_seen(attention):
    model, tokens = build(attention=attention)
    out, changed = model(tokens), randomised(model)(tokens)
    torch.testing.assert_close(changed[0], out[0], rtol=0, atol=1e-12)
    assert (changed[2] - out[2]).abs().max() > 1e-3
    shows_zero, _ = build(attention=attention, mask_zero=False)
    out, changed = shows_zero(tokens), randomised(shows_zero)(tokens)
    assert (changed[0] - out[0]).abs().max() > 1e-3


def test_the_mean_is_over_the_padded_length():
    model, _ = build(attention="softmax")
    tokens = padded_tokens()[2:, :12]
    pooled = model.encode(tokens)
    twice = model.encode(torch.cat([tokens, torch.zeros_like(tokens)], 1))
    torch.testing.assert_close(twice * 2, pooled, rtol=0, atol=1e-12)


@each_attention
def test_a_sample_without_any_token(attention):
    model, tokens = build(attention=attention)
    tokens[0] = 0
    out = model(tokens)
    torch.testing.assert_close(out[0], model.classifier(torch.zeros(8, dtype=torch.float64)), rtol=0, atol=1e-12)
    out.square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("arguments", [{}, {"attention": "softmax"}], ids=["nystrom", "softmax"])
def test_a_sample_does_not_depend_on_its_batch_mates(arguments):
    model, tokens = build(**arguments)
    alone = torch.cat([model(t[None]) for t in tokens])
    torch.testing.assert_close(model(tokens), alone, rtol=0, atol=1e-12)


def test_with_the_original_initialisation_it_does():
    model, tokens = build(pinv_init="original")
    alone = torch.cat([model(t[None]) for t in tokens])
    assert (model(tokens) - alone).abs().max() > 1e-6


@pytest.mark.parametrize("init", ["per_matrix", "original"])
def test_pairs(init):
    model, first = build(pair=True, pinv_init=init)
    second = padded_tokens(1)
    a, b = model.encode(first), model.encode(second)
    expected = model.classifier(torch.cat([a, b, a * b, a - b], 1))
    assert model.classifier[0].in_features == 4 * 8
    torch.testing.assert_close(model(torch.stack([first, second], 1)), expected, rtol=0, atol=1e-12)


def test_the_papers_size_has_as_many_parameters_as_by_hand():
    model = Nystromformer(vocab_size=32, max_length=2048, classes=10)
    embeddings = 32 * 64 + 2048 * 64
    projections = 4 * (64 * 64 + 64)
    convolution = 2 * 35
    mlp = (64 * 128 + 128) + (128 * 64 + 64)
    norms = 2 * (64 + 64)
    classifier = (64 * 128 + 128) + (128 * 10 + 10)
    by_hand = embeddings + 2 * (projections + convolution + mlp + norms) + (64 + 64) + classifier
    assert sum(p.numel() for p in model.parameters()) == by_hand == 209942
    assert Nystromformer(32, 2048, 10, attention="softmax").blocks[0].attention.conv is None


def test_initialisation_is_torchs_but_for_the_embeddings():
    torch.manual_seed(0)
    model = Nystromformer(256, 1024, 10)
    for embedding in (model.token_embedding, model.position_embedding):
        assert embedding.weight.std().item() == pytest.approx(0.02, rel=0.05)
    attention = model.blocks[0].attention
    for weight, fan_in in ((attention.query.weight, 64), (attention.conv.weight, 35)):
        assert 0.9 / math.sqrt(fan_in) < weight.abs().max().item() <= 1 / math.sqrt(fan_in)


def test_names_and_copies():
    model, tokens = build()
    names = {name.rpartition(".")[0] for name in model.state_dict()}
    parts = ("norm1", "norm2", "mlp.0", "mlp.3", *(f"attention.{n}" for n in ("query", "key", "value", "conv")))
    expected = {f"blocks.{i}.{part}" for i in (0, 1) for part in (*parts, "attention.out_proj")}
    expected |= {"token_embedding", "position_embedding", "norm", "classifier.0", "classifier.2"}
    assert names == expected
    assert torch.equal(copy.deepcopy(model)(tokens), model(tokens))


def test_dropout_of_the_probabilities_is_softmaxs_alone():
    x, visible = torch.randn(2, LENGTH, 8), torch.ones(2, LENGTH, 1, dtype=torch.bool)
    for attention, dropped in (("nystrom", False), ("softmax", True)):
        layer = LongRangeAttention(8, 2, attention, dropout=0.5, landmarks=6)
        assert torch.equal(layer.train()(x, visible), layer.eval()(x, visible)) is not dropped
    model, tokens = build()
    assert not torch.equal(model.train()(tokens), model(tokens))


@each_attention
def test_the_attention_is_float32_under_autocast(attention):
    model, tokens = build(torch.float32, attention=attention)
    seen = []
    with watch_softmax(model, lambda _, logits: seen.append(logits.dtype)), torch.autocast("cpu", torch.bfloat16):
        out = model(tokens)
    assert seen == [torch.float32] * (2 if attention == "softmax" else 6)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), model(tokens), rtol=0.1, atol=0.1)
    out.float().sum().backward()
    assert all(p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in model.parameters())


@each_attention
@pytest.mark.parametrize("method", ["identity", "svd"])
def test_conditioning(attention, method, tmp_path):
    model, tokens = build(attention=attention)
    plain = model(tokens)
    assert torch.equal(condition(copy.deepcopy(model), 0, method)(tokens), plain)
    condition(model, 0.7, method)
    assert conditioned(model)["modules"] == ["blocks.0.attention", "blocks.1.attention"]
    out = model(tokens)
    assert (out - plain).abs().max() > 1e-3
    fold(model, tmp_path / "export.safetensors")
    fresh = Nystromformer(VOCAB, LENGTH, CLASSES, attention=attention, **TINY).double().eval()
    fresh.load_state_dict(safetensors.torch.load_file(tmp_path / "export.safetensors"), strict=True)
    assert torch.equal(fresh(tokens), model(tokens))
    torch.testing.assert_close(fresh(tokens), out, rtol=0, atol=1e-12)


@each_attention
def test_spectra_and_statistics(attention):
    model, tokens = build(attention=attention)
    corrected = weight_spectra(condition(copy.deepcopy(model), method="svd"), per_head=False)
    assert len(corrected) == 2 * 3
    assert all(r["kappa_conditioned"] <= 2 < r["kappa"] for r in corrected)
    first, second = attention_statistics(model, (tokens, torch.zeros(4, dtype=torch.long)))
    assert [first["attention"], second["attention"]] == ["blocks.0.attention", "blocks.1.attention"]
    assert first["keys"] == LENGTH
    assert 0 < first["entropy"] < 1
    assert min(first[f"gradient_{p}"] for p in "qkv") > 0


def test_statistics_of_exact_attention():
    model, tokens = build(attention="softmax")
    layer, x = model.blocks[0].attention, {}
    layer.register_forward_pre_hook(lambda _, args: x.update(x=args[0]))
    record = attention_statistics(model, tokens)[0]
    q, k = (m(x["x"]).unflatten(-1, (2, 4)).transpose(1, 2) for m in (layer.query, layer.key))
    logits = (q @ k.mT / 2).masked_fill((tokens == 0)[:, None, None], -math.inf)
    p = logits.softmax(-1)
    visible = (tokens != 0).sum(1)[:, None, None]
    assert record["max_probability"] == pytest.approx(p.amax(-1).mean().item(), rel=1e-5)
    assert record["entropy"] == pytest.approx((torch.special.entr(p).sum(-1) / visible.log()).mean().item(), rel=1e-5)


def test_jacobian_spectra():
    for attention, path in (("nystrom", "autograd"), ("softmax", "closed form")):
        model, tokens = build(attention=attention)
        layer = model.blocks[1].attention
        records = jacobian_spectra(model, tokens, modules="blocks.1.*")
        assert [r["path"] for r in records] == [path]
        seen = {}
        handle = layer.register_forward_pre_hook(lambda _, args, seen=seen: seen.update(args=args))
        model(tokens)
        handle.remove()
        x, visible = (a[:1].detach() for a in seen["args"])

        def attend(*weights, layer=layer, x=x, visible=visible):
            named = dict(zip(("query.weight", "key.weight", "value.weight"), weights, strict=True))
            bare = copy.deepcopy(layer)
            bare.out_proj = nn.Identity()
            return torch.func.functional_call(bare, named, (x, visible)).flatten()

        weights = tuple(getattr(layer, n).weight.detach() for n in ("query", "key", "value"))
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            dense = torch.autograd.functional.jacobian(attend, weights)
        sigma = torch.linalg.svdvals(torch.cat([j.flatten(1) for j in dense], 1))
        assert records[0]["sigma_max"] == pytest.approx(float(sigma[0]), rel=1e-8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"attention": "linear"}, "attention must be one of nystrom, softmax: not 'linear'"),
        ({"pinv_init": "exact"}, "pinv_init must be one of per_matrix, original: not 'exact'"),
        ({"landmarks": 5}, "max_length must be a multiple of landmarks, and 24 is none of 5"),
        ({"num_heads": 3}, "dim must be a multiple of num_heads, and 8 is none of 3"),
        ({"conv_kernel": 4}, "conv_kernel must be odd"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Nystromformer(VOCAB, LENGTH, CLASSES, **TINY | arguments)


@pytest.mark.parametrize(
    ("pair", "shape", "message"),
    [
        (False, (2, 30), r"\[batch, at most 24\], not \[2, 30\]"),
        (False, (2, 2, 24), r"\[batch, at most 24\], not \[2, 2, 24\]"),
        (True, (2, 24), r"\[batch, 2, at most 24\], not \[2, 24\]"),
        (True, (2, 3, 24), r"\[batch, 2, at most 24\], not \[2, 3, 24\]"),
        (False, (2, 23), "multiple of 6 tokens, not 23"),
    ],
)
def test_tokens_of_the_wrong_shape_are_refused(pair, shape, message):
    model, _ = build(pair=pair)
    with pytest.raises(ValueError, match=message):
        model(torch.ones(shape, dtype=torch.long))
