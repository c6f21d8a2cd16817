"""What it costs to agree on a stop at every step: steps with the agreement against steps without it.

The agreement (the loss, and whether a signal came) rides on the exchange of gradients. Turns with it and turns without
it alternate in the same processes; a second set of turns without it is the null. On one process there is nothing to
agree on, and what is measured is reading a flag.

    python -m torch.distributed.run --standalone --nproc-per-node=2 -m scripts.bench_stop
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch

from train.compose import resolve
from train.distributed import join, leave
from train.loop import Run, steps
from train.record import Record
from train.signals import StopFlag


def main() -> None:
    """Print the paired ratios on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=80)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    total = 3 * (options.turns + 3) * options.steps
    with tempfile.TemporaryDirectory() as folder:
        config = resolve(
            [
                "experiment=reduced/digits_vit",
                f"output_root={folder}",
                f"schedule.steps={total + 1}",
                "schedule.epochs=null",
                f"evaluate.steps={total + 1}",
                "evaluate.epochs=null",
                "probe.epochs=null",
                "runtime.wandb=off",
                f"runtime.log_steps={total + 1}",
            ]
        )
        place = join(config.runtime.device)
        run = Run(config, Record(Path(folder), config, place), place, StopFlag())
        run.say.speaks = False
        loop = steps(run)
        agreement, silent = run.agreement, run.agreement.numbers  # the exchange waits for a gradient of it all the same
        carrying, agreed = agreement.carrying, agreement.agreed
        seconds: dict[str, list[float]] = {"agreeing": [], "without": [], "null": []}
        for turn in range(options.turns + 3):
            for name in list(seconds) if turn % 2 else list(seconds)[::-1]:
                agreement.carrying = carrying if name == "agreeing" else lambda loss, stop: loss + 0 * silent.sum()
                agreement.agreed = agreed if name == "agreeing" else lambda loss, stop, scale: (loss, False)
                began = time.perf_counter()
                for _ in range(options.steps):
                    next(loop)
                if turn >= 3:  # the first turns warm up
                    seconds[name].append((time.perf_counter() - began) / options.steps)
        if place.first:
            print(f"{place.world} process(es), {options.turns} turns of {options.steps} steps")
            for name in seconds:
                ratio = statistics.median(a / b for a, b in zip(seconds[name], seconds["without"], strict=True))
                print(f"  {name}: median {1e3 * statistics.median(seconds[name]):.2f} ms a step, {ratio:.4f} x without")
    leave()


if __name__ == "__main__":
    main()
