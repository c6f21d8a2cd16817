"""A damaged file among the records is one line that names it and what is wrong, never a traceback."""

import json

import pytest

from scripts import shape
from scripts.records import Recorded, every
from scripts.tables.settings import Source
from tests.scripts.recorded import record, results
from train.errors import UserError

EXPERIMENT = "reduced/imagenet_vit"


@pytest.fixture
def folder(tmp_path):
    """results/ with one run."""
    made = results(tmp_path)
    record(made, EXPERIMENT, "baseline", 0)
    return made


def changed(folder, name, change):
    """Change a JSON file of the run; returns the run's folder."""
    run = folder / "runs" / EXPERIMENT / "baseline" / "seed0"
    content = json.loads((run / name).read_text())
    change(content)
    (run / name).write_text(json.dumps(content))
    return run


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s.pop("seed"), "seed is missing"),
        (lambda s: s.pop("metrics"), "metrics is missing"),
        (lambda s: s.update(metrics=[1]), "metrics is no mapping"),
        (lambda s: s.update(metrics={"top5": 3.0}), "metrics.top1 is missing"),
        (lambda s: s["metrics"].update(top1=float("nan")), "metrics.top1 is not finite"),
        (lambda s: s["metrics"].update(top1="50"), "metrics.top1 is str, not int or float or NoneType"),
        (lambda s: s["metrics"].update(top1=True), "metrics.top1 is true or false"),
        (lambda s: s.update(row=None), "row is no mapping"),
        (lambda s: s.update(status=7), "status is int, not str"),
    ],
)
def test_a_damaged_summary_is_named(folder, change, said):
    changed(folder, "summary.json", change)
    with pytest.raises(UserError, match=f"baseline/seed0/summary.json is damaged: {said}"):
        every(folder / "runs", EXPERIMENT)


def test_a_metric_that_was_not_finite_is_no_damage(folder):
    changed(folder, "summary.json", lambda s: s["metrics"].update(top1=None))
    assert every(folder / "runs", EXPERIMENT)[0].value is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda e: e.update(sessions={}), "sessions is no list"),
        (lambda e: e["sessions"][0].pop("versions"), r"sessions\[0\].versions is missing"),
        (lambda e: e["sessions"][0].update(git="abc"), r"sessions\[0\].git is no mapping"),
    ],
)
def test_a_damaged_environment_is_named(folder, change, said):
    changed(folder, "environment.json", change)
    (run,) = every(folder / "runs", EXPERIMENT)
    with pytest.raises(UserError, match=f"environment.json is damaged: {said}"):
        _ = run.sessions


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[1]", "the file is no mapping"),
        ('{"step": 1}', "event is missing"),
        ('{"step": "x", "event": "train", "loss": 1}', "step is str"),
        ('{"step": 1, "event": "train"}', "loss is missing"),
        (
            '{"step": 1, "event": "spectra", "weights": [{"projection": "q"}]}',
            "weights.0..kappa_conditioned is missing",
        ),
        ('{"step": 1, "event": "jacobian", "layers": [{"kappa_nonzero": "2"}]}', "layers.0..kappa_nonzero is str"),
        ('{"step": 1, "event": "attention", "layers": [{"entropy": 1}]}', "layers.0..saturated_rows is missing"),
    ],
)
def test_a_damaged_event_is_named_with_its_line(folder, line, said):
    (run,) = every(folder / "runs", EXPERIMENT)
    with open(run.folder / "metrics.jsonl", "a") as file:
        file.write(line + "\n")
    with pytest.raises(UserError, match=f"metrics.jsonl:2 is damaged: {said}"):
        run.events(json.loads(line)["event"] if "event" in line else "train")


def test_a_folder_that_is_no_seed_is_named(folder):
    run = folder / "runs" / EXPERIMENT / "baseline" / "seed0"
    run.rename(run.with_name("seed0-old"))
    with pytest.raises(UserError, match="seed0-old is no run's folder"):
        every(folder / "runs", EXPERIMENT)


@pytest.mark.parametrize("content", [b"[]", b"{", b"\xff\xfe", b'{"rows": [{"name": "plain"}], "environment": {}}'])
def test_a_damaged_measurement_is_named(folder, content):
    (folder / "cost.json").write_bytes(content)
    with pytest.raises(UserError, match=r"cost\.json (is damaged|cannot be read)"):
        Source(folder).json("cost.json", shape.COST)


@pytest.mark.parametrize("content", ["- 1", "a: {rows: 3}", "a: [", "imagenet: {rows: {imagenet-vit: {name: ViT}}}"])
def test_damaged_values_of_the_paper_are_named(folder, content):
    (folder / "paper.yaml").write_text(content)
    with pytest.raises(UserError, match=r"paper\.yaml (is damaged|cannot be read)"):
        Source(folder).paper("imagenet")


@pytest.mark.parametrize(
    ("experiment", "lacking"), [("reduced/coco_xcit", "ap_box"), ("reduced/lra_text", "test_accuracy")]
)
def test_what_a_table_reads_is_asked_of_its_records(folder, experiment, lacking):
    run = record(folder, experiment, "baseline", 0)
    with pytest.raises(UserError, match=f"{experiment}/baseline/seed0/summary.json is damaged: metrics.{lacking}"):
        every(folder / "runs", experiment)
    (run / "config.yaml").write_text("seed: 1\n")
    with pytest.raises(UserError, match=r"config\.yaml is damaged: dataset is missing"):
        _ = Recorded(run, json.loads((run / "summary.json").read_text())).config
