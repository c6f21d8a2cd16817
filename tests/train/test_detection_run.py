"""Detection through the shared loop: resumed runs end bit-identical, and what a run leaves can be evaluated."""

import json
import signal

import pytest
import torch
from conftest import command_line
from detection_sets import WORDS, mixed_set

import train.loop
from train import checkpoint
from train.command import main
from train.compose import distinguishing, resolve
from train.errors import RESUME
from train.folder import run_folder
from train.record_files import read_metrics

pytest.importorskip("mmdet", reason="needs mmdet: make test installs it (openmmlab.txt)")

SHORT = (
    "schedule.epochs=null",
    "schedule.steps=5",
    "schedule.milestones=[0.5]",
    "schedule.warmup_epochs=null",
    "schedule.warmup_steps=1",
    "evaluate.epochs=null",
    "evaluate.steps=5",
    "runtime.log_steps=1",
    "runtime.save_steps=2",
    "conditioning=svd",
)


def state_and_record(folder):
    state = checkpoint.load(checkpoint.checkpoints(folder)[-1])
    events = read_metrics(folder / "metrics.jsonl")
    for event in events:
        event.pop("timing", None)
    return state, events


def equal(one, two):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, two)
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(equal(one[key], two[key]) for key in one if key != "seconds")
    if isinstance(one, list):
        return len(one) == len(two) and all(map(equal, one, two))
    return one == two


def test_a_run_is_stopped_resumed_and_evaluated(tmp_path, monkeypatch, capsys):
    root = mixed_set(tmp_path / "data")
    crop = ("dataset.crop_sides=[48,80]", "dataset.crop=[32,56]", "dataset.short_sides=[48,64,80]")
    words = [*WORDS, *SHORT, *crop, f"data_root={root}"]
    alone, halved = ([*words, f"output_root={tmp_path / name}"] for name in ("alone", "halved"))
    assert main([*alone, "probe.steps=5", "probe.jacobian=backbone.blocks.0.attn", "probe.samples=2"]) == 0

    shown = train.loop.Progress.step

    def stopping(self, done, *rest):
        shown(self, done, *rest)
        if done == 3:
            signal.raise_signal(signal.SIGUSR1)

    monkeypatch.setattr(train.loop.Progress, "step", stopping)
    assert main(halved) == RESUME
    monkeypatch.setattr(train.loop.Progress, "step", shown)
    assert main(halved) == 0

    folders = [run_folder(resolve(asked), distinguishing(asked)) for asked in (alone, halved)]
    (one, events), (two, again) = map(state_and_record, folders)
    assert equal(one, two | {"config": one["config"]})
    probes = [event for event in events if event["event"] in ("spectra", "attention", "jacobian")]
    assert [event for event in events if event not in probes] == again
    # Probed at the start and the end, in the backbone's attention.
    assert [event["event"] for event in probes] == ["spectra", "attention", "jacobian"] * 2
    assert {layer["attention"] for layer in probes[1]["layers"]} == {f"backbone.blocks.{i}.attn" for i in range(4)}
    assert all(layer["gradient_v"] > 0 for layer in probes[1]["layers"])
    rates = [event["lr"] for event in events if event["event"] == "train"]
    lr = resolve(alone).optimizer.lr  # a warm-up of one step; half an epoch is three
    assert rates == pytest.approx([1e-6, lr, lr, lr / 10, lr / 10])

    recorded = json.loads((folders[0] / "summary.json").read_text())
    assert recorded["primary"] == "ap_box"
    assert recorded["metrics"]["photos"] == 5
    capsys.readouterr()
    asked = ["mode=evaluate", f"predictions={tmp_path / 'found.json'}", "per_class=true"]
    assert main([*alone, *asked]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {key: found[key] for key in recorded["metrics"]} == recorded["metrics"]
    assert set(found["per_class"]) == {"left", "right"}
    boxes = json.loads((tmp_path / "found.bbox.json").read_text())
    assert (
        len(boxes) == recorded["metrics"]["detections"] == len(json.loads((tmp_path / "found.segm.json").read_text()))
    )


def test_a_dry_run_says_what_it_would_be(tmp_path, capsys):
    root = mixed_set(tmp_path / "data")
    words = [*WORDS, *SHORT, f"data_root={root}", f"output_root={tmp_path / 'out'}", "runtime.dry=true"]
    assert main(words) == 0
    line = capsys.readouterr().out.splitlines()[1]
    assert "svd-lam1" in line
    assert line.endswith("found")
    assert main([*words, "dataset=shapes", "dataset.classes=3"]) == 0
    assert "python -m scripts.make_shapes --into" in capsys.readouterr().out


def test_two_processes_train_and_evaluate_together(tmp_path):
    """Each evaluates its share; the record holds the whole."""
    root = mixed_set(tmp_path / "data")
    short = ("schedule.steps=2", "evaluate.steps=2", "runtime.devices=2")
    words = [*WORDS, *SHORT, *short, f"data_root={root}", f"output_root={tmp_path / 'out'}"]
    shown = command_line(*words)
    assert shown.returncode == 0, shown.stderr
    folder = run_folder(resolve(words), distinguishing(words))
    found = json.loads((folder / "summary.json").read_text())["metrics"]
    assert found["photos"] == 5
    capture = json.loads(command_line(*words, "runtime.devices=1", "mode=evaluate").stdout)
    assert {key: capture[key] for key in found} == found
