"""The COCO table is made from the records, whatever these say."""

import json

import pytest
import yaml

from scripts import coco_table


@pytest.fixture
def records(tmp_path):
    """Made-up runs: identity loses clearly, svd is not told from the baseline; there are no large objects."""
    given = {"baseline": [30.0, 31.0, 32.0], "identity-lam10": [10.0, 11.2, 12.0], "svd-lam1": [30.5, 30.0, 33.0]}
    for tag, numbers in given.items():
        for seed, value in enumerate(numbers):
            folder = tmp_path / coco_table.EXPERIMENT / tag / f"seed{seed}"
            folder.mkdir(parents=True)
            metrics = {metric: value + place for place, metric in enumerate(coco_table.METRICS)}
            metrics |= {f"ap_{kind}_{size}": value for kind in ("box", "mask") for size in ("small", "medium")}
            metrics |= {"ap_box_large": -1.0, "ap_mask_large": -1.0, "ap_box_50": 60.0, "ap_mask_50": 35.0}
            summary = {
                "status": "complete",
                "seed": seed,
                "primary": "ap_box",
                "metrics": metrics,
                "parameters": 1_200_000,
                "steps": 900,
                "timing": {"seconds": 240.0},
            }
            (folder / "summary.json").write_text(json.dumps(summary))
            config = {"dataset": {"shapes": {"train": 800, "val": 150, "side": 128}}, "batch_size": 8}
            (folder / "config.yaml").write_text(yaml.safe_dump(config))
            session = {"device": "cpu", "threads": 1, "git": {"commit": "0123456789ab", "dirty": False}}
            (folder / "environment.json").write_text(json.dumps({"sessions": [session]}))
    return tmp_path


def test_the_table_has_means_and_paired_differences(records):
    page = coco_table.page(records)
    assert "| baseline | 31.00 ± 1.00 | 60.00 ± 0.00 |" in page
    assert "| minus the baseline | -19.93 (-20.2 to -19.6) |" in page
    assert "| baseline | 31.00 ± 1.00 | 31.00 ± 1.00 | - | 31.00 ± 1.00 | 31.00 ± 1.00 | - |" in page
    assert "0123456789 (+" in page


def test_the_sentences_say_what_the_numbers_say(records):
    page = coco_table.page(records)
    assert "AP^b_50 is to be 50 or more: 60.0 reaches it" in page
    assert "AP^m_50 is to be 40 or more: 35.0 DOES NOT reach it" in page
    assert "identity, λ = 10: AP^b loses 19.9 points" in page
    assert "svd, λ = 1: AP^b is not told from no change (+0.2 points, 3 seeds)" in page
    assert "took 4.0 minutes" in page


def test_without_a_baseline_there_is_no_table(tmp_path):
    with pytest.raises(SystemExit, match="no complete baseline"):
        coco_table.page(tmp_path)
