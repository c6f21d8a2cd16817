"""What the tests of the generators share: small settings, running one, and reading what it made."""

import importlib
import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

from conftest import REPOSITORY

from scripts.generators.work import command

SHORT = ["--min-length", "50", "--max-length", "150", "--max-depth", "6"]
LISTOPS = ["make_listops", *SHORT, "--train", "500", "--val", "30", "--test", "30"]
PATHFINDER = ["make_pathfinder", "--images", "50", "--batch", "20"]
RETRIEVAL = ["make_retrieval", "--train", "300", "--eval", "20", "--test", "20"]


def arguments(words: list[str], out: Path, processes: int = 1) -> list[str]:
    return [sys.executable, "-m", f"scripts.{words[0]}", *words[1:], f"--out={out}", f"--processes={processes}"]


def generate(words: list[str], out: Path, processes: int = 1) -> subprocess.CompletedProcess:
    """A generator's command; that of one process runs in this one, which saves its start."""
    called = arguments(words, out, processes)
    if processes > 1:
        return subprocess.run(called, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
    said, complained = io.StringIO(), io.StringIO()
    with mock.patch.object(sys, "argv", called[2:]), redirect_stdout(said), redirect_stderr(complained):
        status = command(importlib.import_module(f"scripts.{words[0]}").main)
    return subprocess.CompletedProcess(called, status, said.getvalue(), complained.getvalue())


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def manifest(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())


def rows(folder: Path, split: str) -> list[list[str]]:
    return [line.split("\t") for line in (folder / f"basic_{split}.tsv").read_text().splitlines()[1:]]


def made_of(root: Path, *generators: list[str]) -> dict[str, Path]:
    """One small folder of each kind, made by one process."""
    for words in generators:
        done = generate(words, root / words[0])
        assert done.returncode == 0, done.stderr
    return {words[0]: root / words[0] for words in generators}
