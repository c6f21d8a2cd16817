"""The study: its plan names the records that its commands make, and its findings follow the protocol."""

import pytest
from recorded import record, results
from scipy import stats

from scripts.evidence import advice, answers, chapter, correlation
from scripts.evidence.__main__ import main
from scripts.evidence.answers import verdicts
from scripts.evidence.findings import Study, primary_table, settings_table
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
    "svd on q and k",
    "mean pooling: svd",
    "svd, each head",
    "svd, start only",
    "svd without LayerNorm",
    "svd without 1/√d",
    "baseline, half the rate",
    "identity λ = 10, four times as long",
    "identity λ = 10, half of it warm-up",
    "identity λ = 10, a tenth of the rate",
)


@pytest.mark.parametrize(
    ("name", "scale"), [(name, "reduced") for name in NAMED] + [(name, "gpu") for name in NAMED[-5:]]
)
def test_records_lie_where_the_plan_looks_for_them(name, scale, tmp_path):
    words = [*setting(name).command(2, scale), f"output_root={tmp_path}"]
    experiment, tag = setting(name).folder(scale)
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
    [first, _, third] = said  # three sentences in all: README's first screen
    told = stats.ttest_rel(GAINS["identity λ = 10"], GAINS["baseline"]).confidence_interval(0.95)
    assert first.startswith("The paper's correction (λ = 10) changes top-1 by -23.00 points against the baseline "
                            f"(95 % interval {told.low:+.2f} to {told.high:+.2f}, 5 seeds): speaks against the paper's "
                            "claim at this scale (p = ")  # fmt: skip
    orthogonal, rescale, why = third.split("; ")
    assert "by +2.98 points against a random orthogonal matrix" in orthogonal
    assert ": this correction does more than any of its norm (p = " in orthogonal
    assert ": equal for practical purposes, within 1 point (p = " in rescale
    assert why == "conditioning is not shown to be the reason of svd's gain."
    assert [sentence.split("): ")[-1].split(" (")[0] for sentence in text(answers.reasons(found))] == [
        "undecided", "better"]  # fmt: skip


def test_conditioning_is_the_reason_only_above_both_controls_and_of_a_gain(tmp_path):
    def why(name, gains):
        (tmp_path / name).mkdir()
        return text(verdicts(Study(study(tmp_path / name, gains), "reduced")))[2].split("; ")[2]

    rescaled = GAINS | {"control: rescale": [46.0, 47.1, 44.9, 46.6, 45.4]}
    assert why("both", rescaled) == "conditioning is supported as the reason of svd's gain."
    assert "no decided gain" in why("none", rescaled | {"baseline": [48.1, 49.0, 47.0, 48.5, 47.5]})


@pytest.mark.parametrize(
    ("name", "gains", "ten", "svd"),
    [
        ("size", {}, "Do not use W + 10 I as it stands on", "Try larger initial q, k and v weights first"),
        (
            "why",
            {"control: rescale": [46.0, 47.1, 44.9, 46.6, 45.4]},
            "Do not use W + 10 I",
            "Use the theorem's correc",
        ),
        (
            "none",
            {"svd": [45.3, 45.9, 44.1, 45.2, 44.7]},
            "Do not use W + 10 I",
            "Do not expect a gain of the theorem's",
        ),
        (
            "worse",
            {"svd": [43.0, 44.1, 41.9, 43.6, 42.4]},
            "Do not use W + 10 I",
            "Do not use the theorem's correction",
        ),
        ("ten", {"identity λ = 10": [46.0, 47.1, 44.9, 46.6, 45.4]}, "W + 10 I, as the paper runs it, is worth", "Try"),
        (
            "open",
            {"identity λ = 10": [45.3, 45.9, 44.1, 45.2, 44.7]},
            "There is no reason for or against W + 10",
            "Try",
        ),
    ],
)
def test_the_recommendation_follows_from_the_primary_comparison(tmp_path, name, gains, ten, svd):
    said = text(advice.recommendation(Study(study(tmp_path, GAINS | gains), "reduced")))
    assert said[0].startswith(ten)
    assert said[1].startswith(svd)
    assert all("95 % interval" in one and "5 seeds" in one for one in said[:2])
    assert "ImageNet" in said[-1]


def test_nothing_is_recommended_before_the_primary_runs_have_ended(tmp_path):
    less = {name: values for name, values in GAINS.items() if name != "control: rescale"}
    assert advice.recommendation(Study(study(tmp_path, less), "reduced")) == []


def test_holm_is_for_six_and_readme_waits_for_every_primary_run(tmp_path):
    source = study(tmp_path, {name: GAINS[name] for name in ("baseline", "svd", "control: rescale")})
    found = Study(source, "reduced")
    told = {(one.name, one.against): (one.told.p, adjusted) for one, adjusted in found.primary()}
    p, adjusted = told["svd", "control: rescale"]
    assert len(told) == 3
    assert adjusted == pytest.approx(min(1.0, 4 * p))  # the third smallest of six
    assert "not been run to its end" in chapter.first_screen(source, "results/")
    for name in ("control: orthogonal", "identity λ = 10"):
        experiment, tag = setting(name).folder("reduced")
        for seed, value in enumerate(GAINS[name]):
            status = "diverged" if name.startswith("identity") else "complete"
            record(source.results, experiment, tag, seed, value, status=status)
    assert "- The paper's correction (λ = 10): 5 diverged." in chapter.first_screen(source, "results/")


