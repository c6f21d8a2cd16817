"""Pre-training: masks, the ramp, the weighting, budgets of steps and hours, exact resumes, the held-out loss."""

import itertools
import json
import math
import signal
import types

import pytest
import torch
from language import books, build, config_of, pretraining
from torch.nn import functional as F

import train.loop
from train import checkpoint
from train.command import main
from train.compose import distinguishing, resolve
from train.data.presence import lacking
from train.distributed import Place, join
from train.errors import RESUME, USAGE, UserError
from train.folder import run_folder
from train.loop import steps
from train.randomness import generator
from train.record_files import read_metrics
from train.tasks import build_model
from train.tasks.language_modeling import LanguageModeling
from train.tasks.masking import chosen_by_chance, chosen_by_count, corrupted


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder whose text is packed once for all tests that do not change it."""
    folder = tmp_path_factory.mktemp("language")
    books(folder / "text")
    return folder


def task(words, place=None):
    return LanguageModeling(config_of(words), place or join("cpu"))


def test_masks_of_the_legacy_rule():
    tokens = torch.randint(0, 300, (400, 128), generator=generator(1))
    chosen = chosen_by_chance(tokens, 0.15, 7, generator(2))
    assert not chosen[tokens < 7].any()
    assert chosen[tokens >= 7].float().mean().item() == pytest.approx(0.15, abs=0.005)
    assert len(chosen.sum(1).unique()) > 10
    seen = corrupted(tokens, chosen, 6, 300, generator(3))
    assert torch.equal(seen[~chosen], tokens[~chosen])
    count = chosen.sum().item()
    assert (seen[chosen] == 6).sum().item() / count == pytest.approx(0.8, abs=0.02)
    assert (seen[chosen] == tokens[chosen]).sum().item() / count == pytest.approx(0.1, abs=0.015)


def test_masks_of_the_current_rule():
    tokens = torch.randint(0, 300, (400, 128), generator=generator(1))
    chosen = chosen_by_count(tokens, 0.25, 7, generator(2))
    assert chosen.sum(1).tolist() == [32] * 400
    assert chosen[tokens < 7].float().mean().item() == pytest.approx(0.25, abs=0.03)


def test_the_loss_is_the_mean_over_the_masked_tokens_however_it_is_divided(root, monkeypatch):
    monkeypatch.setattr("train.tasks.language_modeling.barrier", lambda place: None)
    words = pretraining(root, "task.ramp.fraction=null", "runtime.micro_batch=16")
    whole = task(words)
    model = build(words, root / "division").model
    [batch] = next(whole.batches(0, 1))
    logits = model(batch.tokens_BN).flatten(0, 1)[batch.chosen_M]
    expected = F.cross_entropy(logits, batch.targets_M)
    assert whole.loss(model, batch).item() == pytest.approx(expected.item(), rel=1e-5)
    total = 0.0
    for rank in range(2):
        part = task(
            pretraining(root, "task.ramp.fraction=null", "runtime.micro_batch=2"), Place(rank, 2, join("cpu").device)
        )
        batches = next(part.batches(0, 1))
        assert len(batches) == 4
        total += sum(part.loss(model, each).item() for each in batches) / len(batches) / 2
    assert total == pytest.approx(expected.item(), rel=1e-5)


def test_the_batch_grows_linearly_and_the_data_is_taken_in_order(root):
    ramped = task(pretraining(root, "task.ramp.fraction=null", "task.ramp.micro_steps=10"))
    sizes, seen = [], []
    for batches in ramped.batches(0, 8):
        sizes.append(sum(len(batch.tokens_BN) for batch in batches))
        seen.append(ramped.micro_steps)
        assert ramped.seen()["tokens"] == sum(sizes) * 16
    # round(1 + 3 · micro-steps / 10) micro-batches of four, from the numbers before each step: 0, 1, 2, 4, 6, 9, ...
    assert sizes == [4, 4, 8, 8, 12, 16, 16, 16]
    assert seen == [1, 2, 4, 6, 9, 13, 17, 21]
    stream = ramped.sequences(0, 2 * len(ramped.corpus.train))
    assert torch.equal(stream[: len(ramped.corpus.train)], stream[len(ramped.corpus.train) :])
    assert stream[0].tolist() == ramped.corpus.train[0].tolist()
    shuffled = task(pretraining(root, "task.shuffle=true"))
    size = len(shuffled.corpus.train)
    passes = shuffled.sequences(0, 2 * size)
    assert not torch.equal(passes[:size], passes[size:])
    assert sorted(passes[:size].tolist()) == sorted(passes[size:].tolist()) == sorted(stream[:size].tolist())
    half = task(pretraining(root, "task.ramp.fraction=0.5"))
    found = []
    for spent in (0, 0.1, 0.25, 0.5, 1):
        half.follow(lambda spent=spent: spent)
        found.append(half.units())
    assert found == [1, 2, 2, 4, 4]


def test_the_rate_is_a_triangle_over_the_budget(root):
    run = build(pretraining(root, "schedule.steps=100", "optimizer.lr=1e-3"), root / "triangle")
    rates = [run.schedule.set(step) for step in (0, 25, 75, 90, 99)]
    assert rates == pytest.approx([0.25e-3, 0.5e-3, 1e-3, 0.4e-3, 0.04e-3])


def test_a_run_learns_and_its_record_has_both_figures(root):
    words = pretraining(root, "schedule.steps=60", "evaluate.steps=30", "optimizer.lr=1e-2", "conditioning=svd")
    assert main(words) == 0
    folder = run_folder(resolve(words), distinguishing(words))
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["primary"] == "gain"
    metrics = summary["metrics"]
    assert metrics["gain"] == pytest.approx(metrics["unigram_entropy"] - metrics["loss"])
    first = next(e for e in read_metrics(folder / "metrics.jsonl") if e["event"] == "evaluate")
    assert metrics["loss"] < first["loss"] < math.log(300)
    assert summary["tokens"] == 16 * summary["samples"] > 0
    assert all("tokens" in e for e in read_metrics(folder / "metrics.jsonl") if e["event"] == "train")
    state = checkpoint.load(checkpoint.checkpoints(folder)[-1])
    assert json.loads(state["task"]["tokenizer"])["model"]["type"] == "WordPiece"


def test_held_out_masks_are_fixed_and_all_are_seen_as_masks(root):
    one, two = task(pretraining(root, "seed=3")), task(pretraining(root))
    batch, again = one.fixed(0, 64), two.fixed(0, 64)
    assert all(torch.equal(a, b) for a, b in zip(batch[:3], again[:3], strict=True))
    assert (batch.tokens_BN.flatten()[batch.chosen_M] == 6).all()
    assert (batch.targets_M >= 7).all()


def test_a_stopped_and_resumed_run_is_the_run_left_alone(root, tmp_path, monkeypatch):
    (tmp_path / "text").symlink_to(root / "text")
    words = pretraining(tmp_path, "task.ramp.fraction=null", "task.ramp.micro_steps=20")
    assert main(words) == 0
    folder = run_folder(resolve(words), distinguishing(words))
    straight = checkpoint.load(checkpoint.checkpoints(folder)[-1])
    folder.rename(folder.with_name("straight"))
    step = train.loop.Progress.step

    def stop(self, done, *numbers):
        step(self, done, *numbers)
        if done == 5:
            signal.raise_signal(signal.SIGUSR1)

    with monkeypatch.context() as patch:
        patch.setattr(train.loop.Progress, "step", stop)
        assert main(words) == RESUME
    assert main(words) == 0
    resumed = checkpoint.load(checkpoint.checkpoints(folder)[-1])
    assert resumed["task"] == straight["task"]
    assert all(torch.equal(resumed["model"][key], straight["model"][key]) for key in straight["model"])
    environment = json.loads((folder / "environment.json").read_text())
    assert all(session["bit_identical"] for session in environment["sessions"])


def test_a_budget_of_hours_ends_by_the_clock_which_a_resume_continues(root, tmp_path, capsys, monkeypatch):
    """On a clock that advances by a hundredth of a second each time it is asked, twice a step."""
    (tmp_path / "text").symlink_to(root / "text")
    hours = 0.4 / 3600
    words = pretraining(tmp_path, "schedule.steps=null", f"schedule.hours={hours}", "evaluate.steps=1000000")
    clock = itertools.count()
    monkeypatch.setattr(train.loop, "time", types.SimpleNamespace(perf_counter=lambda: next(clock) / 100))
    assert main(words) == 0
    assert "not bit-identical" in capsys.readouterr().err
    folder = run_folder(resolve(words), distinguishing(words))
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "complete"
    assert summary["step"] == summary["steps"] == 40
    assert summary["timing"]["seconds"] == pytest.approx(0.4)
    assert "gain" in summary["metrics"]
    assert json.loads((folder / "environment.json").read_text())["sessions"][0]["bit_identical"] is False
    rates = [event["lr"] for event in read_metrics(folder / "metrics.jsonl") if event["event"] == "train"]
    triangle = [0.25 + 0.75 * step / 30 if step < 30 else (40 - step) / 10 for step in range(1, 40, 2)]
    # The clock counts in millionths of the budget, and the rate falls at four times that pace.
    assert [rate / 2e-3 for rate in rates] == pytest.approx(triangle, abs=5e-6)

    run = build(words, tmp_path / "resumed")
    state = checkpoint.load(checkpoint.checkpoints(folder)[-1])
    state["seconds"] = 0.39
    run.load(state)
    assert run.budget.spent(run) == pytest.approx(0.39 / 0.4)
    assert run.budget.open
    assert len(list(steps(run))) == 1
    assert not run.budget.open
    state["seconds"] = 0.41
    run = build(words, tmp_path / "over")
    run.load(state)
    assert list(steps(run)) == []


def test_a_run_ends_where_the_micro_batches_are_used_up(root, tmp_path):
    run = build(pretraining(root, "task.max_micro_steps=9", "task.ramp.fraction=null"), tmp_path / "cap")
    assert list(steps(run)) == [1, 2, 3]
    assert run.task.micro_steps == 12
    assert run.metrics["count"] > 0


def test_what_cannot_be_run_is_one_line(root, tmp_path, capsys):
    for word, said in (
        ("task.masking=both", "legacy, current"),
        ("schedule.warmup_steps=3", "without warm-up"),
        ("schedule.hours=1", "exactly one"),
        ("task.share=2", "task.share"),
    ):
        with pytest.raises(UserError, match=said):
            resolve(["experiment=reduced/glue_pretrain", word])
    for word, said in (("batch_size=18", "task.ramp.unit"), ("task.ramp.micro_steps=5", "task.ramp: give one")):
        with pytest.raises(UserError, match=said):
            task(pretraining(root, word))
    with pytest.raises(UserError, match="not divisible"):
        build_model(config_of(pretraining(root, "model.heads=3")))
    for word, said in ((f"dataset.folder={tmp_path / 'none'}", "text_made"), (f"corpus={tmp_path}", "make_corpus")):
        assert said in lacking(config_of(pretraining(root, f"output_root={tmp_path}", word)))
    assert main(["experiment=reduced/glue_pretrain", f"dataset.folder={tmp_path}", f"output_root={tmp_path}"]) == USAGE
    assert len([line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]) == 1


def test_text_too_large_to_be_packed_in_a_run_is_refused(root, tmp_path, monkeypatch):
    monkeypatch.setattr("train.tasks.language_modeling.MADE_IN_A_RUN", 10)
    with pytest.raises(UserError, match="make_corpus experiment=reduced/glue_pretrain"):
        task([*pretraining(root), f"output_root={tmp_path}"])


def test_the_probe_looks_at_a_language_model(root, tmp_path):
    run = build(
        pretraining(
            root, "schedule.steps=2", "probe.steps=2", "probe.jacobian=encoder.blocks.0.attn", "probe.tokens=4"
        ),
        tmp_path / "probe",
    )
    run.probe.look()
    events = {event["event"]: event for event in read_metrics(run.folder / "metrics.jsonl")}
    assert events.keys() == {"spectra", "attention", "jacobian"}
    assert events["attention"]["layers"][0]["gradient_q"] > 0
