"""What several tests need: the data root, one torch thread, and small runs."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

REPOSITORY = Path(__file__).resolve().parent.parent

# One line a word: a run of a few seconds on scikit-learn's digits.
TINY = [
    "experiment=reduced/digits_vit",
    "model.args.embed_dim=16",
    "model.args.depth=2",
    "model.args.num_heads=2",
    "dataset.train_size=320",
    "batch_size=32",
    "schedule.epochs=null",
    "schedule.steps=12",
    "schedule.warmup_epochs=null",
    "schedule.warmup_steps=2",
    "evaluate.epochs=null",
    "evaluate.steps=4",
    "probe.epochs=null",
    "runtime.log_steps=3",
    "runtime.wandb=off",
    "runtime.threads=1",
    "runtime.device=cpu",
]


def pytest_configure() -> None:
    torch.set_num_threads(1)
    # A shell that starts the tests in the background has them, and all that they start, ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def data_root() -> Path:
    """The folder with real data; the test is skipped, saying so, where none was named."""
    root = os.environ.get("DATA_ROOT")
    if not root:
        pytest.skip("needs data: set DATA_ROOT to the folder that holds cifar10/, imagenette/, ...")
    return Path(root)


@pytest.fixture
def tiny(tmp_path: Path) -> list[str]:
    """The words of a tiny run whose outputs lie in the test's own folder."""
    return [*TINY, f"output_root={tmp_path / 'outputs'}"]


def command_line(*words: str, **environment: str) -> subprocess.CompletedProcess:
    """`python -m train` in a process of its own, without a data root unless one is given."""
    inherited = {key: value for key, value in os.environ.items() if key != "DATA_ROOT"}
    return subprocess.run(
        [sys.executable, "-m", "train", *words],
        cwd=REPOSITORY,
        env={**inherited, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
