"""The loop's own cost: our optimizer step against a bare PyTorch loop's, interleaved in one process.

Same model, same batches, same optimizer, float32 on the CPU (bf16 autocast is compared as it is on a GPU). Three
loops take turns of a few steps each: ours, bare, and bare once more; medians of the paired ratios are printed, the
second bare loop being the null that says how far noise alone reaches.

    python -m scripts.bench_loop [--experiment reduced/imagenet_vit] [--turns 60] [--steps 5]
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from train import randomness, tasks
from train.compose import resolve
from train.distributed import join
from train.loop import Run, steps
from train.optimizer import build_optimizer
from train.record import Record
from train.signals import StopFlag


def bare(config, place) -> Iterator[None]:
    """A loop with nothing but batch, loss, backward and step."""
    task = tasks.build(config, place)
    randomness.seed_everything(config.seed, randomness.BUILD)
    model = tasks.build_model(config).to(place.device).train()
    optimizer = build_optimizer(config, model)
    for ((images, labels),) in task.batches(0, 10**9):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield


def timed(loop: Iterator, count: int) -> float:
    """Seconds for a number of steps."""
    began = time.perf_counter()
    for _ in range(count):
        next(loop)
    return time.perf_counter() - began


def main() -> None:
    """Print the two paired ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--experiment", default="reduced/digits_vit")
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("words", nargs="*", help="more key=value words for the config")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    total = (options.turns + 3) * options.steps
    with tempfile.TemporaryDirectory() as folder:
        config = resolve(
            [
                f"experiment={options.experiment}",
                f"output_root={folder}",
                f"schedule.steps={10 * total}",
                "schedule.epochs=null",
                "evaluate.epochs=null",
                f"evaluate.steps={10 * total}",
                "probe.epochs=null",
                "runtime.wandb=off",
                *options.words,
            ]
        )
        place = join(config.runtime.device)
        run = Run(config, Record(Path(folder), config, place), place, StopFlag())
        run.say.speaks = False
        loops = {"ours": steps(run), "bare": bare(config, place), "null": bare(config, place)}
        seconds = {name: [] for name in loops}
        for turn in range(options.turns + 3):
            order = list(loops) if turn % 2 else list(loops)[::-1]
            for name in order:
                took = timed(loops[name], options.steps)
                if turn >= 3:  # the first turns warm up
                    seconds[name].append(took / options.steps)
    print(f"{options.experiment}, {options.turns} turns of {options.steps} steps, {options.threads} thread(s)")
    for name, values in seconds.items():
        print(f"  {name}: median {1e3 * statistics.median(values):.2f} ms a step")
    for name in ("ours", "null"):
        ratio = statistics.median(a / b for a, b in zip(seconds[name], seconds["bare"], strict=True))
        print(f"  {name}/bare: {ratio:.4f} (median of {options.turns} paired ratios)")


if __name__ == "__main__":
    main()
