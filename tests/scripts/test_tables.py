"""The tables are made from the records, whatever these say; what is not there is said, and no scale enters another."""

import json

import pytest
from scipy import stats

from scripts.entry import ran
from scripts.tables import __main__ as command
from scripts.tables import coco, imagenet, long_range
from scripts.tables.pages import files, pages
from scripts.tables.settings import Source
from scripts.tables.settings import command as make_command
from scripts.tables.writers import markdown
from tests.scripts.recorded import ACCURACIES, lines, record, results, row, said
from train.errors import UserError


@pytest.fixture
def source(tmp_path):
    return Source(results(tmp_path))


def test_a_reduced_run_is_in_no_paper_table(source):
    row(source.results)
    made = files(pages(source))
    for name, text in made.items():
        assert ("51.00" in text or ",51.0," in text) == name.startswith(
            ("imagenet_reduced", "ablation_lambda_reduced", "ablation_layernorm_reduced")
        ), name
    assert "not run" in made["imagenet.md"]
    assert "80.7 ± 0.41" in made["imagenet.md"]
    assert not any("80.7" in text for name, text in made.items() if "_reduced" in name)


def test_a_paper_run_stands_beside_the_papers_value_and_not_in_the_reduced_table(source):
    row(source.results, "paper/imagenet_vit")
    paper, reduced = lines(imagenet.page(source, "paper")), lines(imagenet.page(source, "reduced"))
    assert [(one["paper"], one["mean"], one["state"]) for one in paper[:3]] == [
        ("80.7", "51.0", "run"),
        ("81.7", str(round(62.5 / 3, 8)), "run"),
        ("", str(round(153.5 / 3, 8)), "run"),
    ]
    assert {one["state"] for one in [*paper[3:], *reduced]} == {"not run"}


def test_a_record_in_the_folder_of_another_scale_is_refused(source):
    moved = record(source.results, "reduced/imagenet_vit", "baseline", 0)
    target = source.records / "paper" / "imagenet_vit" / "baseline" / "seed0"
    target.parent.mkdir(parents=True)
    moved.rename(target)
    with pytest.raises(UserError, match=r"lies under paper/imagenet_vit, its .* says reduced/imagenet_vit"):
        imagenet.page(source, "paper")


def test_a_record_under_another_setting_or_seed_is_refused(source):
    """Else svd's numbers would stand as identity's, and two records of one seed would become one."""
    home = "reduced/imagenet_vit/svd-lam1/seed0"
    made = record(source.results, "reduced/imagenet_vit", "identity-lam10", 0) / "summary.json"
    summary = json.loads(made.read_text())
    made.write_text(json.dumps(summary | {"folder": home}))
    with pytest.raises(UserError, match=f"identity-lam10/seed0: its summary.json says {home}"):
        imagenet.page(source, "reduced")
    made.write_text(json.dumps(summary | {"seed": 1}))
    with pytest.raises(UserError, match=r"identity-lam10/seed0: .*, seed 1: move it back"):
        imagenet.page(source, "reduced")


def test_a_shortened_paper_run_is_not_the_papers_row(source):
    record(source.results, "paper/imagenet_vit", "baseline,schedule.epochs=1", 0, 12.0)
    page = imagenet.page(source, "paper")
    assert {one["state"] for one in lines(page)} == {"not run"}
    assert "ViT-B has other records, in no line here: baseline, λ = 0, schedule.epochs = 1." in said(page)


def test_means_differences_and_their_interval_are_scipys(source):
    row(source.results)
    base, _, svd = lines(imagenet.page(source, "reduced"))[:3]
    reference = stats.ttest_rel(ACCURACIES["svd-lam1"], ACCURACIES["baseline"])
    low, high = reference.confidence_interval(0.95)
    assert float(svd["difference"]) == pytest.approx(1 / 6)
    assert (float(svd["low"]), float(svd["high"])) == pytest.approx((low, high))
    assert (float(base["mean"]), float(base["std"])) == pytest.approx((51, stats.tstd(ACCURACIES["baseline"])))
    assert (svd["seeds"], svd["which seeds"], svd["pairs"]) == ("3", "0 1 2", "3")
    text = markdown(imagenet.page(source, "reduced"))
    assert "95 % interval (paired t)" in text
    assert "[51.00 ± 1.00](../runs/reduced/imagenet_vit/baseline)" in text
    assert "[2](../runs/reduced/imagenet_vit/svd-lam1/seed2/summary.json)" in text
    assert "Identity, λ = 10: loses on ViT (-30.17)" in said(imagenet.page(source, "reduced"))
    assert "Svd, λ = 1: is not told from no change on ViT (+0.17)" in said(imagenet.page(source, "reduced"))


