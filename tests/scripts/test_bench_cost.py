"""The benchmark of cost: what it counts, that a recomputation is one, and that its file keeps the other scale."""

import json
import statistics

import pytest
import timm
import torch

from scripts import bench_cost
from scripts.paired_steps import LEAST, Steps, interleaved, ratios
from specattn import condition, corrections, find_projections, weight_spectra
from train.errors import USAGE


@pytest.fixture(autouse=True)
def denormals():
    yield
    torch.set_flush_denormal(False)


def test_each_round_measures_every_variant_once_and_the_first_warms_up():
    calls, rounds = [], []
    measures = {name: lambda name=name: calls.append(name) or float(len(calls)) for name in "abc"}
    found = interleaved(measures, 5, told=rounds.append)
    assert rounds == [0, 1, 2, 3, 4, 5]
    assert [len(found[name]) for name in "abc"] == [5, 5, 5]
    orders = {"".join(calls[start : start + 3]) for start in range(0, 18, 3)}
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)
    assert len(orders) > 1
    assert min(figure for figures in found.values() for figure in figures) > 3
    assert len(interleaved({"a": lambda: 1.0}, 50, seconds=0)["a"]) == LEAST


def test_a_ratio_is_the_median_of_ratios_within_rounds():
    found = {"plain": [1.0, 2.0, 4.0], "other": [2.0, 5.0, 12.0]}
    low, middle, high = ratios(found, "other", "plain")
    assert middle == 2.5  # not 5 / 2 by chance: 2, 2.5, 3
    assert (low, high) == tuple(statistics.quantiles([2.0, 2.5, 3.0], n=4)[::2])


def small() -> torch.nn.Module:
    torch.manual_seed(0)
    return timm.create_model("test_vit", num_classes=10)


def test_recomputed_corrections_are_those_of_the_present_weights():
    model = condition(small(), method="svd")
    stored = [projection.stored for projection in find_projections(model)]
    with torch.no_grad():
        for weight in stored:
            weight.add_(torch.randn_like(weight), alpha=0.5)
    present = [weight.clone() for weight in stored]
    assert max(found["kappa_conditioned"] for found in weight_spectra(model)) > 2
    bench_cost.recompute(model)
    assert all(new.stored is old for new, old in zip(find_projections(model), stored, strict=True))
    assert all(torch.equal(new, old) for new, old in zip(stored, present, strict=True))
    assert max(found["kappa_conditioned"] for found in weight_spectra(model)) < 2 + 1e-4
    fresh = small()
    with torch.no_grad():
        for projection, weight in zip(find_projections(fresh), present, strict=True):
            projection.stored.copy_(weight)
    condition(fresh, method="svd")
    for name, correction in corrections(fresh).items():
        assert torch.equal(correction.dense(), corrections(model)[name].dense())


def test_flops_are_those_of_products_and_decompositions():
    a, b = torch.randn(3, 5), torch.randn(5, 7)
    assert bench_cost.flops(lambda: a @ b) == 2 * 3 * 5 * 7
    wide = torch.randn(4, 6, 3)
    assert bench_cost.flops(lambda: torch.linalg.svd(wide, full_matrices=False)) == 4 * (14 * 6 * 9 + 8 * 27)
    assert bench_cost.flops(lambda: torch.linalg.svd(wide.mT, full_matrices=False)) == 4 * (14 * 6 * 9 + 8 * 27)
    # Attention: two products of N x N x d a head, whatever kernel the device would take.
    q = torch.randn(1, 2, 8, 4)
    assert bench_cost.flops(lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q)) == 2 * (4 * 8 * 8 * 4)


def test_a_variant_leaves_the_model_plain_again():
    model = small()
    size = model.patch_embed.img_size
    steps = Steps(model, torch.randn(2, 3, *size), torch.zeros(2, dtype=torch.int64))
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    seconds = steps.as_variant("svd", lambda: bench_cost.block(steps, 2, 1))
    assert seconds > 0
    assert not corrections(model)
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())


def test_one_scale_is_measured_and_the_other_kept(tmp_path, capsys):
    path = tmp_path / "cost.json"
    path.write_text(
        json.dumps({"environment": {"paper": {"device": "x"}}, "rows": [{"scale": "paper", "name": "plain"}]})
    )
    words = ["--rounds", "2", "--batch", "2", "--every", "2", "--minutes", "0", "--output", str(path)]
    assert bench_cost.main([*words, "--model", "model.args.depth=1"]) == 0
    written = json.loads(path.read_text())
    assert written["environment"]["paper"] == {"device": "x"}
    assert written["environment"]["reduced"]["batch"] == 2
    assert written["rows"][0] == {"scale": "paper", "name": "plain"}
    rows = {row["name"]: row for row in written["rows"] if row["scale"] == "reduced"}
    assert list(rows) == ["plain", "identity", "svd", "svd, every 2 steps"]
    plain, anew = rows["plain"], rows["svd, every 2 steps"]
    assert plain["ratio"] == 1
    assert plain["null_ratio"] > 0
    assert plain["flops"] == rows["identity"]["flops"] == rows["svd"]["flops"]
    # Every other step q, k and v of one block: a decomposition each, and the product U Vᵀ.
    assert anew["flops"] - plain["flops"] == 3 * (14 + 8 + 2) * 64**3 // 2
    assert plain["memory_bytes"] < rows["svd"]["memory_bytes"] <= anew["memory_bytes"]
    assert len({row["parameters"] for row in rows.values()}) == 1
    assert "written" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--every", "0"], "--every 0"),
        (["--rounds", "1"], "--rounds"),
        (["--batch", "0"], "--batch at least 1"),
        (["--model", "model.arg.depth=1"], "model.args"),
        ([], "is damaged"),
        (["--scale", "paper"], "no GPU"),
    ],
)
def test_mistakes_are_one_line_before_anything_is_measured(tmp_path, capsys, monkeypatch, words, says):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # the same on a machine with a GPU
    path = tmp_path / "cost.json"
    path.write_text("[]")
    assert bench_cost.main([*words, "--output", str(path)]) == USAGE
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert says in said
    assert path.read_text() == "[]"
