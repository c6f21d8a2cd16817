"""Crammed BERT: its size, its mathematics, its conditioning and its export."""

import math

import pytest
import torch
from torch.nn import functional as F

import specattn
from specattn.models.crammed_bert import CrammedBert, CrammedBertConfig, load, save

SMALL = {"vocabulary": 50, "width": 16, "depth": 2, "heads": 4, "feed_forward": 24, "length": 12, "head_width": 20}


def small(**more):
    torch.manual_seed(0)
    model = CrammedBert(CrammedBertConfig(**SMALL | more)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    return model


def tokens(batch=3, length=12):
    return torch.randint(1, 50, (batch, length), generator=torch.Generator().manual_seed(1))


def test_the_parameters_are_those_counted_by_hand():
    with torch.device("meta"):
        language_model, classifier = CrammedBert(CrammedBertConfig()), CrammedBert(CrammedBertConfig(classes=2))
    norm = 2 * 768
    block = 768 * 2304 + 768 * 768 + 768 * 3072 + 1536 * 768 + 2 * norm
    encoder = 32768 * 768 + 1 + norm + 16 * block + norm
    assert sum(p.numel() for p in language_model.parameters()) == encoder == 119_589_889  # 478 MB in float32
    head = 768 * 1024 + 1024 + 1024 * 2 + 2
    assert sum(p.numel() for p in classifier.parameters()) == encoder + head
    biases = [name for name, _ in language_model.named_parameters() if name.endswith("bias")]
    assert biases
    assert all("norm" in name for name in biases)


def test_a_block_is_the_formula_in_float64():
    model = small().double()
    block = model.encoder.blocks[0]
    x = torch.randn(2, 5, 16, dtype=torch.float64)

    def norm(y, layer):
        centred = y - y.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + 1e-12).sqrt() * layer.weight + layer.bias

    y = norm(x, block.norm1)
    w_q, w_k, w_v = block.attn.qkv.weight.chunk(3)
    heads = []
    for head in range(4):
        rows = slice(4 * head, 4 * head + 4)
        q, k, v = y @ w_q[rows].T, y @ w_k[rows].T, y @ w_v[rows].T
        heads.append(torch.softmax(q @ k.mT / math.sqrt(4), -1) @ v)
    x2 = x + torch.cat(heads, -1) @ block.attn.proj.weight.T
    inner = norm(x2, block.norm2) @ block.ffn.dense_in.weight.T
    first, second = inner[..., :12], inner[..., 12:]
    gelu = second * 0.5 * (1 + torch.erf(second / math.sqrt(2)))
    expected = x2 + (gelu * first) @ block.ffn.dense_out.weight.T
    torch.testing.assert_close(block(x), expected, rtol=1e-12, atol=1e-12)


def test_positions_and_tied_decoder():
    model = small().double()
    angle = torch.tensor(3 / 10000 ** (4 / 16))
    torch.testing.assert_close(model.encoder.positions_ND[3, 4:6].float(), torch.stack([angle.sin(), angle.cos()]))
    assert CrammedBert(CrammedBertConfig(**SMALL)).encoder.position_scale.item() == pytest.approx(16**-0.5)
    x = tokens()
    whole = model(x)
    assert whole.shape == (3, 12, 50)
    chosen = torch.tensor([0, 13, 35])
    torch.testing.assert_close(model(x, chosen), whole.flatten(0, 1)[chosen])
    model(x).sum().backward()
    assert not any("decoder" in name for name, _ in model.named_parameters())
    assert model.encoder.embedding.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("conditioning", [None, "identity"])
def test_a_classifier_overlooks_padding(conditioning):
    model = small(classes=3)
    if conditioning:
        specattn.condition(model, 0.5, conditioning)
    x = tokens(2, 7)
    padded = torch.cat([x, torch.zeros(2, 4, dtype=torch.int64)], 1)
    torch.testing.assert_close(model(padded), model(x), rtol=1e-5, atol=1e-5)


def test_dropout_acts_in_training_alone():
    model = small(classes=2, dropout=0.5)
    x = tokens()
    assert torch.equal(model(x), model(x))
    model.train()
    assert not torch.equal(model(x), model(x))
    still = small(classes=2).train()
    assert torch.equal(still(x), still(x))


def test_lambda_zero_is_the_plain_model_bit_for_bit():
    plain, other = small(), specattn.condition(small(), 0)
    assert list(plain.state_dict()) == list(other.state_dict())
    assert torch.equal(plain(tokens()), other(tokens()))


@pytest.mark.parametrize("method", ["identity", "svd"])
def test_conditioning_folds_into_an_export_that_loads_again(method, tmp_path):
    model = specattn.condition(small(), 0.7, method)
    names = [p.name for p in specattn.find_projections(model)]
    assert names[:3] == [f"encoder.blocks.0.attn.{part}" for part in "qkv"]
    assert {p.heads for p in specattn.find_projections(model)} == {4}
    if method == "svd":
        spectra = specattn.weight_spectra(specattn.condition(small(), 1, "svd"))
        assert all(record["kappa_conditioned"] <= 2 + 1e-4 for record in spectra)
    expected = model(tokens())
    with pytest.raises(ValueError, match="fold"):
        save(model, tmp_path / "export")
    save(specattn.fold(model), tmp_path / "export")
    again = load(tmp_path / "export").eval()
    torch.testing.assert_close(again(tokens()), expected, rtol=1e-5, atol=1e-5)
    assert sorted(path.name for path in (tmp_path / "export").iterdir()) == ["config.json", "model.safetensors"]


def test_what_is_no_export_is_refused(tmp_path):
    save(small(), tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        load(tmp_path)
    (tmp_path / "config.json").write_text('{"model": "bert"}')
    with pytest.raises(ValueError, match=r"config\.json"):
        load(tmp_path)
    for wrong in ({"heads": 5}, {"feed_forward": 7}, {"depth": 0}):
        with pytest.raises(ValueError):
            CrammedBertConfig(**SMALL | wrong)


def test_attention_is_seen_by_the_probes():
    model = specattn.condition(small(), 0.5, "svd")

    def loss(model, batch):
        return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())

    layers = specattn.attention_statistics(model, (tokens(), tokens()), loss=loss)
    assert [layer["attention"] for layer in layers] == ["encoder.blocks.0.attn", "encoder.blocks.1.attn"]
    assert all(layer["entropy"] > 0 and layer["gradient_q"] > 0 for layer in layers)
    spectra = specattn.jacobian_spectra(model, tokens()[:1], modules="encoder.blocks.0.attn", tokens=6, heads=(0,))
    assert spectra[0]["path"] == "closed form"