def test_a_failed_seed_is_named_and_never_averaged(source):
    values = {"baseline": [50.0, 51.0, 52.0], "svd-lam1": [51.0, 53.0]}
    row(source.results, accuracies=values)
    failed = {"status": "failed", "error": "RuntimeError: a|b", "metrics": {"top1": 99.0}}
    record(source.results, "reduced/imagenet_vit", "svd-lam1", 2, **failed)
    page = imagenet.page(source, "reduced")
    svd = lines(page)[2]
    low, high = stats.ttest_rel([51, 53], [50, 51]).confidence_interval(0.95)
    assert (svd["mean"], svd["seeds"], svd["pairs"]) == ("52.0", "2", "2")
    assert (float(svd["low"]), float(svd["high"])) == pytest.approx((low, high))
    assert "ViT, svd, λ = 1, seed 2 is in no mean: failed: RuntimeError: a|b." in said(page)
    assert "/svd-lam1/seed2/summary.json" in markdown(page)


def test_unequal_seeds_pair_where_both_ran(source):
    for seed, value in {0: 50.0, 1: 51.0, 2: 52.0, 5: 10.0}.items():
        record(source.results, "reduced/imagenet_vit", "baseline", seed, value)
    for seed, value in {1: 52.0, 2: 54.0, 7: 90.0}.items():
        record(source.results, "reduced/imagenet_vit", "svd-lam1", seed, value)
    page = imagenet.page(source, "reduced")
    svd = lines(page)[2]
    assert (svd["difference"], svd["pairs"], svd["seeds"]) == ("1.5", "2", "3")
    assert "(2 shared seeds)" in markdown(page)


def test_one_seed_has_no_spread_and_decides_nothing(source):
    row(source.results, accuracies={"baseline": [50.0], "svd-lam1": [60.0]})
    page = imagenet.page(source, "reduced")
    svd = lines(page)[2]
    assert (svd["mean"], svd["std"], svd["difference"], svd["low"], svd["pairs"]) == ("60.0", "", "10.0", "", "1")
    assert "one seed: none" in markdown(page)
    assert "is not told from no change on ViT (+10.00)" in said(page)


def test_no_shared_seed_and_a_number_that_is_not_finite(source):
    record(source.results, "reduced/imagenet_vit", "baseline", 0, 50.0)
    record(source.results, "reduced/imagenet_vit", "svd-lam1", 1, 60.0)
    record(source.results, "reduced/imagenet_vit", "svd-lam1", 2, metrics={"top1": None})
    page = imagenet.page(source, "reduced")
    assert lines(page)[2]["mean"] == "60.0"
    assert "no baseline of these seeds and settings" in markdown(page)
    assert "seed 2 is in no mean: its number is not finite" in said(page)


def test_the_linear_classifier_is_compared_where_it_was_measured(source):
    row(source.results, "reduced/imagenet_deit")
    row(source.results, "reduced/imagenet_xcit")
    (source.results / "linear_cifar10.json").write_text(json.dumps({"top1": 45.0}))
    page = imagenet.page(source, "reduced")
    assert "A linear classifier on the same pixels reaches 45.0 %" in said(page)
    assert "DeiT's baseline is to reach that: it does (+6.0 points)" in said(page)
    assert "XCiT's baseline is to beat that by 10 points: it DOES NOT (+6.0 points)" in said(page)
    assert "3 runs" not in page.provenance.text
    assert page.provenance.text.startswith("18 runs on a CPU, 1 thread; commits 0123456789 (+")


