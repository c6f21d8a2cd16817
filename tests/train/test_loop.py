"""The loop: what it computes, what it records, and that stopping changes nothing."""

import json
import math
import signal
import tempfile
from pathlib import Path

import pytest
import torch
from timm.utils import ModelEmaV3

import train.loop
from train import checkpoint
from train.command import main, run
from train.compose import distinguishing, resolve
from train.distributed import join
from train.errors import DIVERGED, FAILED, RESUME, USAGE, Diverged, UserError, WriteError
from train.folder import run_folder
from train.loop import Run, steps
from train.record import Record
from train.record_files import read_metrics
from train.signals import StopFlag


def folder_of(words):
    return run_folder(resolve(words), distinguishing(words))


def losses(folder):
    return [event["loss"] for event in read_metrics(folder / "metrics.jsonl") if event["event"] == "train"]


def without_clocks(folder):
    events = read_metrics(folder / "metrics.jsonl")
    for event in events:
        event.pop("timing", None)
    return events


def build(words, tmp_path):
    config = resolve(words)
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    return Run(config, Record(folder, config, join("cpu")), join("cpu"), StopFlag())


def test_a_run_leaves_its_record_and_is_not_run_again(tiny, capsys):
    words = [*tiny, "conditioning=svd", "probe.steps=6"]
    assert main(words) == 0
    folder = folder_of(words)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "complete"
    assert summary["step"] == summary["steps"] == 12
    assert summary["tag"] == "svd-lam1"
    assert summary["metrics"]["count"] == 359
    assert summary["timing"]["samples_per_second"] > 0
    events = read_metrics(folder / "metrics.jsonl")
    assert [(e["event"], e["step"]) for e in events if e["event"] != "train"] == [
        ("spectra", 0),
        ("evaluate", 4),
        ("spectra", 6),
        ("evaluate", 8),
        ("spectra", 12),
        ("evaluate", 12),
    ]
    assert [e["step"] for e in events if e["event"] == "train"] == [3, 6, 9, 12]
    # Theorem 3.5 at the weights that C was taken from.
    assert all(record["kappa_conditioned"] <= 2 + 1e-5 for record in events[0]["weights"])
    before = (folder / "metrics.jsonl").read_bytes()
    capsys.readouterr()
    assert main(words) == 0
    assert "complete already" in capsys.readouterr().out
    assert (folder / "metrics.jsonl").read_bytes() == before


