"""The Long Range Arena rows: the recipe is the recipe, and the task counts every sequence once."""

import json

import pytest
import torch
from torch import nn

from train.command import main
from train.compose import resolve
from train.data.plan import shard
from train.distributed import Place, join
from train.errors import USAGE
from train.optimizer import Length, Schedule, build_optimizer, scaled_lr
from train.record_files import read_metrics
from train.tasks import build_model
from train.tasks.long_range import LongRange

ROWS = ("listops", "text", "retrieval", "image", "pathfinder")
# batch, warm-up, steps, evaluation interval, kept tokens, padded length, classes
TABLE = {
    "listops": (32, 1000, 5000, 50, 2000, 2048, 10),
    "text": (32, 8000, 20000, 500, 4000, 4096, 2),
    "retrieval": (32, 800, 30000, 300, 4000, 4096, 2),
    "image": (256, 175, 35000, 175, 1024, 1024, 10),
    "pathfinder": (256, 312, 62400, 312, 1024, 1024, 2),
}


@pytest.mark.parametrize("row", ROWS)
def test_the_recipe_is_the_authors(row):
    config = resolve([f"experiment=paper/lra_{row}"])
    data, schedule = config.dataset, config.schedule
    assert TABLE[row] == (
        config.batch_size,
        schedule.warmup_steps,
        schedule.steps,
        config.evaluate.steps,
        data.max_length,
        data.padded_length,
        data.classes,
    )
    args = config.model.args
    assert (args.dim, args.depth, args.num_heads, args.mlp_dim, args.dropout) == (64, 2, 2, 128, 0.1)
    assert (args.landmarks, args.conv_kernel, args.pinv_iterations) == (64, 35, 6)
    optimizer = build_optimizer(config, nn.Linear(2, 2))
    for group in optimizer.param_groups:
        assert (group["lr"], group["weight_decay"], group["eps"]) == (1e-4, 0, 1e-6)
    assert config.optimizer.clip_grad is None


@pytest.mark.parametrize("anneal", ["linear", "cosine"])
@pytest.mark.parametrize(("steps", "warmup"), [(5000, 1000), (62, 3), (10, 2)])
def test_the_rate_and_beta1_are_torchs_one_cycle(steps, warmup, anneal):
    words = [f"schedule.steps={steps}", f"schedule.warmup_steps={warmup}", f"schedule.anneal={anneal}"]
    config = resolve(["experiment=paper/lra_listops", *words])
    ours = torch.optim.AdamW([nn.Parameter(torch.zeros(1))], lr=scaled_lr(config))
    theirs = torch.optim.AdamW([nn.Parameter(torch.zeros(1))], lr=scaled_lr(config))
    schedule = Schedule(config, ours, Length.of(config.schedule, 100))
    torchs = torch.optim.lr_scheduler.OneCycleLR(
        theirs,
        max_lr=scaled_lr(config),
        total_steps=steps,
        pct_start=warmup / steps,
        anneal_strategy="linear" if anneal == "linear" else "cos",
    )
    for step in range(steps):
        assert schedule.set(step) == pytest.approx(theirs.param_groups[0]["lr"], rel=1e-9, abs=1e-18)
        assert ours.param_groups[0]["betas"] == pytest.approx(theirs.param_groups[0]["betas"], rel=1e-9)
        theirs.step()
        if step < steps - 1:
            torchs.step()


@pytest.fixture
def small(tmp_path):
    """The words of a run of seconds on a set of our own: the maximum of a few digits."""
    folder = tmp_path / "outputs" / "data" / "listops-short"
    folder.mkdir(parents=True)
    draw = torch.Generator().manual_seed(0)
    for split, count in (("train", 96), ("val", 21), ("test", 23)):
        rows = ["Source\tTarget"]
        for _ in range(count):
            digits = torch.randint(0, 10, (int(torch.randint(2, 8, (), generator=draw)),), generator=draw).tolist()
            tokens = ["[MAX", *map(str, digits), "]"]
            source = tokens[0]
            for token in tokens[1:]:
                source = f"( {source} {token} )"
            rows.append(f"{source}\t{max(digits)}")
        (folder / f"basic_{split}.tsv").write_text("\n".join(rows) + "\n")
    words = ["experiment=reduced/lra_listops", f"output_root={tmp_path / 'outputs'}", "batch_size=16"]
    words += ["schedule.steps=9", "schedule.warmup_steps=3", "evaluate.steps=3", "model.args.dim=16"]
    words += ["model.args.mlp_dim=16", "model.args.depth=1", "model.args.landmarks=8", "runtime.wandb=off"]
    return [*words, "runtime.device=cpu", "runtime.threads=1", "runtime.log_steps=3"]