def test_long_range_says_which_baselines_learn(source):
    for name, value in (("listops", 40.0), ("text", 50.5)):
        metrics = {"test_accuracy": value, "test_count": 1000, "test_majority": 50.0 if name == "text" else 20.0}
        config = {"dataset": {"padded_length": 2048}}
        record(source.results, f"reduced/lra_{name}", "baseline", 0, metrics=metrics, primary="test_accuracy",
               config=config)  # fmt: skip
    page = long_range.page(source, "reduced")
    assert "The baseline learns at this scale: ListOps (40.0 % beside 20.0 %), every seed clear" in said(page)
    assert "The baseline does not clearly learn at this scale: Text (50.5 % beside 50.0 %)" in said(page)
    assert (lines(page)[0]["majority"], lines(page)[0]["tokens"], lines(page)[0]["steps"]) == ("20.0", "2048", "20")


def test_coco_has_each_precision_and_says_what_was_asked(source):
    for tag, values in {"baseline": [30.0, 31.0, 32.0], "identity-lam10": [10.0, 11.2, 12.0]}.items():
        for seed, value in enumerate(values):
            metrics = {f"ap_{kind}{size}": value for kind in ("box", "mask")
                       for size in ("", "_75", "_small", "_medium")}  # fmt: skip
            metrics |= {"ap_box_large": -1.0, "ap_mask_large": -1.0, "ap_box_50": 60.0, "ap_mask_50": 35.0}
            config = {"dataset": {"shapes": {"train": 800, "val": 150, "side": 128}}, "batch_size": 8}
            record(source.results, "reduced/coco_xcit", tag, seed, metrics=metrics, primary="ap_box", config=config)
    page = coco.page(source, "reduced")
    found = {(one["row"], one["conditioning"]): one for one in lines(page)}
    assert found["AP^b", "baseline, λ = 0"]["mean"] == "31.0"
    assert float(found["AP^m", "identity, λ = 10"]["difference"]) == pytest.approx(-19.9333333)
    assert found["AP^b, large", "baseline, λ = 0"]["state"] == "no number"
    assert "AP^b_50 is to be 50 or more: 60.0 reaches it" in said(page)
    assert "AP^m_50 is to be 40 or more: 35.0 DOES NOT reach it" in said(page)
    assert "800 drawn pictures of 128 x 128 pixels" in page.intro


@pytest.mark.parametrize(
    ("tag", "words"),
    [
        ("baseline", "make imagenet-vit SCALE=reduced SEEDS=0,1,2"),
        ("svd-lam1", "make imagenet-vit SCALE=reduced SEEDS=0,1,2 METHOD=svd"),
        ("identity-lam0.1", "make imagenet-vit SCALE=reduced SEEDS=0,1,2 LAM=0,0.1"),
        ("svd-lam2,layout=head,a.b=c", 'make imagenet-vit SCALE=reduced SEEDS=0,1,2 METHOD=svd LAM=0,2 '
                                       'ARGS="conditioning.layout=head a.b=c"'),
    ],
)  # fmt: skip
def test_a_lines_command_is_the_one_that_runs_it(tag, words):
    assert make_command("imagenet-vit", "reduced", tag) == words


@pytest.mark.parametrize("name", ["config.yaml", "environment.json"])
def test_a_damaged_record_is_one_line_and_writes_nothing(source, monkeypatch, capsys, name):
    row(source.results, accuracies={"baseline": [50.0]})
    (source.records / "reduced/imagenet_vit/baseline/seed0" / name).write_text("{")
    monkeypatch.setattr("sys.argv", ["tables", "--results", str(source.results)])
    assert ran(command.main) == 2
    assert f"seed0/{name} cannot be read (" in capsys.readouterr().err
    assert not (source.results / "tables").exists()


def test_a_folder_without_the_papers_values_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["tables", "--results", str(tmp_path / "none")])
    assert ran(command.main) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_command_writes_every_table_and_names_what_it_does_not_make(source, monkeypatch, capsys):
    row(source.results)
    (source.results / "tables").mkdir()
    (source.results / "tables" / "old.md").write_text("x")
    monkeypatch.setattr("sys.argv", ["tables", "--results", str(source.results)])
    assert command.main() == 0
    assert "old.md is made by nothing" in capsys.readouterr().err
    written = {path.name: path.read_text() for path in (source.results / "tables").iterdir()}
    assert written.pop("old.md") == "x"  # it may be somebody's
    assert written == files(pages(source))
    assert {name.split(".")[1] for name in written} == {"md", "csv", "tex"}
    assert {"imagenet.md", "coco.md", "lra.md", "glue.md", "cost.md"} <= set(written)