def test_lambda_zero_trains_as_if_the_library_were_not_there(tiny, monkeypatch, tmp_path):
    with_library = build([*tiny, "conditioning=svd", "conditioning.lam=0"], tmp_path)
    monkeypatch.setattr("specattn.condition", lambda model, **_: model)
    without = build(tiny, tmp_path)
    for this in (with_library, without):
        for _ in steps(this):
            pass
    one, other = with_library.model.state_dict(), without.model.state_dict()
    assert list(one) == list(other)
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_the_loop_is_the_bare_loop(tiny, tmp_path):
    """Weights after twelve steps equal those of a loop written out by hand, bit for bit."""
    ours = build([*tiny, "optimizer.clip_grad=0.5"], tmp_path)
    other = build([*tiny, "optimizer.clip_grad=0.5"], tmp_path)
    for _ in steps(ours):
        pass
    other.model.train()
    for step, ((images, labels),) in enumerate(other.task.batches(0, 12)):
        lr = 2e-3 * step / 2 if step < 2 else 2e-3 * 0.5 * (1 + math.cos(math.pi * (step - 2) / 10))
        for group in other.optimizer.param_groups:
            group["lr"] = lr
        torch.nn.functional.cross_entropy(other.model(images), labels).backward()
        torch.nn.utils.clip_grad_norm_(other.model.parameters(), 0.5)
        other.optimizer.step()
        other.optimizer.zero_grad()
    for one, two in zip(ours.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(one, two)


def test_accumulation_computes_the_same(tiny, tmp_path):
    whole, parts = build(tiny, tmp_path), build([*tiny, "runtime.micro_batch=10"], tmp_path)
    assert parts.task.data.plan.accumulation == 4
    for this in (whole, parts):
        for _ in steps(this):
            pass
    assert losses(whole.folder) == pytest.approx(losses(parts.folder), rel=1e-5)
    for one, two in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


def test_fp16_unscales_before_clipping(tiny, tmp_path):
    """The clip is above the gradient's norm and far below that of the gradient scaled by 65536, which it would cut."""
    this = build([*tiny, "runtime.precision=fp16", "optimizer.clip_grad=50", "optimizer.name=sgd"], tmp_path)
    plain = build([*tiny, "optimizer.clip_grad=50", "optimizer.name=sgd"], tmp_path)
    start = [parameter.detach().clone() for parameter in plain.model.parameters()]
    for each in (this, plain):
        for _, step in zip(range(3), steps(each), strict=False):
            assert step <= 3
    moved = torch.cat([(a - b).detach().flatten() for a, b in zip(plain.model.parameters(), start, strict=True)])
    moved16 = torch.cat([(a - b).detach().flatten() for a, b in zip(this.model.parameters(), start, strict=True)])
    assert (torch.dot(moved, moved16) / moved.norm() ** 2).item() == pytest.approx(1, abs=0.05)


def test_the_average_is_timms_and_is_what_gets_evaluated(tiny, tmp_path):
    this = build([*tiny, "ema.decay=0.5", "ema.every=2"], tmp_path)
    reference = ModelEmaV3(this.model, decay=0.5)
    for step in steps(this):
        if step % 2 == 0:
            reference.update(this.model)
    for one, two in zip(this.ema.module.parameters(), reference.module.parameters(), strict=True):
        assert torch.equal(one, two)
    this.ema.module.eval()
    assert this.metrics["correct"] == this.task.evaluate(this.ema.module)["correct"]
    assert "raw_top1" in this.metrics


@pytest.mark.parametrize("stop_at", [1, 5, 8, 11])
def test_a_stopped_and_resumed_run_is_the_run_left_alone(tiny, stop_at, monkeypatch):
    words = [*tiny, "conditioning=svd", "ema.decay=0.9", "optimizer.clip_grad=1.0", "dataset.pad=1"]
    assert main([*words, "seed=0"]) == 0
    whole = folder_of([*words, "seed=0"])
    straight, events = checkpoint.load(checkpoint.checkpoints(whole)[-1]), without_clocks(whole)
    whole.rename(whole.with_name("straight"))

    update = train.loop.update_ema

    def update_then_signal(ema, model, done):
        update(ema, model, done)
        if done == stop_at:  # in the midst of step `stop_at`: after its update, before its records
            signal.raise_signal(signal.SIGUSR1)

    with monkeypatch.context() as patch:
        patch.setattr("train.loop.update_ema", update_then_signal)
        assert main([*words, "seed=0"]) == RESUME
    assert json.loads((whole / "summary.json").read_text())["status"] == "stopped"
    assert main([*words, "seed=0"]) == 0
    resumed = checkpoint.load(checkpoint.checkpoints(whole)[-1])
    assert without_clocks(whole) == events
    assert_equal(resumed, straight)


def assert_equal(one, two, path=""):
    """Bit-identical checkpoints, the clock aside."""
    if isinstance(one, dict):
        assert one.keys() == two.keys(), path
        for key in one:
            if key != "seconds":
                assert_equal(one[key], two[key], f"{path}/{key}")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, two), path
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(two), path
        for index, pair in enumerate(zip(one, two, strict=True)):
            assert_equal(*pair, f"{path}[{index}]")
    else:
        assert one == two, path


def test_a_loss_that_is_not_finite_stops_with_step_layer_lr_and_lambda(tiny, capsys):
    words = [*tiny, "conditioning=identity", "conditioning.lam=1e30", "optimizer.lr=1.5"]
    assert main(words) == DIVERGED
    said = capsys.readouterr().err
    line = next(line for line in said.splitlines() if line.startswith("error: "))
    assert "step 1: the loss is nan" in line
    assert "layer blocks.0.attn" in line
    assert "lr " in line
    assert "λ 1e+30" in line
    assert json.loads((folder_of(words) / "summary.json").read_text())["status"] == "diverged"


def test_what_cannot_be_run_is_one_line(tiny, capsys):
    for word, names in (
        ("model.args.nonsense=1", "nonsense"),
        ("model.name=no_such_model", "no_such_model"),
        ("conditioning.modules='decoder.*'", "decoder"),
        ("optimizer.name=adamww", "adamww"),
        ("schedule.warmup_steps=50", "warm-up"),
        ("model.args.patch_size=0", "patch_size"),
        ("model=vit_small_cifar", "32 pixels"),
        ("model.args.in_chans=3", "in_chans"),
        ("batch_size=1000", "batch_size"),
    ):
        assert main([*tiny, "conditioning=identity", word]) == USAGE
        lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, word
        assert names in lines[0]