def test_where_the_baseline_has_no_number_it_is_named_and_no_correction_is_blamed(tmp_path):
    source = study(tmp_path, {name: values for name, values in GAINS.items() if name != "baseline"})
    experiment, tag = setting("baseline").folder("reduced")
    for seed in range(5):
        record(source.results, experiment, tag, seed, 40.0, status="diverged")
    found, screen = Study(source, "reduced"), chapter.first_screen(source, "results/")
    for claim in ("The paper's correction (λ = 10)", "The theorem's correction (svd)"):
        assert f"- {claim} against the baseline has no result (the baseline: 5 diverged)." in screen
    advised = " ".join(one.text for one in advice.recommendation(found))
    assert "Do not use" not in advised
    assert "Nothing is recommended about W + 10 I" in advised


def test_one_pair_of_seeds_is_no_comparison(tmp_path):
    few = dict(GAINS) | {"identity λ = 10": GAINS["identity λ = 10"][:1]}
    source = study(tmp_path, few)
    experiment, tag = setting("identity λ = 10").folder("reduced")
    for seed in range(1, 5):
        record(source.results, experiment, tag, seed, 10.0, status="diverged")
    found = Study(source, "reduced")
    assert found.judged
    assert "too few runs have a result" in advice.recommendation(found)[0].text


def test_what_is_not_told_apart_is_said_so(tmp_path):
    wild = GAINS | {"control: rescale": [44.0, 53.0, 42.0, 52.0, 47.0], "svd": [45.3, 46.5, 43.0, 46.4, 44.9]}
    said = text(verdicts(Study(study(tmp_path, wild), "reduced")))
    assert "5 seeds): undecided (p = " in said[1]
    assert ": undecided (p = " in said[2].split("; ")[1]


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
    assert f"**{sum(len(s.seeds) for s in PLAN) - 26} runs of the plan have no result yet" in said  # a result: diverged
    assert "| svd on v | 1 diverged |" in said
    assert "- Svd on v: 1 diverged." in said


def test_correlation_is_scipys_and_the_bootstrap_is_repeatable():
    x, y = [1.0, 2.0, 3.0, 4.0, 5.0, 9.0, 7.0], [9.0, 7.0, 8.0, 5.0, 4.0, 1.0, 2.0]
    single = [[value] for value in x], [[value] for value in y]
    rho, low, high = correlation.spearman(*single)
    assert rho == pytest.approx(stats.spearmanr(x, y).statistic)
    assert -1 <= low <= rho <= high < 0
    assert correlation.spearman(*single) == (rho, low, high)
    # Three runs of each setting that are the same: no more is known than from one, so the interval is no narrower.
    tripled = [[value] * 3 for value in x], [[value] * 3 for value in y]
    assert correlation.spearman(*tripled) == pytest.approx((rho, low, high), abs=1e-9)


def test_kappa_and_accuracy_with_and_without_saturated_settings(tmp_path):
    events = {name: probes(10.0 ** (6 - value[0] / 10), 0.9, 0.0) for name, value in GAINS.items()}
    events["identity λ = 10"] = probes(1.01, 0.02, 0.99)
    more = {f"identity λ = {lam}": [44.0 + lam, 45.0 + lam, 43.0 + lam] for lam in (0.1, 0.3, 1, 3)}
    events |= {name: probes(10.0 ** (6 - value[0] / 10), 0.9, 0.0) for name, value in more.items()}
    source = study(tmp_path, GAINS | more, events)
    found = Study(source, "reduced")
    assert [point.saturated for point in correlation.points(found)] == [False, False, True, *[False] * 6]
    told = {(cells[0].text, cells[1].text, cells[2].text): text(cells)[3:] for cells in correlation.table(found).rows}
    assert told["κ(W + C), start", "not saturated", "8 settings"][0] == "-1.00"
    assert float(told["κ(W + C), start", "all", "9 settings"][0]) > -1
    assert -1 < float(told["κ(W + C), start", "not saturated", "24 runs"][0]) < 0  # seeds 0 to 2, κ the same, top-1 not
    said = text(answers.of_kappa(found))
    assert any(one.startswith("κ(W + C), start, not saturated: Spearman's ρ -1.00") and "better" in one for one in said)
    assert said[-1].startswith("Not corrected for how many there are: about 0.5 of 10 would be decided by chance"), said
    differences, against_kappa = chapter.pictures(source)
    assert len(differences.runs) == len(against_kappa.runs) == 25 + 12
    for picture in (differences, against_kappa):
        assert all(path.stat().st_size > 1000 for path in picture.write(tmp_path))
        assert f"figures/{picture.name}.svg" in chapter.blocks(source)["evidence"]


def test_readings_are_said_by_name_and_beside_svd(tmp_path):
    more = {"identity λ = 3": [40.0, 41.1, 38.9], "relative λ = 1": [45.0, 46.5, 43.4], "svd on v": [47.5, 48.6, 46.4],
            "svd, start only": [48.1, 49.0, 47.0]}  # fmt: skip
    found = Study(study(tmp_path, GAINS | more), "reduced")
    said = text(answers.readings(found))
    assert said[0].startswith("Identity λ = 3 changes top-1 by -5.00 points against the baseline (95 % interval -5.25")
    assert [sentence.split("): ")[-1] for sentence in said] == [
        "worse.",
        "undecided.",
        "better.",
        "better.",
        "worse.",
        "equal for practical purposes, within 1 point.",
    ]
    assert said[2].startswith("Svd on v changes top-1 by +2.50 points against the baseline")
    assert said[4].startswith("Svd on v changes top-1 by -0.50 points against the theorem's correction (svd)")


def test_nothing_run_is_said_and_without_data_nothing_begins(tmp_path, capsys):
    source = Source(results(tmp_path))
    assert "No run of the study" in chapter.blocks(source)["evidence"]
    assert "not been run to its end" in chapter.first_screen(source, "results/")
    assert main([f"data_root={tmp_path}", f"output_root={tmp_path / 'out'}"]) == USAGE
    assert capsys.readouterr().err.startswith("error: ")
    assert not (tmp_path / "out").exists()
