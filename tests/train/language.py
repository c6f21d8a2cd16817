"""What the language tests share: a little text of the project's own, and words of tiny runs on it."""

from train.compose import resolve
from train.data.corpus import made
from train.schema_language import Text

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
        "task.ramp.unit=4",
        "schedule.steps=12",
        "evaluate.steps=6",
        f"output_root={tmp_path / 'outputs'}",
        *words,
    ]


def config_of(words):
    """The config, with nothing of this machine in it."""
    return resolve(words)
