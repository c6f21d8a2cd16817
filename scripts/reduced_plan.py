"""What `make reduced` runs: each reduced row and ablation, the runs that it asks for, and how long they may take."""

import itertools
from dataclasses import dataclass
from pathlib import Path

from scripts.records import complete
from train.compose import distinguishing, resolve
from train.data.glue.tables import AVERAGED
from train.data.presence import lacking
from train.data.presence_language import missing_task
from train.folder import run_folder, summary

RECORDS = Path("results/runs")
METHODS = ("conditioning=off,identity,svd",)
TAGS = ("baseline", "identity-lam10", "svd-lam1")
LAMBDAS = (0, 0.1, 1, 10)
WITHOUT_NORM = "model.norm=False"


@dataclass(frozen=True)
class Row:
    """One row: its experiment, the words of its sweep, the folders that they make, and what has to be made first."""

    name: str
    experiment: str
    words: tuple[str, ...] = METHODS
    tags: tuple[str, ...] = TAGS
    once: bool = False  # with seed 0 alone
    prepare: tuple[str, ...] = ()  # a module and its words, run before

    def asked(self, seeds: list[int]) -> list[tuple[str, int]]:
        """(tag, seed) of every run."""
        return list(itertools.product(self.tags, [0] if self.once else seeds))

    def command(self, seeds: list[int], jobs: int, words: list[str]) -> list[str]:
        """The words of `python -m`."""
        given = "0" if self.once else ",".join(map(str, seeds))
        ours = [f"experiment={self.experiment}", *self.words, f"seed={given}", f"runtime.jobs={jobs}"]
        return ["train", "-m", *ours, *words]


def rows(books: bool) -> list[Row]:
    """Every reduced row, in the order in which they run: pre-training comes before what is fine-tuned from it.

    Args:
        books: whether the data root has text/gutenberg; else the pre-training reads text that the project makes.
    """
    made = {"listops": "lra_listops_short", "retrieval": "lra_retrieval_made", "pathfinder": "lra_pathfinder_short"}
    found = [Row(f"imagenet-{name}", f"reduced/imagenet_{name}") for name in ("vit", "deit", "swin", "xcit", "davit")]
    for name in ("listops", "text", "retrieval", "image", "pathfinder"):
        prepare = ("scripts.make_set", made[name]) if name in made else ()
        found.append(Row(f"lra-{name}", f"reduced/lra_{name}", prepare=prepare))
    pretraining = "reduced/glue_pretrain"
    text = () if books else ("dataset=text_made",)
    found.append(
        Row(
            "glue-pretrain",
            pretraining,
            (*METHODS, *text),
            tuple(",".join([tag, *text]) for tag in TAGS),
            once=True,
            prepare=("scripts.make_corpus", f"experiment={pretraining}", *text),
        )
    )
    found += [tuned(task, text) for task in AVERAGED]
    found.append(Row("coco-xcit", "reduced/coco_xcit", prepare=("scripts.make_shapes",)))
    vit, lams = "reduced/imagenet_vit", ",".join(f"{lam:g}" for lam in LAMBDAS)
    swept = tuple(f"identity-lam{lam:g}" if lam else "baseline" for lam in LAMBDAS)
    without = tuple(f"{tag},{WITHOUT_NORM}" for tag in TAGS)
    found.append(Row("ablation-lambda", vit, ("conditioning=identity", f"conditioning.lam={lams}"), swept))
    found.append(Row("ablation-layernorm", vit, (*METHODS, "model.norm=true,false"), (*TAGS, *without)))
    return found + [Row(f"curves-{name}", f"reduced/curves_{name}", once=True) for name in ("vit", "xcit")]


def tuned(task: str, text: tuple[str, ...]) -> Row:
    """A task's fine-tuning, from the pre-training that was given the words `text` as well."""
    experiment = f"reduced/glue_{task}"
    if not text:
        return Row(f"glue-{task}", experiment)
    word = f"task.pretrained='run:reduced/glue_pretrain,{','.join(text)}'"
    each = [[f"experiment={experiment}", f"conditioning={name}", word] for name in ("off", "identity", "svd")]
    tags = tuple(run_folder(resolve(words), distinguishing(words)).parent.name for words in each)
    return Row(f"glue-{task}", experiment, (*METHODS, word), tags)


def absent(row: Row, words: list[str]) -> str | None:
    """What is lacking of a row's data, in one line; None where it is there, or where the project makes it."""
    if row.prepare:
        return None
    config = resolve([f"experiment={row.experiment}", *words])
    return missing_task(config) if config.task.name == "glue" else lacking(config)


def missing(row: Row, seeds: list[int], root: Path) -> list[tuple[str, int]]:
    """The runs of a row that are not complete below the output root."""
    return [
        (tag, seed)
        for tag, seed in row.asked(seeds)
        if summary(root / row.experiment / tag / f"seed{seed}").get("status") != "complete"
    ]


def took(experiment: str, roots: tuple[Path, ...]) -> dict[str, list[float]]:
    """tag → seconds of training of the experiment's complete runs."""
    found: dict[str, list[float]] = {}
    for run in itertools.chain.from_iterable(complete(root, experiment) for root in roots):
        if (seconds := run.summary.get("timing", {}).get("seconds")) is not None:
            found.setdefault(run.tag, []).append(seconds)
    return found


def estimate(runs: list[tuple[str, int]], known: dict[str, list[float]]) -> tuple[float, int]:
    """Seconds that the runs may take one after another, and how many of them there is no record for.

    A run of another tag of the same experiment is the next best guess.
    """
    every = [seconds for found in known.values() for seconds in found]
    if not every:
        return 0.0, len(runs)
    guesses = [known.get(tag, every) for tag, _ in runs]
    return sum(sum(found) / len(found) for found in guesses), 0
