"""The GLUE table, from records written by hand."""

import json

import pytest

from scripts.glue_table import page


def record(root, experiment, tag, seed, metrics, primary, **more):
    folder = root / experiment / tag / f"seed{seed}"
    folder.mkdir(parents=True)
    about = {"status": "complete", "seed": seed, "metrics": metrics, "primary": primary, "timing": {"seconds": 12.3}}
    (folder / "summary.json").write_text(json.dumps(about | more))
    session = {"device": "a CPU", "threads": 1, "git": {"commit": "0123456789abcdef", "dirty": False}}
    (folder / "environment.json").write_text(json.dumps({"sessions": [session]}))


def test_medians_spreads_majorities_and_what_they_say(tmp_path):
    for tag, mcc, matched in (
        ("baseline", (10, 30, 20), (60, 61, 62)),
        ("svd-lam1", (40, 62, 50), (61, 60, 63)),
        ("baseline,task.scratch=True", (0, 1, 2), (50, 51, 52)),
    ):
        for seed in range(3):
            record(tmp_path, "reduced/glue_cola", tag, seed, {"mcc": mcc[seed], "majority": 0.0}, "mcc")
            mnli = {"accuracy": matched[seed], "accuracy_mm": 70, "majority": 35.4, "majority_mm": 35.2}
            record(tmp_path, "reduced/glue_mnli", tag, seed, mnli, "accuracy")
    loss = {"loss": 5.0, "unigram_entropy": 6.0, "gain": 1.0, "accuracy": 20.0}
    record(tmp_path, "reduced/glue_pretrain", "baseline", 0, loss, "gain", step=100, tokens=2_000_000)
    text = page(tmp_path, "reduced")
    assert "| baseline | 100 | 2.0 M | 5.000 | 6.000 | +1.000 | 20.0 % | 12 |" in text
    assert "| CoLA | mcc | 0.0 | 20.0 (10.0 to 30.0) | 50.0 (40.0 to 62.0) | 1.0 (0.0 to 2.0) | 0, 1, 2 | 12 |" in text
    assert "| MNLI-mm | accuracy | 35.2 | 70.0 (70.0 to 70.0) |" in text
    # Medians of CoLA, MNLI and MNLI-mm: (20 + 61 + 70) / 3, (50 + 61 + 70) / 3, (1 + 51 + 70) / 3.
    assert "| mean of the 3 medians | | | 50.3 | 60.3 | 40.7 | | |" in text
    assert "Svd, λ = 1, against the baseline: gains on CoLA (+30.7); is not told from no change on MNLI (+0.3)" in text
    assert "3 of them are here" in text
    assert "commits 0123456789 " in text


def test_no_record_is_said(tmp_path):
    with pytest.raises(SystemExit, match="no complete baseline"):
        page(tmp_path, "reduced")
