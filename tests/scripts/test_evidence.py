"""The study: its plan names the records that its commands make, and its findings follow the protocol."""

import pytest
from recorded import record, results
from scipy import stats

from scripts.evidence import chapter, correlation
from scripts.evidence.__main__ import main
from scripts.evidence.findings import Study, primary_table, settings_table, verdicts
from scripts.evidence.plan import PLAN, setting
from scripts.tables.settings import Source
from train.compose import distinguishing, resolve
from train.errors import USAGE
from train.folder import run_folder

GAINS = {
    "baseline": [45.0, 46.0, 44.0, 45.5, 44.5],
    "svd": [48.0, 49.1, 46.9, 48.6, 47.4],
    "identity λ = 10": [22.0, 23.1, 20.9, 22.6, 21.4],
    "control: orthogonal": [45.1, 45.9, 44.1, 45.4, 44.6],
    "control: rescale": [47.9, 49.2, 46.8, 48.7, 47.3],
}


def probes(kappa, entropy, saturated):
    """The events of a run that was looked at at its start and its end."""
    found = []
    for step, factor in ((0, 1.0), (90, 2.0)):
        weight = {"projection": "q", "kappa_conditioned": factor * kappa, "sigma_min_conditioned": 0.1 / factor}
        layer = {"entropy": entropy, "saturated_rows": saturated}
        found += [
            {"step": step, "event": "spectra", "weights": [weight, weight | {"kappa_conditioned": None}]},
            {"step": step, "event": "attention", "layers": [layer, layer]},
            {"step": step, "event": "jacobian", "layers": [{"kappa_nonzero": 1e6 * factor}]},
        ]
    return found


def study(tmp_path, accuracies, events=None, **more):
    """Records of settings by name → accuracies, one a seed."""
    source = Source(results(tmp_path))
    for name, values in accuracies.items():
        experiment, tag = setting(name).folder("reduced")
        for seed, value in enumerate(values):
            record(source.results, experiment, tag, seed, metrics={"top1": value, "loss": 1.0},
                   events=(events or {}).get(name, probes(5.0, 0.9, 0.0)), **more)  # fmt: skip
    return source


def text(cells):
    return [cell.text for cell in cells]


def test_the_plan_is_what_the_protocol_says():
    runs = {part: sum(len(s.seeds) for s in PLAN if s.part == part) for part in ("primary", "factor", "pooling")}
    assert sum(runs.values()) == 79
    assert all(len(s.seeds) == (5 if s.part == "primary" else 3) for s in PLAN)
    assert len({s.name for s in PLAN}) == len(PLAN)
    for scale in ("reduced", "gpu"):
        assert len({s.folder(scale) for s in PLAN}) == len(PLAN)
    assert all(s.against is None or setting(s.against).seeds[: len(s.seeds)] == s.seeds for s in PLAN)


NAMED = (
    "baseline",
    "identity λ = 0.3",
    "relative λ = 1",
    "svd, each head",
    "svd, start only",
    "svd without LayerNorm",
    "svd without 1/√d",
    "baseline, half the rate",
    "identity λ = 10, four times as long",
    "identity λ = 10, half of it warm-up",
)


@pytest.mark.parametrize("name", NAMED)
def test_records_lie_where_the_plan_looks_for_them(name, tmp_path):
    words = [*setting(name).command(2, "reduced"), f"output_root={tmp_path}"]
    experiment, tag = setting(name).folder("reduced")
    assert run_folder(resolve(words), distinguishing(words)) == tmp_path / experiment / tag / "seed2"


def test_the_primary_comparison_is_judged_as_the_protocol_says(tmp_path):
    found = Study(study(tmp_path, GAINS), "reduced")
    rows = {cells[0].text: text(cells) for cells in primary_table(found).rows}
    told = stats.ttest_rel(GAINS["svd"], GAINS["baseline"])
    assert rows["svd − baseline"][1:4] == ["+3.00", "{:+.2f} to {:+.2f}".format(*told.confidence_interval(0.95)), "5"]
    assert [rows[name][-1] for name in ("svd − baseline", "identity λ = 10 − baseline", "svd − control: rescale",
                                        "svd − control: orthogonal", "control: orthogonal − baseline")] == [
        "above zero", "below zero", "undecided", "above zero", "undecided"]  # fmt: skip
    said = text(verdicts(found))
    assert "contradicts the paper's claim" in said[0]
    assert "supports the correction of Theorem 3.5" in said[1]
    assert "conditioning does more than this control" in said[2]
    assert "equal for practical purposes" in said[3]


