"""The nine tasks: every file's peculiarity, the metrics by hand and degenerate, fine-tuning, predictions."""

import json

import numpy
import pyarrow
import pyarrow.parquet
import pytest
import torch
from language import MODEL, RUNTIME, books, build, config_of, pretraining, trained

import specattn
from scripts import check_data, glue_finetune
from specattn.models import crammed_bert
from train import checkpoint
from train.command import main
from train.compose import distinguishing, options, resolve
from train.data.corpus import wordpiece
from train.data.glue import metrics, reading
from train.data.glue.features import Features
from train.data.glue.tables import AVERAGED, TABLES
from train.data.presence import lacking
from train.distributed import Place, join
from train.errors import USAGE, UserError
from train.folder import run_folder
from train.schema_language import Glue as Options
from train.tasks.glue import Glue

pytestmark = pytest.mark.filterwarnings("ignore:.*is not defined.*:UserWarning")

WORDS = ["the", "tom", "sees", "a", "lamp", "near", "slowly", "and", "she", "he", "runs", "old", "quiet"]
HEADERS = {
    "cola": None,
    "sst2": "sentence\tlabel",
    "mrpc": "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
    "stsb": "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
    "qqp": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
    "mnli": "index\tpromptID\tpairID\tgenre\ts1_parse\ts2_parse\tsentence1\tsentence2\tlabel1\tgold_label",
    "qnli": "index\tquestion\tsentence\tlabel",
    "rte": "index\tsentence1\tsentence2\tlabel",
    "wnli": "index\tsentence1\tsentence2\tlabel",
}
TEST_HEADERS = {
    "cola": "index\tsentence",
    "sst2": "index\tsentence",
    "mrpc": "index\t#1 ID\t#2 ID\t#1 String\t#2 String",
    "stsb": HEADERS["stsb"].removesuffix("\tscore"),
    "qqp": "id\tquestion1\tquestion2",
    "mnli": "index\tpromptID\tpairID\tgenre\ts1_parse\ts2_parse\tsentence1\tsentence2",
    "qnli": "index\tquestion\tsentence",
    "rte": "index\tsentence1\tsentence2",
    "wnli": "index\tsentence1\tsentence2",
}


def text_of(draw):
    return '"' + " ".join(draw.choice(WORDS, 5)) + " '\" n/a"


def row(name, header, number, draw, label):
    known = {"index": number, "id": number, "qid1": "n/a", "year": "n/a", "label1": "n/a"}
    if header is None:
        return f"gj04\t{label}\t\t{text_of(draw)}"
    cells = []
    for column in header.split("\t"):
        if column == TABLES[name].label:
            cells.append(str(label))
        elif column in TABLES[name].columns:
            cells.append(text_of(draw))
        else:
            cells.append(str(known.get(column, "none")))
    return "\t".join(cells)


def labels_of(name, count):
    kinds = TABLES[name].labels or ("0.000", "2.5", "5.000")
    return [kinds[i % len(kinds)] for i in range(count)]


def write_task(root, name, train=24, dev=9):
    """A task in the GLUE download's layout."""
    table, draw = TABLES[name], numpy.random.default_rng(0)
    folder = root / "glue" / table.folder
    folder.mkdir(parents=True)
    mark = "\ufeff" if name == "mrpc" else ""
    for split, count in (("train", train), *((split, dev) for split in table.dev.values())):
        lines = [row(name, HEADERS[name], i, draw, label) for i, label in enumerate(labels_of(name, count))]
        head = [] if HEADERS[name] is None else [HEADERS[name]]
        (folder / f"{split}.tsv").write_text(mark + "\n".join([*head, *lines]) + "\n")
    for split in table.tests.values():
        lines = [row(name, TEST_HEADERS[name], i, draw, "") for i in range(5)]
        (folder / f"{split}.tsv").write_text("\n".join([TEST_HEADERS[name], *lines]))  # no end of line at the end


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """All nine tasks, and a pre-training with and without conditioning."""
    folder = tmp_path_factory.mktemp("glue")
    for name in TABLES:
        write_task(folder, name)
    books(folder / "text")
    for conditioning, tag in (("off", "baseline"), ("svd", "svd-lam1")):
        words = pretraining(folder, "schedule.steps=4", "evaluate.steps=4", f"conditioning={conditioning}")
        trained(words, folder / "outputs/reduced/glue_pretrain" / tag / "seed0")
    return folder


