"""The probe along training: what it records, what it warns of, and that training does not notice it."""

import torch
from conftest import TINY
from test_loop import build, folder_of, steps

from train.command import main
from train.record_files import read_metrics

FULL = ["conditioning=identity", "probe.steps=6", "probe.attention=true", "probe.jacobian='blocks.*'", "probe.tokens=5"]


def test_the_probe_records_weights_attention_and_jacobian(tiny, capsys):
    words = [*tiny, *FULL]
    assert main(words) == 0
    events = [e for e in read_metrics(folder_of(words) / "metrics.jsonl") if e["event"] not in ("train", "evaluate")]
    assert [(e["step"], e["event"]) for e in events] == [
        (step, event) for step in (0, 6, 12) for event in ("spectra", "attention", "jacobian")
    ]
    assert [layer["attention"] for layer in events[1]["layers"]] == ["blocks.0.attn", "blocks.1.attn"]
    assert [layer["rows"] for layer in events[2]["layers"]] == [40, 40]  # 5 tokens of one head of width 8
    for layer in events[2]["layers"]:
        assert {"bound", "kappa_x", "kappa_lambda", "kappa_wq", "kappa_wk", "kappa_wv", "kappa_softmax"} <= layer.keys()
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert len(said) == 1
    assert "λ = 10" in said[0]


def test_no_warning_where_nothing_saturates(tiny, capsys):
    assert main([*tiny, "conditioning=svd", "probe.steps=6", "probe.attention=true"]) == 0
    assert "warning: " not in capsys.readouterr().err


def test_training_does_not_notice_the_probe(tmp_path):
    words = [*TINY, f"output_root={tmp_path}", "model.args.proj_drop_rate=0.1"]
    watched, alone = build([*words, *FULL], tmp_path), build([*words, "conditioning=identity"], tmp_path)
    watched.probe.look()
    for run in (watched, alone):
        for _ in steps(run):
            pass
    for one, other in zip(watched.model.parameters(), alone.model.parameters(), strict=True):
        assert torch.equal(one, other)