def test_what_is_not_told_apart_is_said_so(tmp_path):
    wild = GAINS | {"control: rescale": [44.0, 53.0, 42.0, 52.0, 47.0], "svd": [45.3, 46.5, 43.0, 46.4, 44.9]}
    said = text(verdicts(Study(study(tmp_path, wild), "reduced")))
    assert said[1].endswith("decides nothing.")
    assert "not told apart" in said[3]


def test_three_seeds_are_compared_with_the_same_three_of_five(tmp_path):
    found = Study(study(tmp_path, GAINS | {"svd on v": [46.0, 47.0, 45.0, 99.0]}), "reduced")
    table = settings_table(found, "factor", "")
    [row] = [cells for cells in table.rows if cells[0].text == "svd on v"]
    assert text(row)[1:5] == ["46.00 ± 1.00", "0, 1, 2", "baseline", "+1.00"]  # the fourth seed is not in the plan
    [row] = [cells for cells in table.rows if cells[0].text == "svd, each head"]
    assert row[1].text == "not run"


def test_a_diverged_seed_is_named_and_in_no_mean(tmp_path):
    source = study(tmp_path, GAINS)
    experiment, tag = setting("svd on v").folder("reduced")
    record(source.results, experiment, tag, 0, status="diverged")
    said = chapter.blocks(source)["evidence"]
    assert "svd, λ = 1, targets = v, seed 0: diverged; in no mean." in said
    assert f"**{sum(len(s.seeds) for s in PLAN) - 25} runs of the plan have no record" in said


def test_correlation_is_scipys_and_the_bootstrap_is_repeatable():
    x, y = [1.0, 2.0, 3.0, 4.0, 5.0, 9.0, 7.0], [9.0, 7.0, 8.0, 5.0, 4.0, 1.0, 2.0]
    rho, low, high = correlation.spearman(x, y)
    assert rho == pytest.approx(stats.spearmanr(x, y).statistic)
    assert -1 <= low <= rho <= high < 0
    assert correlation.spearman(x, y) == (rho, low, high)


def test_kappa_and_accuracy_with_and_without_saturated_settings(tmp_path):
    events = {name: probes(10.0 ** (6 - value[0] / 10), 0.9, 0.0) for name, value in GAINS.items()}
    events["identity λ = 10"] = probes(1.01, 0.02, 0.99)
    more = {f"identity λ = {lam}": [44.0 + lam, 45.0 + lam, 43.0 + lam] for lam in (0.1, 0.3, 1, 3)}
    events |= {name: probes(10.0 ** (6 - value[0] / 10), 0.9, 0.0) for name, value in more.items()}
    source = study(tmp_path, GAINS | more, events)
    found = Study(source, "reduced")
    assert [point.saturated for point in correlation.points(found)] == [False, False, True, *[False] * 6]
    rows = {(cells[0].text, cells[1].text): text(cells)[2:] for cells in correlation.table(found).rows}
    assert rows["κ(W + C), start", "not saturated"][:2] == ["8", "-1.00"]
    assert float(rows["κ(W + C), start", "all"][1]) > -1
    [picture] = chapter.pictures(source)
    assert len(picture.runs) == 25 + 12
    assert all(path.stat().st_size > 1000 for path in picture.write(tmp_path))
    assert "figures/evidence_kappa_reduced.svg" in chapter.blocks(source)["evidence"]


def test_nothing_run_is_said_and_without_data_nothing_begins(tmp_path, capsys):
    source = Source(results(tmp_path))
    assert "No run of the study" in chapter.blocks(source)["evidence"]
    assert "no records yet" in chapter.first_screen(source, "results/")
    assert main([f"data_root={tmp_path}", f"output_root={tmp_path / 'out'}"]) == USAGE
    assert capsys.readouterr().err.startswith("error: ")
    assert not (tmp_path / "out").exists()
