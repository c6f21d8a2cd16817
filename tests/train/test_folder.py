"""The run folder's name, its lock, and what may not change in it."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from train.compose import distinguishing, resolve
from train.errors import UserError
from train.folder import LONGEST, check_unchanged, check_writable, lock, run_folder, tag
from train.record_files import plain_config

DIGITS = "experiment=reduced/digits_vit"


def folder_of(*words):
    words = [DIGITS, "output_root=/runs", *words]
    return run_folder(resolve(words), distinguishing(words))


@pytest.mark.parametrize(
    ("words", "path"),
    [
        ([], "baseline/seed0"),
        (["conditioning=svd", "conditioning.lam=0", "seed=3"], "baseline/seed3"),
        (["conditioning=identity"], "identity-lam10/seed0"),
        (["conditioning=identity", "conditioning.lam=0.1"], "identity-lam0.1/seed0"),
        (["conditioning=identity", "conditioning.lam=10.0000001"], "identity-lam10.0000001/seed0"),
        (
            ["conditioning=svd", "conditioning.targets=qk", "conditioning.when=init"],
            "svd-lam1,targets=qk,when=init/seed0",
        ),
        (["optimizer.lr=0.5", "runtime.devices=2"], "baseline,optimizer.lr=0.5/seed0"),
    ],
)
def test_the_name_is_what_was_asked(words, path):
    assert str(folder_of(*words)) == f"/runs/reduced/digits_vit/{path}"


def test_names_that_are_cut_or_cleaned_stay_distinct_and_inside():
    long = [[f"model.args.k{i}=aaaaaaaaaa" for i in range(30)] + [f"model.args.last={n}"] for n in (1, 2)]
    odd = [["conditioning=svd", f"conditioning.modules={name}"] for name in ("'a/../b'", "'a_.._b'")]
    folders = [folder_of(*words) for words in long + odd]
    assert len(set(folders)) == 4
    for folder in folders:
        assert ".." not in folder.parts
        assert len(folder.parent.name) < LONGEST + 20


def test_the_tag_writes_numbers_shortly():
    assert tag(resolve([DIGITS, "conditioning=identity", "conditioning.lam=1e-3"])) == "identity-lam0.001"


def test_a_changed_config_is_refused_by_key(tmp_path):
    config = resolve([DIGITS])
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(plain_config(config)))
    check_unchanged(tmp_path, resolve([DIGITS, "runtime.workers=1", "data_root=/elsewhere"]))
    with pytest.raises(UserError, match=r"optimizer\.lr: 0\.002 there, 0\.5 asked"):
        check_unchanged(tmp_path, resolve([DIGITS, "optimizer.lr=0.5"]))
    (tmp_path / "config.yaml").write_text("{")
    with pytest.raises(UserError, match="damaged"):
        check_unchanged(tmp_path, config)


def test_a_second_process_is_kept_out(tmp_path):
    code = f"from pathlib import Path; from train.folder import lock; lock(Path({str(tmp_path)!r}))"
    with lock(tmp_path):
        second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert "another process is running" in second.stderr
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_output_folder_that_cannot_be_made_is_refused_before_anything_is(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file" / "runs", Path("/dev/null/runs")):
        with pytest.raises(UserError, match="cannot write below"):
            check_writable(folder)
    with pytest.raises(UserError, match="cannot make /proc/nothing"):  # where root may write, but nothing can be made
        lock(Path("/proc/nothing"))
    check_writable(tmp_path / "a" / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
