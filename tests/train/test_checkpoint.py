"""Checkpoints: whole or absent, unable to run code, and damage is always seen."""

import builtins
import errno
import hashlib
import os
import pickle
import random

import pytest
import torch

from train import checkpoint
from train.errors import UserError, WriteError


def state(step):
    generator = torch.Generator().manual_seed(step)
    return {"step": step, "model": {"w": torch.randn(40, 40, generator=generator)}, "best": {"top1": 3.5}}


def saved(folder, *steps):
    return [checkpoint.save(folder, step, state(step)) for step in steps]


def test_what_is_saved_is_loaded(tmp_path):
    saved(tmp_path, 3)
    path, found, damaged = checkpoint.newest(tmp_path)
    assert path == tmp_path / "checkpoint-000000003.pt"
    assert not damaged
    assert found["step"] == 3
    assert torch.equal(found["model"]["w"], state(3)["model"]["w"])


def test_the_newest_two_and_the_best_are_kept(tmp_path):
    for step in range(1, 6):
        [path] = saved(tmp_path, step)
        if step == 2:
            checkpoint.keep_best(tmp_path, path)
    assert [path.name for path in checkpoint.checkpoints(tmp_path)] == [
        "checkpoint-000000004.pt",
        "checkpoint-000000005.pt",
    ]
    assert checkpoint.load(tmp_path / "best.pt")["step"] == 2
    listed = (tmp_path / "best.pt.sha256").read_text().split()
    assert listed == [hashlib.sha256((tmp_path / "best.pt").read_bytes()).hexdigest(), "best.pt"]
    assert len(list(tmp_path.iterdir())) == 6  # each with its hash, nothing temporary


class Exploit:
    """Unpickling this creates a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def corruptions(content, marker):
    """A hundred ways to damage a file: cut, zeroed, flipped, and replaced by pickles that would run code."""
    draw = random.Random(0)
    for _ in range(30):
        yield content[: draw.randrange(len(content))]
    for _ in range(30):
        start = draw.randrange(len(content))
        length = draw.randrange(1, 200)
        zeroed = content[:start] + bytes(len(content[start : start + length])) + content[start + length :]
        yield zeroed if zeroed != content else content[:-1]
    for _ in range(36):
        position = draw.randrange(len(content))
        yield content[:position] + bytes([content[position] ^ (1 << draw.randrange(8))]) + content[position + 1 :]
    yield b""
    yield pickle.dumps(Exploit(marker))
    yield pickle.dumps({"step": Exploit(marker)}, protocol=0)
    yield content + content


def test_a_hundred_corruptions_are_seen_and_the_one_before_is_used(tmp_path):
    before, newest = saved(tmp_path, 1, 2)
    content, marker = newest.read_bytes(), str(tmp_path / "code-ran")
    count = 0
    for damaged in corruptions(content, marker):
        newest.write_bytes(damaged)
        path, found, reasons = checkpoint.newest(tmp_path)
        assert path == before
        assert found["step"] == 1
        assert torch.equal(found["model"]["w"], state(1)["model"]["w"])
        assert list(reasons) == [newest]
        assert "\n" not in reasons[newest]
        assert str(newest) in reasons[newest]
        count += 1
    assert count == 100
    assert not os.path.exists(marker)
    assert before.exists()


def test_a_pickle_with_the_right_hash_still_runs_no_code(tmp_path):
    """Whoever can write the checkpoint can write its hash: weights_only is what keeps code out."""
    [path] = saved(tmp_path, 1)
    marker = tmp_path / "code-ran"
    for payload in ({"step": Exploit(str(marker))}, Exploit(str(marker))):
        checkpoint._write(path, checkpoint._encoded(payload))
        with pytest.raises(UserError, match="is not a checkpoint"):
            checkpoint.load(path)
    assert not marker.exists()


@pytest.mark.parametrize("harm", ["missing", "empty", "binary", "other"])
def test_a_damaged_hash_is_damage(tmp_path, harm):
    saved(tmp_path, 1, 2)
    hashes = tmp_path / "checkpoint-000000002.pt.sha256"
    if harm == "missing":
        hashes.unlink()
    else:
        hashes.write_bytes({"empty": b"", "binary": b"\xff\xfe\x00", "other": b"0" * 64}[harm])
    assert checkpoint.newest(tmp_path)[1]["step"] == 1


def test_where_none_is_sound_nothing_is_started_over(tmp_path):
    for path in saved(tmp_path, 1, 2):
        path.write_bytes(b"")
    with pytest.raises(UserError, match="no other is sound"):
        checkpoint.newest(tmp_path)


def test_set_aside_keeps_the_damaged_file_out_of_the_way(tmp_path):
    _, newest = saved(tmp_path, 1, 2)
    checkpoint.set_aside(newest)
    assert [path.name for path in checkpoint.checkpoints(tmp_path)] == ["checkpoint-000000001.pt"]
    assert (tmp_path / "checkpoint-000000002.pt.damaged").exists()


@pytest.mark.parametrize("failing", ["write", "fsync"])
def test_a_full_disk_is_one_line_and_the_old_checkpoint_stays(tmp_path, monkeypatch, failing):
    saved(tmp_path, 1)
    before = sorted(path.name for path in tmp_path.iterdir())

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    if failing == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    else:
        original = builtins.open
        monkeypatch.setattr(
            builtins, "open", lambda path, *mode: full() if str(path).endswith(".tmp") else original(path, *mode)
        )
    with pytest.raises(WriteError, match=r"No space left on device; the earlier checkpoint is untouched"):
        checkpoint.save(tmp_path, 2, state(2))
    monkeypatch.undo()
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert checkpoint.newest(tmp_path)[1]["step"] == 1


def test_a_file_that_cannot_be_read_is_not_taken_for_a_damaged_one(tmp_path, monkeypatch):
    saved(tmp_path, 1, 2)

    def refuse(self):
        raise OSError(errno.EIO, "Input/output error", str(self))

    monkeypatch.setattr("pathlib.Path.read_bytes", refuse)
    with pytest.raises(UserError, match=r"000000002\.pt cannot be read: Input/output error"):
        checkpoint.newest(tmp_path)


@pytest.mark.parametrize("content", [[1], {"step": 1}, {"model": {}}])
def test_a_sound_file_of_something_else_is_refused(tmp_path, content):
    [path] = saved(tmp_path, 1)
    checkpoint._write(path, checkpoint._encoded(content))
    with pytest.raises(UserError, match="not the checkpoint of a run"):
        checkpoint.load(path)


def test_what_a_killed_writer_left_is_removed(tmp_path):
    saved(tmp_path, 1)
    (tmp_path / ".checkpoint-000000002.pt.tmp").write_bytes(b"half")
    checkpoint.clean(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
