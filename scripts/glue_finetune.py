"""`make glue-finetune`: the nine tasks, or some, from pre-trained checkpoints that are there; a sweep like any other.

    python -m scripts.glue_finetune --scale reduced --tasks cola,rte --seeds 0,1 --method identity --lam 0,10

Without --tasks it takes those whose files lie below the data root. With --scratch the same network is fine-tuned
without pre-training (the control).
"""

import argparse
import os
import sys

from train.command import main as command
from train.compose import nearest, resolve
from train.data.glue.tables import AVERAGED, TABLES
from train.data.presence_language import missing_task
from train.errors import USAGE, UserError


def tasks(asked: str, scale: str, words: list[str]) -> list[str]:
    """The tasks that are asked for, or that the data root has.

    Raises:
        UserError: one is unknown, or none is there.
    """
    if asked:
        names = [name.strip().lower().replace("-", "") for name in asked.split(",") if name.strip()]
        unknown = [name for name in names if name not in TABLES]
        if not names:
            raise UserError(f"TASKS={asked} names no task: there are {', '.join(TABLES)}")
        if unknown:
            raise UserError(f"TASKS: unknown task {unknown[0]!r}: {nearest(unknown[0], list(TABLES))}")
        return names
    lacking = {name: missing_task(resolve([f"experiment={scale}/glue_{name}", *words])) for name in AVERAGED}
    found = [name for name, reason in lacking.items() if reason is None]
    if not found:
        raise UserError(f"no task of GLUE is there: {next(iter(lacking.values()))}")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run the sweep; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="anything else for Hydra, key=value")
    parser.add_argument("--scale", default="paper", choices=("paper", "reduced"))
    parser.add_argument("--tasks", default="", help="comma-separated: " + ", ".join(TABLES))
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--method", default="identity")
    parser.add_argument("--lam", default="0,10")
    parser.add_argument("--recipe", default="", help="the pre-training's: legacy or current (paper scale)")
    parser.add_argument("--pretraining", default="", help="what else it was given, as dataset=text_made")
    parser.add_argument("--scratch", action="store_true", help="the control: without the pre-trained weights")
    chosen = parser.parse_intermixed_args(arguments)
    try:
        own = [word for word in chosen.words if word.partition("=")[0] in ("data_root", "output_root")]
        names = tasks(chosen.tasks, chosen.scale, own)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    words = [
        "experiment=" + ",".join(f"{chosen.scale}/glue_{name}" for name in names),
        f"conditioning={chosen.method}",
        f"conditioning.lam={chosen.lam}",
        f"seed={chosen.seeds}",
        *chosen.words,
    ]
    recipe = f"_{chosen.recipe}" if chosen.recipe and chosen.scale == "paper" else ""
    if recipe or chosen.pretraining:
        given = "".join(f",{word}" for word in chosen.pretraining.split())
        words.append(f"task.pretrained='run:{chosen.scale}/glue_pretrain{recipe}{given}'")
    if chosen.scratch:
        words.append("task.scratch=true")
    return command(["-m", *words])


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    sys.exit(main())
