"""Records: valid JSON, whole files, no path or name of the machine, and what W&B holds is what they hold."""

import getpass
import json
import os
import shlex
import signal
import socket
import threading
import time
from pathlib import Path

import pytest
from wandb.proto import wandb_internal_pb2

import train.loop
from train.command import main
from train.compose import distinguishing, resolve
from train.distributed import join
from train.errors import RESUME, UserError, WriteError
from train.folder import run_folder
from train.mirror import Mirror, numbers, run_id
from train.record import Record
from train.record_files import finite, plain_config, read_metrics, scrubbed, write


def folder_of(words):
    return run_folder(resolve(words), distinguishing(words))


def test_no_file_of_a_record_names_the_machine(tiny):
    assert main([*tiny, f"data_root={Path.home()}/data", "runtime.wandb=offline"]) == 0
    folder = folder_of(tiny)
    names = {socket.gethostname(), str(Path.home()), str(folder.parents[3])}
    if getpass.getuser() != "root":  # a word that versions and options may hold
        names.add(getpass.getuser())
    written = [path for path in folder.iterdir() if path.suffix in (".yaml", ".json", ".jsonl")]
    assert len(written) == 4
    for path in written:
        for name in names:
            assert name not in path.read_text(), (path.name, name)
    assert "data_root: ${DATA_ROOT}" in (folder / "config.yaml").read_text()


def test_the_environment_says_what_ran(tiny):
    assert main(tiny) == 0
    [session] = json.loads((folder_of(tiny) / "environment.json").read_text())["sessions"]
    assert session["from_step"] == 0
    assert session["versions"]["torch"].startswith("2.")
    assert session["git"] is None or len(session["git"]["commit"]) == 40
    assert session["deterministic"] is True


def test_errors_lose_their_paths(tmp_path):
    config = resolve(["experiment=reduced/digits_vit", f"data_root={tmp_path}/data", f"output_root={tmp_path}/out"])
    text = scrubbed(f"no {tmp_path}/data/x, no {tmp_path}/out/y, no {Path.home()}/z", config)
    assert text == "no ${DATA_ROOT}/x, no ${OUTPUT_ROOT}/y, no ~/z"


def test_what_json_has_no_word_for_becomes_null():
    assert finite({"a": [float("inf"), 1.5], "b": {"c": float("nan")}}) == {"a": [None, 1.5], "b": {"c": None}}


def test_a_line_cut_short_ends_the_metrics(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n{"ste')
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 1}, {"step": 2}]


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    write(tmp_path / "a.json", "old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError, match="No space"):
        write(tmp_path / "a.json", "new")
    assert (tmp_path / "a.json").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def log_records(content):
    """The records of a LevelDB log: after W&B's header of 7 bytes, blocks of 32 KiB that hold checksum (4),
    length (2), kind (1: whole, 2: first, 3: middle, 4: last part) and data."""
    position, parts = 7, b""
    while position + 7 <= len(content):
        if (rest := 32768 - position % 32768) < 7:
            position += rest
            continue
        length, kind = int.from_bytes(content[position + 4 : position + 6], "little"), content[position + 6]
        parts += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):
            yield parts
            parts = b""


def read_back(folder):
    """Config and history of an offline W&B record."""
    [log] = folder.glob("wandb/offline-run-*/run-*.wandb")
    return read_log(log)


