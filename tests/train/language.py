"""What the language tests share: a little text of the project's own, and words of tiny runs on it."""

import copy
import functools

from omegaconf import OmegaConf

from train.compose import resolve
from train.data.corpus import made
from train.distributed import join
from train.loop import Run, steps
from train.record import Record
from train.schema_language import Text
from train.signals import StopFlag

MODEL = [
    "model.vocabulary=300",
    "model.length=16",
    "model.width=16",
    "model.depth=2",
    "model.heads=2",
    "model.feed_forward=24",
    "model.head_width=16",
]
RUNTIME = ["runtime.log_steps=2", "runtime.wandb=off", "runtime.threads=1", "runtime.device=cpu"]


def books(folder, megabytes=1):
    """Twelve books of the project's own text, a few kilobytes each."""
    folder.mkdir(parents=True, exist_ok=True)
    made.make(folder, megabytes)
    for path in folder.glob("*.txt"):
        path.write_text("\n\n".join(path.read_text().split("\n\n")[:60]) + "\n")
    return folder


def options(folder, **more):
    """A corpus of `books`."""
    return Text(
        **{
            "name": "small",
            "folder": str(folder),
            "files": "*.txt",
            "held_out": ["book-11.txt"],
            "vocabulary": 300,
            "length": 16,
        }
        | more
    )


def pretraining(tmp_path, *words):
    """The words of a pre-training of twelve steps on `books`."""
    return [
        "experiment=reduced/glue_pretrain",
        *MODEL,
        *RUNTIME,
        f"dataset.folder={tmp_path / 'text'}",
        "dataset.held_out=[book-11.txt]",
        "batch_size=16",
        "optimizer.lr=2e-3",
        "task.ramp.unit=4",
        "task.shuffle=false",
        "schedule.steps=12",
        "evaluate.steps=6",
        f"output_root={tmp_path / 'outputs'}",
        *words,
    ]


@functools.cache
def _composed(experiment):
    return resolve([experiment])


def config_of(words):
    """The config of an experiment with `key=value` words; composed once for each experiment, which takes longest."""
    config = copy.deepcopy(_composed(words[0]))
    for word in words[1:]:
        key, _, value = word.partition("=")
        if key == "conditioning":
            chosen = {"off": {"lam": 0.0}, "svd": {"method": "svd", "lam": 1.0}}[value]
            OmegaConf.update(config, "conditioning", chosen, merge=True)
            continue
        OmegaConf.update(config, key, OmegaConf.from_dotlist([f"value={value}"]).value)
        if key in ("model.vocabulary", "model.length"):  # which the data sets take from the model
            name = key.removeprefix("model.")
            if name in config.dataset:
                config.dataset[name] = config.model[name]
    return config


def build(words, folder):
    """A run in a folder, nothing of it begun."""
    config = config_of(words)
    folder.mkdir(parents=True, exist_ok=True)
    return Run(config, Record(folder, config, join("cpu")), join("cpu"), StopFlag())


def trained(words, folder):
    """A run that has taken all its steps; one below the output root says so in its summary."""
    run = build(words, folder)
    for _ in steps(run):
        pass
    if folder.is_relative_to(run.config.output_root):
        run.record.summary("complete", metrics=run.metrics, primary=run.task.primary)
    return run