def test_the_model_of_best_dev_accuracy_is_the_one_that_is_tested(small, tmp_path, capsys):
    assert main(small) == 0
    [path] = (tmp_path / "outputs" / "reduced").rglob("summary.json")
    summary = json.loads(path.read_text())
    assert summary["primary"] == "test_accuracy"
    events = [event for event in read_metrics(path.parent / "metrics.jsonl") if event["event"] == "evaluate"]
    best = max(events, key=lambda event: event["dev_accuracy"])  # the first of equal ones
    assert summary["best"]["step"] == best["step"]
    assert summary["metrics"]["test_accuracy"] == summary["best"]["test_accuracy"] == best["test_accuracy"]
    assert (best["dev_count"], best["test_count"]) == (21, 23)
    capsys.readouterr()
    assert main([*small, "mode=evaluate"]) == 0
    again = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert again["step"] == best["step"]
    for key in ("dev_accuracy", "test_accuracy", "test_loss", "test_majority"):
        assert again[key] == best[key]


def test_every_sequence_is_counted_once_by_any_number_of_workers(small, monkeypatch):
    config = resolve(small)
    torch.manual_seed(0)
    model = build_model(config).eval()
    alone = LongRange(config, join("cpu"))
    whole = alone.evaluate(model)
    monkeypatch.setattr("train.tasks.long_range.summed", lambda value, place: value)
    parts = []
    for rank in range(3):
        place = Place(rank, 3, torch.device("cpu"))
        # Three equal parts do not make a batch of 16.
        task = LongRange(resolve([*small, "batch_size=15"]), place)
        parts.append(task.evaluate(model))
        assert parts[-1]["dev_count"] == len(shard(21, place))
    assert sum(part["dev_correct"] for part in parts) == whole["dev_correct"]
    total = sum(part["dev_loss"] * part["dev_count"] for part in parts) / 21
    assert total == pytest.approx(whole["dev_loss"], rel=1e-6)


@pytest.mark.parametrize("conditioning", ["identity", "svd"])
def test_conditioned_rows_train_and_differ(small, tmp_path, conditioning):
    assert main([*small, f"conditioning={conditioning}", "schedule.steps=4", "evaluate.steps=4"]) == 0
    [path] = (tmp_path / "outputs" / "reduced").rglob("summary.json")
    assert json.loads(path.read_text())["tag"] == f"{conditioning}-lam{10 if conditioning == 'identity' else 1}"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("model.args.landmarks=7", "landmarks"),
        ("model.args.widht=7", "widht"),
        ("model.name=vit", "nystromformer"),
        ("model.attention_scale=2", "attention_scale"),
        ("per_class=true", "mode=evaluate"),
    ],
)
def test_mistakes_are_one_line(small, capsys, word, said):
    assert main([*small, word]) == USAGE
    shown = capsys.readouterr().err
    assert said in shown
    assert "Traceback" not in shown


def test_a_set_that_is_not_there_names_what_makes_it(tmp_path, capsys):
    assert main(["experiment=reduced/lra_listops", f"output_root={tmp_path}"]) == USAGE
    assert "python -m scripts.make_listops --min-length 9" in capsys.readouterr().err
    assert main(["experiment=paper/lra_listops", f"data_root={tmp_path}"]) == USAGE
    assert "scripts.make_listops" in capsys.readouterr().err
    assert main(["experiment=paper/lra_text", f"data_root={tmp_path}"]) == USAGE
    assert "aclImdb" in capsys.readouterr().err