def read_log(log):
    """Config, history and run ids of one W&B log file."""
    config, history, ids = {}, [], set()
    for data in log_records(log.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        for item in record.run.config.update:
            config[item.key] = json.loads(item.value_json)
        if record.run.run_id:
            ids.add(record.run.run_id)
        if record.HasField("history"):
            names = ["/".join(item.nested_key) or item.key for item in record.history.item]
            history.append({n: json.loads(i.value_json) for n, i in zip(names, record.history.item, strict=True)})
    return config, history, ids


def test_the_offline_wandb_record_holds_the_config_and_every_metric(tiny):
    words = [*tiny, "conditioning=svd", "probe.steps=6", "runtime.wandb=offline"]
    assert main(words) == 0
    folder = folder_of(words)
    config, history, ids = read_back(folder)
    assert ids == {run_id(folder)}
    for key, value in plain_config(resolve(words)).items():
        assert config[key] == value
    events = read_metrics(folder / "metrics.jsonl")
    assert len(events) == len(history)
    for event, line in zip(events, history, strict=True):
        assert line["global_step"] == event["step"]
        for name, value in numbers(event).items():
            assert line[name] == value
    assert any(name.startswith("spectra/blocks.0.attn.q/") for line in history for name in line)


def test_wandb_failing_is_said_once_and_stops_nothing(tiny, monkeypatch, capsys):
    def fail(**_):
        raise OSError("no space left")

    monkeypatch.setattr("wandb.init", fail)
    words = [*tiny, "runtime.wandb=offline"]
    assert main(words) == 0
    assert json.loads((folder_of(words) / "summary.json").read_text())["status"] == "complete"
    assert capsys.readouterr().err.count("no space left") == 1


def test_wandb_hanging_is_left_behind(tiny, monkeypatch, tmp_path):
    monkeypatch.setattr("wandb.init", lambda **_: threading.Event().wait(5))
    monkeypatch.setattr("train.mirror.PATIENCE", {"offline": 0.2})
    mirror = Mirror(tmp_path, resolve([*tiny, "runtime.wandb=offline"]))
    mirror.log({"step": 1, "event": "train", "loss": 1.0})
    assert mirror.close() is False


def test_only_the_first_rank_writes(tiny, tmp_path):
    config = resolve(tiny)
    place = join("cpu")
    other = Record(tmp_path, config, type(place)(1, 2, place.device))
    other.begin(0, "fp32")
    other.log("train", 1, loss=1.0)
    other.summary("complete")
    assert list(tmp_path.iterdir()) == []


def test_a_resumed_run_is_the_same_wandb_run_in_several_folders(tiny, monkeypatch, capsys):
    words = [*tiny, "ema.decay=0.9", "runtime.wandb=offline"]
    update = train.loop.update_ema

    def update_then_signal(ema, model, done):
        update(ema, model, done)
        if done == 5:
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr("train.loop.update_ema", update_then_signal)
        assert main(words) == RESUME
    time.sleep(1.1)  # W&B names its folders by the second
    assert main(words) == 0
    folder = folder_of(words)
    logs = sorted(folder.glob("wandb/offline-run-*/run-*.wandb"))
    assert [log.name for log in logs] == [f"run-{run_id(folder)}.wandb"] * 2
    steps = [line["global_step"] for log in logs for line in read_log(log)[1]]
    assert steps == sorted(steps)
    assert sorted(set(steps)) == sorted({event["step"] for event in read_metrics(folder / "metrics.jsonl")})
    assert f"wandb sync {shlex.quote(str(folder))}/wandb/offline-run-*" in capsys.readouterr().err


def test_the_environment_tells_a_resume_that_is_not_bit_identical(tiny):
    config = resolve(tiny)
    place = join("cpu")
    record = Record(folder_of(tiny), config, place)
    record.folder.mkdir(parents=True)
    for step, precision in ((0, "fp32"), (4, "fp32"), (8, "bf16"), (9, "bf16")):
        record.begin(step, precision)
    sessions = json.loads((record.folder / "environment.json").read_text())["sessions"]
    assert [(s["from_step"], s["bit_identical"], s["changed"]) for s in sessions] == [
        (0, True, []),
        (4, True, []),
        (8, False, ["precision"]),
        (9, False, []),  # what was not exact once is not exact again
    ]
    (record.folder / "environment.json").write_text("{")
    with pytest.raises(UserError, match=r"environment\.json is damaged"):
        record.begin(10, "bf16")
