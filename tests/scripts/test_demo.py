"""The demo's table, sentence and picture are made from the records, whatever these say."""

import json

import pytest

from scripts import demo
from scripts.records import by_tag, complete
from tests.scripts.recorded import told


@pytest.fixture
def records(tmp_path):
    """Made-up runs: identity loses clearly, svd gains too little to tell."""
    for tag, values in {
        "baseline": [90.0, 91.0, 92.0],
        "identity-lam10": [40.0, 41.5, 41.0],
        "svd-lam1": [90.5, 90.0, 93.0],
    }.items():
        for seed, value in enumerate(values):
            folder = tmp_path / demo.EXPERIMENT / tag / f"seed{seed}"
            folder.mkdir(parents=True)
            summary = told(demo.EXPERIMENT, seed, metrics={"top1": value})
            (folder / "summary.json").write_text(json.dumps(summary))
            kappa = {"baseline": None, "identity-lam10": 1.5, "svd-lam1": 2.0}[tag]
            events = [{"step": 0, "event": "evaluate", "top1": 10.0}, {"step": 5, "event": "evaluate", "top1": value}]
            events += [
                {
                    "step": step,
                    "event": "spectra",
                    "weights": [
                        {"projection": p, "kappa_conditioned": kappa, "sigma_min_conditioned": 1.0} for p in "qkv"
                    ],
                }
                for step in (0, 5)
            ]
            (folder / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return by_tag(complete(tmp_path, demo.EXPERIMENT))


def test_the_sentence_says_what_the_numbers_say(records):
    said = demo.sentence(records)
    assert "identity, λ = 10 lost 50.2 points and" in said
    assert "svd, λ = 1 gained 0.2 points, which 3 seeds do not tell from zero" in said
    assert "not the paper's scale" in said


def test_the_table_has_means_intervals_and_kappas(records):
    lines = demo.table(records).splitlines()
    assert "91.00 ± 1.00" in lines[2]
    assert "inf → inf" in lines[2]
    assert "-50.17 (" in lines[3]
    assert "1.5 → 1.5" in lines[3]


def test_a_run_that_did_not_end_is_left_out(records, tmp_path):
    path = tmp_path / demo.EXPERIMENT / "baseline" / "seed2" / "summary.json"
    path.write_text(json.dumps(told(demo.EXPERIMENT, 2, "failed")))
    assert sorted(by_tag(complete(tmp_path, demo.EXPERIMENT))["baseline"]) == [0, 1]


def test_the_picture_is_drawn(records, tmp_path):
    demo.draw(records, tmp_path / "demo.png")
    assert (tmp_path / "demo.png").read_bytes()[:4] == b"\x89PNG"