def finetuning(root, name, *words):
    return [
        f"experiment=reduced/glue_{name}",
        *MODEL,
        *RUNTIME,
        f"data_root={root}",
        f"output_root={root / 'outputs'}",
        "dataset.rows=null",
        "dataset.train_size=null",
        "dataset.length=16",
        "batch_size=8",
        "schedule.epochs=1",
        *words,
    ]


def read(root, name, split="train", **more):
    asked = Options(**{"name": name, "classes": TABLES[name].classes} | more)
    return reading.read(asked, TABLES[name], str(root), split)


@pytest.mark.parametrize("name", TABLES)
def test_every_file_is_read_with_its_peculiarities(root, name):
    table = TABLES[name]
    for split in ("train", *table.dev.values()):
        rows = read(root, name, split)
        assert len(rows) == (24 if split == "train" else 9)
        kinds = list(range(len(table.labels))) or [0.0, 2.5, 5.0]
        assert rows.labels[:6] == [kinds[i % len(kinds)] for i in range(6)]
        assert all(text.startswith('"') and text.endswith("'\" n/a") for text in rows.first)
        assert (rows.second is None) == (len(table.columns) == 1)
    for split in table.tests.values():
        rows = read(root, name, split)
        assert rows.labels is None
        assert rows.index == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("name", TABLES)