def test_evaluation_of_a_checkpoint_gives_the_recorded_metrics(tiny, capsys):
    assert main(tiny) == 0
    folder = folder_of(tiny)
    recorded = json.loads((folder / "summary.json").read_text())["metrics"]
    newest = checkpoint.checkpoints(folder)[-1]
    capsys.readouterr()
    assert main([*tiny, "mode=evaluate", f"checkpoint={newest}"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {key: found[key] for key in recorded} == recorded
    assert main([*tiny, "conditioning=identity", "mode=evaluate", f"checkpoint={newest}"]) == USAGE
    assert "does not fit" in capsys.readouterr().err
    # Their weights would fit: only the config tells them apart.
    for words in (["model.attention_scale=7"], ["conditioning=svd", "conditioning.when=init"]):
        assert main([*tiny, *words, "mode=evaluate", f"checkpoint={newest}"]) == USAGE
        assert words[-1].split("=")[0] in capsys.readouterr().err


def test_run_refuses_a_folder_of_another_config(tiny):
    assert main(tiny) == 0
    folder = folder_of(tiny)
    other = folder_of([*tiny, "optimizer.lr=0.5"])
    other.parent.mkdir(parents=True)
    folder.rename(other)
    with pytest.raises(UserError, match=r"optimizer\.lr"):
        run(resolve([*tiny, "optimizer.lr=0.5"]), [*tiny, "optimizer.lr=0.5"], StopFlag())


@pytest.mark.parametrize("save", [5, 6, 100])
def test_the_best_is_kept_wherever_saves_fall(tiny, save):
    words = [*tiny, "optimizer.lr=0.02", f"runtime.save_steps={save}"]
    assert main(words) == 0
    folder = folder_of(words)
    best = json.loads((folder / "summary.json").read_text())["best"]
    assert checkpoint.load(folder / "best.pt")["step"] == best["step"]


def test_weights_that_are_not_finite_are_never_saved_nor_called_complete(tiny, capsys):
    words = [*tiny, "schedule.steps=3", "schedule.warmup_steps=null", "optimizer.lr=1e30", "runtime.save_steps=1"]
    assert main(words) == DIVERGED
    folder = folder_of(words)
    assert json.loads((folder / "summary.json").read_text())["status"] == "diverged"
    for path in checkpoint.checkpoints(folder):
        assert all(torch.isfinite(value).all() for value in checkpoint.load(path)["model"].values())
    assert len([line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]) == 1


def test_a_weight_that_is_not_finite_is_named(tiny, tmp_path):
    this = build([*tiny, "runtime.save_steps=1"], tmp_path)
    with torch.no_grad():
        this.model.norm.bias[0] = math.inf
    this.task.loss = lambda model, batch: model.head.weight.square().sum()
    with pytest.raises(Diverged, match=r"step 1: norm\.bias is not finite"):
        next(steps(this))
    assert checkpoint.checkpoints(this.folder) == []


def test_a_gradient_that_is_not_finite_stops_before_the_update(tiny, tmp_path):
    this = build([*tiny, "optimizer.clip_grad=1.0"], tmp_path)
    before = [parameter.detach().clone() for parameter in this.model.parameters()]
    next(this.model.parameters()).register_hook(lambda gradient: gradient * math.nan)
    with pytest.raises(Diverged, match="step 1: the gradient's norm is nan"):
        next(steps(this))
    assert all(torch.equal(one, two) for one, two in zip(before, this.model.parameters(), strict=True))


def test_divergence_in_half_precision_names_the_layer(tiny, capsys):
    words = [*tiny, "runtime.precision=fp16", "conditioning=identity", "conditioning.lam=100000"]
    assert main(words) == DIVERGED
    assert "layer blocks.0.attn" in capsys.readouterr().err


def test_a_full_disk_is_one_line_and_status_1(tiny, monkeypatch, capsys):
    def full(path, text):
        raise WriteError(f"cannot write {path}: No space left on device")

    assert main([*tiny, "schedule.steps=4"]) == 0
    monkeypatch.setattr("train.record.write", full)
    monkeypatch.setattr("train.record_files.write", full)
    capsys.readouterr()
    assert main([*tiny, "schedule.steps=5"]) == FAILED
    assert len([line for line in capsys.readouterr().err.splitlines() if "No space" in line]) == 1
