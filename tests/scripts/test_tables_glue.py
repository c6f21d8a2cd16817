"""The GLUE table, from records written by hand."""

import csv
import io

import pytest

from scripts.tables import glue
from scripts.tables.settings import Source
from scripts.tables.writers import csv_text, markdown
from tests.scripts.recorded import record, results


@pytest.fixture
def source(tmp_path):
    source = Source(results(tmp_path))
    for tag, mcc, matched in (
        ("baseline", (10, 30, 20), (60, 61, 62)),
        ("svd-lam1", (40, 62, 50), (61, 60, 63)),
        ("baseline,task.scratch=True", (0, 1, 2), (50, 51, 52)),
    ):
        for seed in range(3):
            metrics = {"mcc": mcc[seed], "majority": 0.0}
            record(source.results, "reduced/glue_cola", tag, seed, metrics=metrics, primary="mcc")
            mnli = {"accuracy": matched[seed], "accuracy_mm": 70, "majority": 35.4, "majority_mm": 35.2}
            record(source.results, "reduced/glue_mnli", tag, seed, metrics=mnli, primary="accuracy")
    loss = {"loss": 5.0, "unigram_entropy": 6.0, "gain": 1.0, "accuracy": 20.0}
    record(source.results, "reduced/glue_pretrain", "baseline", 0, metrics=loss, primary="gain", step=100,
           tokens=2_000_000)  # fmt: skip
    return source


def test_medians_spreads_majorities_and_averages(source):
    page = glue.page(source, "reduced")
    found = {(one["row"], one["conditioning"]): one for one in csv.DictReader(io.StringIO(csv_text(page.tables[0])))}
    cola = found["CoLA", "svd, λ = 1"]
    assert (cola["median"], cola["least"], cola["greatest"], cola["majority class"]) == ("50", "40", "62", "0.0")
    assert found["MNLI-mm", "baseline, λ = 0"]["mean"] == "70.0"
    assert found["SST-2", "baseline, λ = 0"]["state"] == "not run"
    # Seed by seed: (10 + 60 + 70) / 3, (30 + 61 + 70) / 3, (20 + 62 + 70) / 3; the recipe averages medians.
    mean = found["average of 3 numbers", "baseline, λ = 0"]
    assert float(mean["mean"]) == pytest.approx((140 + 161 + 152) / 9)
    assert float(mean["median"]) == pytest.approx((20 + 61 + 70) / 3)
    changed = found["average of 3 numbers", "svd, λ = 1"]
    assert float(changed["difference"]) == pytest.approx(((171 + 192 + 183) - (140 + 161 + 152)) / 9)


def test_pretraining_and_its_control(source):
    page = glue.page(source, "reduced")
    text = markdown(page)
    at = "../runs/reduced/glue_pretrain/baseline/seed0/summary.json"
    assert f"| 100 | 2.0 M | [5.000]({at}) | [6.000]({at}) | [+1.000]({at}) | [20.0 %]({at}) | 12 |" in text
    said = "\n".join(note.text for note in page.notes)
    assert "Pre-training, against the same network without it: gains on MNLI (+10.00)" in said
    assert "3 of them are here" in page.intro
    assert "other records" not in said


def test_a_setting_that_answers_like_the_majority_class_is_named(source):
    assert "tells of no learning" not in "\n".join(note.text for note in glue.page(source, "reduced").notes)
    for tag, accuracy in (("baseline", 60.0), ("identity-lam10", 53.0)):
        metrics = {"accuracy": accuracy, "majority": 52.7}
        record(source.results, "reduced/glue_rte", tag, 0, metrics=metrics, primary="accuracy")
    [said] = [note.text for note in glue.page(source, "reduced").notes if "tells of no learning" in note.text]
    assert said.endswith(": RTE, identity, λ = 10 (53.0 beside 52.7).")


def test_an_average_over_other_tasks_is_not_beside_the_papers(tmp_path):
    source = Source(results(tmp_path))
    metrics = {"mcc": 40.0, "majority": 0.0}
    record(source.results, "paper/glue_cola", "baseline", 0, metrics=metrics, primary="mcc")
    found = list(csv.DictReader(io.StringIO(csv_text(glue.page(source, "paper").tables[0]))))
    assert [one["paper"] for one in found if one["row"] == "average of 1 numbers"] == [""]
    assert next(one["paper"] for one in found if one["row"] == "CoLA") == "48.9"
    assert "78.6" not in markdown(glue.page(source, "paper"))
