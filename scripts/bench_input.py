"""Does the input keep up? Samples a second of the loader alone, for several numbers of workers, against training steps.

    python -m scripts.bench_input paper/imagenet_vit [--workers 0 2 8 16] [--batches 20] [key=value ...]

The loader decodes and augments as the recipe says, and its batches are moved to the device and dropped. The training
step is the recipe's (forward, backward, clip, optimizer) on one batch that is there already. With a loader at least as
fast as the step, decoding does not starve the device. One device; with several, each has workers of its own.
"""

import argparse
import itertools
import sys
import time

import torch
from omegaconf import DictConfig

from train import tasks
from train.compose import resolve
from train.data.presence import lacking
from train.distributed import Place, join
from train.errors import USAGE, UserError
from train.optimizer import Precision, build_optimizer


def settled(place: Place) -> float:
    """The time, once the device has done what was asked of it."""
    if place.device.type == "cuda":
        torch.cuda.synchronize(place.device)
    return time.perf_counter()


def loader_rate(config: DictConfig, place: Place, batches: int) -> float:
    """Samples a second of the loader alone, after the batches that its workers prepared ahead."""
    data = tasks.build(config, place).data
    ahead = (config.runtime.workers or 0) * config.runtime.prefetch // data.plan.accumulation + 1
    stream = itertools.chain.from_iterable(data.batches(0, ahead + batches))
    count = 0
    for index, (images, _) in enumerate(stream):
        if index == ahead * data.plan.accumulation:
            began = settled(place)
        if index >= ahead * data.plan.accumulation:
            count += len(images)
    return count / (settled(place) - began)


def step_rate(config: DictConfig, place: Place, steps: int) -> float:
    """Samples a second of training steps on a micro-batch that lies on the device."""
    task = tasks.build(config, place)
    batch = next(task.data.batches(0, 1))[0]
    model = tasks.build_model(config).to(place.device).train()
    if config.runtime.channels_last:
        model.to(memory_format=torch.channels_last)
    if config.runtime.compile:
        model.compile()
    optimizer, precision = build_optimizer(config, model), Precision(config.runtime.precision, place.device)
    for step in range(steps + 2):
        if step == 2:
            began = settled(place)
        with precision.autocast():
            loss = task.loss(model, batch)
        precision.scaler.scale(loss).backward()
        if config.optimizer.clip_grad is not None:
            precision.scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.optimizer.clip_grad)
        precision.scaler.step(optimizer)
        precision.scaler.update()
        optimizer.zero_grad()
    return steps * len(batch[1]) / (settled(place) - began)


def main() -> int:
    """Print the rates and what follows from them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiment")
    parser.add_argument("words", nargs="*", help="key=value words for the config")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2, 4, 8])
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--steps", type=int, default=10)
    chosen = parser.parse_intermixed_args()
    try:
        config = resolve([f"experiment={chosen.experiment}", *chosen.words])
        if missing := lacking(config):
            raise UserError(missing)
        place = join(config.runtime.device)
        torch.set_num_threads(config.runtime.threads or torch.get_num_threads())
        micro = tasks.build(config, place).data.plan.micro
        print(f"{chosen.experiment}, micro-batch {micro}, {place.device}")
        step = step_rate(config, place, chosen.steps)
        print(f"  training step: {step:.1f} samples/s")
        rates = {}
        for workers in chosen.workers:
            config.runtime.workers = workers
            rates[workers] = loader_rate(config, place, chosen.batches)
            print(
                f"  loader, {workers} workers: {rates[workers]:.1f} samples/s, {rates[workers] / step:.2f} of the step"
            )
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    enough = [workers for workers, rate in rates.items() if rate >= step]
    said = f"runtime.workers={enough[0]} is enough" if enough else "the device would wait: more workers are needed"
    print(f"  {said}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