def test_parquet_as_the_hub_has_it_holds_what_the_files_hold(root, name, tmp_path):
    table = TABLES[name]
    folder = tmp_path / "glue" / name
    folder.mkdir(parents=True)
    for split in ("train", *table.dev.values(), *table.tests.values()):
        rows = read(root, name, split)
        columns = dict(zip(table.hub or table.columns, (rows.first, rows.second), strict=False))
        labels = [-1] * len(rows) if rows.labels is None else rows.labels
        content = pyarrow.table({**columns, "label": labels, "idx": list(range(len(rows)))})
        pyarrow.parquet.write_table(content, folder / f"{table.shards(split)}-00000-of-00001.parquet")
    for split in ("train", *table.dev.values(), *table.tests.values()):
        one, other = read(root, name, split), read(tmp_path, name, split, layout="parquet")
        assert (one.first, one.second, one.labels) == (other.first, other.second, other.labels)
    (folder / "train-00000-of-00001.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match="train-00000"):
        read(tmp_path, name, layout="parquet")


def test_what_is_wrong_with_a_file_is_named(root, tmp_path, capsys):
    write_task(tmp_path, "rte")
    path = tmp_path / "glue" / "RTE" / "train.tsv"
    whole = path.read_text()
    lines = whole.split("\n")
    for content, said in (
        (whole[:-30], "line 25: .*cut short"),
        ("\n".join([*lines[:4], "", *lines[4:]]), "line 5"),
        (whole.replace("not_entailment", "maybe"), "'maybe', not one of entailment, not_entailment"),
        (whole.replace("sentence2", "other", 1), "no column sentence2"),
        (lines[0] + "\n", "holds no rows"),
        ("", "no column"),
    ):
        path.write_text(content)
        with pytest.raises(UserError, match=f"train.tsv.*{said}|train.tsv.*{said}"):
            read(tmp_path, "rte")
    path.write_bytes(b"\xff\xfe" + whole.encode())
    with pytest.raises(UserError, match="not UTF-8"):
        read(tmp_path, "rte")
    path.write_text("\n".join(lines[:20]))
    with pytest.raises(UserError, match="19 rows, the published file 2490"):
        reading.check_rows(read(tmp_path, "rte"), 2490)
    path.write_text(whole.replace("\tnot_entailment", "\tn/a", 1))
    assert len(read(tmp_path, "rte")) == 23
    assert "1 without a label" in capsys.readouterr().err
    write_task(tmp_path, "qqp")
    with open(tmp_path / "glue" / "QQP" / "train.tsv", "a") as file:
        file.write("99\t1\tis broken\n")
    assert len(read(tmp_path, "qqp")) == 24
    assert "1 rows that lack columns" in capsys.readouterr().err


# Of six rows: true positives 2, false positives 1, false negatives 1, true negatives 2.
LABELS, PREDICTIONS = numpy.array([1, 1, 1, 0, 0, 0]), numpy.array([1, 1, 0, 1, 0, 0])


def test_metrics_by_hand():
    assert metrics.accuracy(LABELS, PREDICTIONS) == pytest.approx(4 / 6)
    assert metrics.f1(LABELS, PREDICTIONS) == pytest.approx(2 * 2 / (2 * 2 + 1 + 1))
    assert metrics.mcc(LABELS, PREDICTIONS) == pytest.approx((2 * 2 - 1 * 1) / (3 * 3 * 3 * 3) ** 0.5)
    # Deviations (-1, 0, 1) and (-2, 1, 1): 3 / sqrt(2 · 6); ranks 1, 2.5, 2.5 against 1, 2, 3.
    labels, scores = numpy.array([1.0, 2.0, 3.0]), numpy.array([0.0, 3.0, 3.0])
    assert metrics.pearson(labels, scores) == pytest.approx(3 / 12**0.5)
    assert metrics.spearman(labels, scores) == pytest.approx(1.5 / (2 * 1.5) ** 0.5)
    assert metrics.report("f1", LABELS, PREDICTIONS) == pytest.approx({"f1": 100 * 4 / 6, "accuracy": 100 * 4 / 6})


@pytest.mark.filterwarnings("default")
def test_metrics_of_degenerate_predictions_are_defined_and_warn():
    zeros, ones = numpy.zeros(6), numpy.ones(6)
    for compute, labels, predictions in (
        (metrics.mcc, LABELS, zeros),
        (metrics.mcc, LABELS, ones),
        (metrics.f1, LABELS, zeros),
        (metrics.f1, zeros, zeros),
        (metrics.pearson, LABELS.astype(float), ones),
        (metrics.spearman, LABELS.astype(float), ones),
        (metrics.pearson, ones, LABELS.astype(float)),
        (metrics.pearson, ones[:1], ones[:1]),
    ):
        with pytest.warns(UserWarning, match="taken as 0"):
            assert compute(labels, predictions) == 0
    assert metrics.f1(LABELS, ones) == pytest.approx(2 * 3 / (2 * 3 + 3))
    assert metrics.majority("accuracy", LABELS, numpy.array([1, 0, 0, 0])) in (25, 75)
    assert metrics.majority("f1", ones, LABELS) == pytest.approx(100 * 6 / 9)
    assert metrics.majority("mcc", LABELS, LABELS) == 0


def test_the_average_is_over_nine_numbers():
    assert sum(len(TABLES[name].dev) for name in AVERAGED) == 9
    assert "wnli" not in AVERAGED


def test_batches_are_padded_and_shortened():
    tokenizer = wordpiece.trained(["the old lamp sees tom"] * 5, 200)
    rows = reading.Rows(None, ["tom", "the old lamp"], ["the lamp " * 20, "tom"], [1, 0], ["0", "1"])
    features = Features(rows, tokenizer, 16, False)
    tokens, labels = features.batch([0, 1])
    assert tokens.shape == (2, 16)
    assert labels.tolist() == [1, 0]
    assert tokenizer.decode(tokens[0].tolist(), skip_special_tokens=False).startswith("<cls> tom <sep> the lamp")
    assert tokens[0, -1] == wordpiece.SEP
    assert (tokens[1, 7:] == wordpiece.PAD).all()
    assert features.batch([1])[0].shape == (1, 8)


@pytest.mark.parametrize("name", TABLES)
def test_each_task_fine_tunes_and_predicts(root, name, tmp_path):
    run = trained(finetuning(root, name), tmp_path / "run")
    table = TABLES[name]
    assert run.task.primary == table.metric
    assert run.length.steps == 3
    for suffix in table.dev:
        assert {table.metric + suffix, "majority" + suffix, "loss" + suffix} <= run.metrics.keys()
    run.task.write_test_predictions(run.model.eval(), tmp_path)
    for server in table.tests:
        lines = (tmp_path / f"{server}.tsv").read_text().splitlines()
        assert lines[0] == "index\tprediction"
        assert [line.split("\t")[0] for line in lines[1:]] == ["0", "1", "2", "3", "4"]
        answers = [line.split("\t")[1] for line in lines[1:]]
        assert all(answer in table.labels if table.labels else 0 <= float(answer) <= 5 for answer in answers)


def test_the_command_line_fine_tunes_and_evaluates_the_last_epoch(root, tmp_path, capsys):
    words = finetuning(root, "cola", "schedule.epochs=2", "optimizer.lr=1e-2")
    assert main(words) == 0
    folder = run_folder(resolve(words), distinguishing(words))
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["step"] == 6
    capsys.readouterr()
    assert main([*words, "mode=evaluate", f"predictions={tmp_path}"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["step"] == 6
    assert {key: found[key] for key in summary["metrics"]} == summary["metrics"]
    assert len((tmp_path / "CoLA.tsv").read_text().splitlines()) == 6


def test_fine_tuning_begins_with_w_and_the_same_c(root, tmp_path):
    """The encoder's states are those of the pre-trained model, correction and all; the classifier is fresh."""
    run = build(finetuning(root, "rte", "conditioning=svd", "model.dropout=0"), tmp_path)
    state = checkpoint.load(run.task.pretrained.path)
    words = pretraining(root, "schedule.steps=4", "conditioning=svd")
    before = build(words, tmp_path / "before").model
    before.load_state_dict(state["model"])
    tokens = torch.randint(7, 200, (2, 16))
    torch.testing.assert_close(run.model.encoder(tokens, False), before.encoder(tokens, False), rtol=0, atol=0)
    for name, correction in specattn.corrections(before).items():
        assert torch.equal(specattn.corrections(run.model)[name].dense(), correction.dense())
    scratch = build(finetuning(root, "rte", "conditioning=svd", "task.scratch=true"), tmp_path / "scratch")
    assert not torch.equal(scratch.model.encoder.embedding.weight, run.model.encoder.embedding.weight)


def test_an_export_is_fine_tuned_without_conditioning(root, tmp_path):
    run = build(finetuning(root, "rte", "conditioning=svd"), tmp_path / "run")
    state = checkpoint.load(run.task.pretrained.path)
    model = build(pretraining(root, "schedule.steps=4", "conditioning=svd"), tmp_path / "before").model
    model.load_state_dict(state["model"])
    tokens = torch.randint(7, 200, (2, 16))
    expected = model.eval()(tokens)
    crammed_bert.save(specattn.fold(model), tmp_path / "export")
    (tmp_path / "export" / "tokenizer.json").write_text(state["task"]["tokenizer"])
    torch.testing.assert_close(crammed_bert.load(tmp_path / "export").eval()(tokens), expected, rtol=1e-4, atol=1e-4)
    words = finetuning(root, "rte", f"task.pretrained={tmp_path / 'export'}")
    fine = build(words, tmp_path / "fine")
    assert torch.equal(fine.model.encoder.blocks[0].attn.qkv.weight, model.encoder.blocks[0].attn.qkv.weight)
    with pytest.raises(UserError, match="conditioning=off"):
        build([*words, "conditioning=svd"], tmp_path / "refused")


def test_what_cannot_be_fine_tuned_is_one_line(root, tmp_path, capsys):
    newest = sorted((root / "outputs/reduced/glue_pretrain/baseline/seed0").glob("checkpoint-*.pt"))[-1]
    other = tmp_path / "other"
    write_task(other, "cola")
    for word, said in (
        ("task.pretrained_seed=7", "seed7 is not there: run it first"),
        (
            "task.pretrained=run:reduced/glue_pretrain,dataset=text_made",
            "baseline,dataset=text_made/seed0 is not there",
        ),
        ("task.pretrained=/nowhere.pt", "task.pretrained=/nowhere.pt"),
        (f"data_root={other}", "glue/RTE lacks train.tsv"),
    ):
        assert said in lacking(config_of(finetuning(root, "rte", word)))
    for word, said in (
        (f"task.pretrained={newest}", "conditioning.lam: 0.0 there, 1.0 asked"),
        ("model.depth=3", "model.depth: 2 there, 3 asked"),
        ("dataset.rows=[2490,277]", "24 rows, the published file 2490"),
        ("dataset.train_size=25", "there are 24 rows"),
        ("dataset.length=17", "16 positions"),
        ("dataset.classes=3", "rte has 2"),
    ):
        with pytest.raises(UserError, match=said):
            Glue(config_of(finetuning(root, "rte", "conditioning=svd", word)), join("cpu"))
    for words, said in (
        (finetuning(root, "rte", "conditioning=identity"), "is not there: run it first"),
        (finetuning(root, "rtee"), "did you mean 'reduced/glue_rte'"),
    ):
        assert main(words) == USAGE, words
        lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1
        assert said in lines[0]
    assert glue_finetune.main(["--tasks", "colla"]) == USAGE
    assert "did you mean 'cola'" in capsys.readouterr().err
    words = ["--scale", "reduced", f"data_root={tmp_path}", f"output_root={root / 'outputs'}"]
    assert glue_finetune.main(words) == USAGE
    assert "no task of GLUE is there" in capsys.readouterr().err
    words = ["--scale", "reduced", f"data_root={root}", f"output_root={root / 'outputs'}"]
    given = [f"data_root={root}", *words[:2], words[-1], "--tasks", "rte", "--pretraining", "dataset=text_made"]
    assert glue_finetune.main([*given, "dataset.rows=null"]) == USAGE
    assert "run it first (experiment=reduced/glue_pretrain dataset=text_made" in capsys.readouterr().err
    assert glue_finetune.main([*words, "--tasks", "rte", "--lam", "3"]) == USAGE
    assert "run it first" in capsys.readouterr().err


def test_two_devices_see_the_same_dev_set(root, monkeypatch):
    config = config_of(finetuning(root, "mrpc"))
    alone = Glue(config, join("cpu"))
    model = build(finetuning(root, "mrpc"), root / "two").model.eval()
    whole = alone.outputs(model, alone.dev[""])
    parts = []
    for rank in range(2):
        task = Glue(config, Place(rank, 2, torch.device("cpu")))
        monkeypatch.setattr("train.tasks.glue.gathered", lambda rows, place: rows)
        parts.append(task.outputs(model, task.dev[""]))
    together = torch.empty_like(whole)
    together[0::2], together[1::2] = parts
    torch.testing.assert_close(together, whole, rtol=1e-5, atol=1e-6)


def test_the_recipe_is_glue_sane():
    for name in TABLES:
        config = resolve([f"experiment=paper/glue_{name}"])
        assert (config.schedule.epochs, config.schedule.warmup_epochs, config.batch_size) == (5, 0.5, 16)
        assert config.optimizer.lr == 4e-5
        assert list(config.optimizer.betas) == [0.9, 0.98]
        assert (config.optimizer.eps, config.optimizer.weight_decay, config.optimizer.clip_grad) == (1e-6, 0, None)
        assert (config.model.dropout, config.model.width, config.dataset.length) == (0.1, 768, 128)
        assert config.dataset.classes == TABLES[name].classes
        assert f"reduced/glue_{name}" in options("experiment")


def test_the_files_of_the_data_root(data_root):
    for name, counts in {"cola": (8551, 1043), "sst2": (67349, 872), "mrpc": (3668, 408), "rte": (2490, 277)}.items():
        if (data_root / "glue" / TABLES[name].folder).is_dir():
            assert (len(read(data_root, name)), len(read(data_root, name, "dev"))) == counts
    if (data_root / "glue" / "CoLA").is_dir():
        rows = read(data_root, "cola")
        assert rows.first[0].startswith("Our friends won't buy")
        assert len(read(data_root, "cola", "test")) == 1063


def test_check_data_needs_no_pre_training_and_reads_every_file(root, tmp_path, capsys, monkeypatch):
    write_task(tmp_path, "rte")
    words = ["check_data", "glue-rte", f"data_root={tmp_path}"]
    monkeypatch.setattr("sys.argv", words)
    assert check_data.main() == 1
    assert "problem: train holds 24 rows, the published file 2,490" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", [*words, "dataset.rows=null"])
    assert check_data.main() == 0
    assert "sound; every file was read" in capsys.readouterr().out
    (tmp_path / "glue/RTE/dev.tsv").write_text("index\tsentence1\n0\tx\n")
    assert check_data.main() == USAGE
    assert capsys.readouterr().err.count("\n") == 1
    text = [f"data_root={root}", f"dataset.folder={root / 'text'}", "dataset.files=*.txt"]
    monkeypatch.setattr("sys.argv", ["check_data", "glue-pretrain-legacy", *text])
    assert check_data.main() == 0
    assert "files of text" in capsys.readouterr().out
