"""`weight_spectra` against torch's own singular values, plain and conditioned, per projection and per head."""

import json
import math

import pytest
import torch
from torch import nn

from specattn import spectrum
from specattn.spectrum import condition_number, extremes, to_table, weight_spectra


class Attention(nn.Module):
    """A fused-qkv attention module, as in timm, without the computation."""

    def __init__(self, dim: int, num_heads: int):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, 3 * dim)


def model(dim: int = 12, heads: int = 3, depth: int = 2) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*[Attention(dim, heads) for _ in range(depth)])


def test_one_record_for_each_layer_and_projection_with_the_true_singular_values():
    net = model()
    records = weight_spectra(net)
    assert [(r["attention"], r["layer"], r["projection"]) for r in records] == [
        (str(i), i, p) for i in range(2) for p in "qkv"
    ]
    for record in records:
        block = "qkv".index(record["projection"])
        weight = net[record["layer"]].qkv.weight.detach()[12 * block : 12 * (block + 1)].double()
        sigma = torch.linalg.svdvals(weight)
        assert record["sigma_max"] == pytest.approx(float(sigma[0]), rel=1e-12)
        assert record["sigma_min"] == pytest.approx(float(sigma[-1]), rel=1e-10)
        assert record["kappa"] == pytest.approx(float(torch.linalg.cond(weight)), rel=1e-10)
        assert record["kappa_conditioned"] == record["kappa"]
        assert record["head"] is None
        assert (record["rows"], record["columns"]) == (12, 12)


def test_each_head_has_its_own_record():
    net = model(dim=12, heads=3, depth=1)
    records = weight_spectra(net, per_head=True)
    assert len(records) == 9
    head_2_of_k = next(r for r in records if r["projection"] == "k" and r["head"] == 2)
    sigma = torch.linalg.svdvals(net[0].qkv.weight.detach()[12 + 8 : 12 + 12].double())
    assert head_2_of_k["sigma_min"] == pytest.approx(float(sigma[-1]), rel=1e-10)
    assert (head_2_of_k["rows"], head_2_of_k["columns"]) == (4, 12)


@pytest.mark.parametrize("lam", [0.5, 10.0])
def test_w_and_w_plus_c_stand_side_by_side(lam):
    specattn = pytest.importorskip("specattn.conditioning")
    net = model()
    before = weight_spectra(net)
    specattn.condition(net, lam=lam)
    for old, new in zip(before, weight_spectra(net), strict=True):
        block = "qkv".index(new["projection"])
        weight = net[new["layer"]].qkv._parameters["weight"].detach()[12 * block : 12 * (block + 1)].double()
        assert new["kappa"] == old["kappa"]
        expected = float(torch.linalg.cond(weight + lam * torch.eye(12)))
        assert new["kappa_conditioned"] == pytest.approx(expected, rel=1e-5)
        assert new["kappa_conditioned"] != new["kappa"]


def test_a_singular_matrix_has_infinite_kappa():
    net = model(depth=1)
    with torch.no_grad():
        net[0].qkv.weight[0] = net[0].qkv.weight[1]
    kappas = {r["projection"]: r["kappa"] for r in weight_spectra(net)}
    assert kappas["q"] == math.inf
    assert math.isfinite(kappas["k"])
    assert condition_number(0.0, 0.0, (3, 3)) == math.inf


def test_extremes_are_batched_over_equal_shapes_and_keep_their_order(monkeypatch):
    monkeypatch.setattr(spectrum, "_BATCH", 2)
    torch.manual_seed(1)
    shapes = [(3, 5), (4, 4), (3, 5), (3, 5), (6, 2)]
    matrices = [torch.randn(s) for s in shapes]
    for (top, bottom), matrix in zip(extremes(matrices), matrices, strict=True):
        sigma = torch.linalg.svdvals(matrix.double())
        assert top == pytest.approx(float(sigma[0]), rel=1e-12)
        assert bottom == pytest.approx(float(sigma[-1]), rel=1e-12)


def test_records_are_plain_and_make_a_table():
    pytest.importorskip("pandas")
    records = weight_spectra(model())
    assert json.loads(json.dumps(records)) == records
    table = to_table(records)
    assert list(table.columns) == list(records[0])
    assert len(table) == len(records)


def test_a_model_without_attention_is_refused():
    with pytest.raises(ValueError, match="no attention"):
        weight_spectra(nn.Linear(3, 3))
