"""The ablations and the cost: pages of their own, from the rows' records and from a benchmark's."""

import json

import pytest
from scipy import stats

from scripts.figures import over_lam
from scripts.tables import ablations, cost, imagenet
from scripts.tables.settings import Source
from tests.scripts.recorded import ACCURACIES, lines, record, results, row, said


@pytest.fixture
def source(tmp_path):
    return Source(results(tmp_path))


def test_lambda_ablation_is_a_page_of_its_own(source):
    row(source.results, accuracies=ACCURACIES | {"identity-lam0.1": [53.0, 54.0, 55.5]})
    page = ablations.over_lam(source, "reduced")
    shown = [one["conditioning"] for one in lines(page)]
    assert shown == ["baseline, λ = 0", "identity, λ = 0.1", "identity, λ = 10", "svd, λ = 1"]
    assert "ViT: of λ = 0, 0.1, 10 the mean is highest at λ = 0.1 (54.17)" in said(page)
    assert "Identity, λ = 0.1: gains on ViT (+3.17)" in said(page)
    table = imagenet.page(source, "reduced")
    assert "identity, λ = 0.1" not in {one["conditioning"] for one in lines(table)}
    assert "other records" not in said(table)


def test_an_experiment_that_is_no_row_is_named_by_its_own_command(source):
    row(source.results, "reduced/evidence_vit", ACCURACIES | {"identity-lam0.1": [53.0]})
    found = {one["row"]: one["command"] for one in lines(ablations.over_lam(source, "reduced"))}
    assert found["evidence-vit"] == (
        "python -m train -m experiment=reduced/evidence_vit conditioning=svd conditioning.lam=1 seed=0,1,2"
    )
    assert found["ViT"] == "make ablation-lambda SCALE=reduced SEEDS=0,1,2"


def test_layer_norm_compares_with_the_baseline_of_the_same_norm(source):
    bare = {"baseline,model.norm=False": [30.0, 31.0, 32.0], "svd-lam1,model.norm=False": [40.0, 41.5, 42.0]}
    row(source.results, accuracies=ACCURACIES | bare)
    page = ablations.layer_norm(source, "reduced")
    found = {(one["LayerNorm"], one["conditioning"]): one for one in lines(page)}
    assert float(found["without", "svd, λ = 1"]["difference"]) == pytest.approx(61 / 6)
    assert float(found["with", "svd, λ = 1"]["difference"]) == pytest.approx(1 / 6)
    assert found["without", "identity, λ = 10"]["state"] == "not run"
    four = [*bare.values(), ACCURACIES["baseline"], ACCURACIES["svd-lam1"]]
    plus = [b - a - (d - c) for a, b, c, d in zip(*four, strict=True)]
    low, high = stats.ttest_1samp(plus, 0).confidence_interval(0.95)
    assert (f"svd, λ = 1: its paired difference is 10.00 points more without LayerNorm than with it, "
            f"95 % interval {low:+.2f} to {high:+.2f}") in said(page)  # fmt: skip
    assert "model.norm" not in said(imagenet.page(source, "reduced"))


def test_a_setting_without_its_own_baseline_is_compared_with_none(source):
    row(source.results, accuracies=ACCURACIES | {"svd-lam1,model.norm=False": [10.0, 11.0, 12.0]})
    found = {(one["LayerNorm"], one["conditioning"]): one for one in lines(ablations.layer_norm(source, "reduced"))}
    assert found["without", "svd, λ = 1"]["difference"] == ""
    assert found["without", "svd, λ = 1"]["mean"] == "11.0"


def test_cost_is_read_from_its_record_and_not_run_without(source):
    assert {one["state"] for scale in ("paper", "reduced") for one in lines(cost.page(source, scale))} == {"not run"}
    row_ = {"scale": "reduced", "seconds": 0.05, "seconds_std": 0.001, "ratio_low": 0.99, "ratio_high": 1.03}
    row_ |= {"null_ratio": 1.001, "memory_bytes": 2**21, "flops": 2e9, "parameters": 1e6}
    rows = [row_ | {"name": "plain", "ratio": 1.0}, row_ | {"name": "svd every 100", "ratio": 1.25}]
    about = {"reduced": {"device": "a CPU", "devices": 1, "threads": 2}}
    (source.results / "cost.json").write_text(json.dumps({"environment": about, "rows": rows}))
    page = cost.page(source, "reduced")
    found = {one["correction"]: one for one in lines(page)}
    assert (found["svd every 100"]["ratio"], found["svd every 100"]["hardware"]) == ("1.25", "a CPU, 2 threads")
    assert found["λI"]["state"] == "not run"
    assert "svd every 100 +25.00 % (plain against itself: +0.10 %)" in said(page)
    assert {one["state"] for one in lines(cost.page(source, "paper"))} == {"not run"}
    paper = {one["correction"]: one["paper"] for one in lines(cost.page(source, "paper"))}
    assert paper == {"plain": "29:29", "λI": "29:33", "svd, once": "", "svd, every step": "41:38"}


def test_a_sweep_that_failed_whole_has_no_picture_and_stops_none(tmp_path):
    folder = results(tmp_path)
    for lam in (0.1, 1, 10):
        record(folder, "reduced/imagenet_vit", f"identity-lam{lam:g}", 0, status="failed")
    record(folder, "reduced/imagenet_vit", "baseline", 0, status="failed")
    assert over_lam.pictures(Source(folder)) == []


def test_a_setting_that_diverged_with_every_seed_is_not_called_not_run(source):
    for seed in (0, 1, 2):
        record(source.results, "reduced/imagenet_vit", "baseline", seed)
        record(source.results, "reduced/imagenet_vit", "identity-lam10,model.norm=False", seed, status="diverged")
    page = ablations.layer_norm(source, "reduced")
    found = {(line["LayerNorm"], line["conditioning"]): line["state"] for line in lines(page)}
    assert found["without", "identity, λ = 10"] == "3 diverged"
    assert found["with", "identity, λ = 10"] == "not run"
