"""Made-up records of runs, as small as the tables need."""

import csv
import io
import json
import shutil
from pathlib import Path

import yaml

from scripts.tables.writers import csv_text
from tests.conftest import REPOSITORY

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SESSION = {
    "versions": {"torch": "2.0", "wandb": None},
    "python": "3.11.0",
    "device": "a CPU",
    "devices": 1,
    "threads": 1,
    "git": {"commit": COMMIT, "dirty": False, "diff_sha256": None},
}
ACCURACIES = {"baseline": [50.0, 51.0, 52.0], "identity-lam10": [20.0, 21.5, 21.0], "svd-lam1": [50.5, 50.0, 53.0]}


def results(root: Path) -> Path:
    """An empty results/ with the paper's values."""
    folder = root / "results"
    folder.mkdir()
    shutil.copy(REPOSITORY / "results" / "paper.yaml", folder)
    return folder


def told(experiment, seed, status="complete", metrics=None, primary="top1", seconds=None):
    """What the summary.json of a run says."""
    scale, name = experiment.split("/")
    return {
        "status": status,
        "experiment": experiment,
        "row": {"table": name.split("_")[0], "name": name, "scale": scale},
        "seed": seed,
        "parameters": 1_230_000,
        "epochs": 2.0,
        "steps": 20,
        "primary": primary,
        "metrics": metrics or {primary: 50.0},
        "timing": {"seconds": 12.3 + seed if seconds is None else seconds},
    }


def record(folder, experiment, tag, seed, value=50.0, metrics=None, primary="top1", status="complete", **more):
    """One run below results/runs; returns its folder. More: `git`, `config`, and what else summary.json is to say."""
    run = folder / "runs" / experiment / tag / f"seed{seed}"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(yaml.safe_dump(more.pop("config", {"dataset": {"name": "cifar10"}})))
    session = SESSION | {"git": more.pop("git", SESSION["git"])}
    (run / "environment.json").write_text(json.dumps({"sessions": [session]}))
    metrics = metrics or {primary: value}
    last = {"step": 20, "event": "evaluate", **metrics}
    events = [*more.pop("events", []), *([last] if status == "complete" else [])]
    about = told(experiment, seed, status, metrics, primary)
    (run / "summary.json").write_text(json.dumps(about | more))
    (run / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return run


def row(folder, experiment="reduced/imagenet_vit", accuracies=None, **more):
    """A row's baseline and conditioned runs, three seeds each: identity loses clearly, svd gains too little to tell."""
    for tag, values in (accuracies or ACCURACIES).items():
        for seed, value in enumerate(values):
            record(folder, experiment, tag, seed, value, **more)


def lines(page, table=0):
    """The rows of a page's CSV."""
    return list(csv.DictReader(io.StringIO(csv_text(page.tables[table]))))


def said(page):
    """The sentences beneath a page's tables."""
    return "\n".join(note.text for note in page.notes)


def curve(value, probes=3):
    """Events along training that end at a value."""
    weights = [{"projection": p, "kappa_conditioned": 5.0, "sigma_min_conditioned": 0.1} for p in "qkv"]
    events = []
    for step in range(0, 10 * probes, 10):
        events.append({"step": step, "event": "spectra", "weights": weights})
        events.append({"step": step, "event": "train", "loss": 2.0 - step / 100})
        events.append({"step": step, "event": "evaluate", "top1": value - 10 + step / 3})
    return events
