"""The loop: build, resume, then for each step lr, batch, loss, backward, clip, step, EMA, log, evaluate, save, stop.

`train` is what every process of a run calls. `steps` is one generator that advances by one optimizer step, so
that it reads from top to bottom and can be timed against a bare loop (scripts/bench_loop.py).
"""

import contextlib
import math
import time
from collections.abc import Iterator

import torch
from omegaconf import DictConfig

from train import checkpoint, randomness, tasks
from train.budget import Budget, schedule_of
from train.distributed import Agreement, Place, barrier, from_first, gathered, peak_memory, share_buffers
from train.errors import Diverged, Stopped
from train.finite import circumstances, explained
from train.optimizer import (
    Length,
    Precision,
    build_ema,
    build_optimizer,
    in_steps,
    lr_note,
    scaled_lr,
    update_ema,
)
from train.probe import Probe
from train.progress import Progress
from train.record import Record
from train.record_files import plain_config
from train.signals import StopFlag


class Run:
    """Everything one process needs to train, and how far it has come."""

    def __init__(self, config: DictConfig, record: Record, place: Place, stop: StopFlag) -> None:
        self.config, self.record, self.folder, self.place, self.stop = config, record, record.folder, place, stop
        torch.use_deterministic_algorithms(config.runtime.deterministic)
        self.task = tasks.build(config, place)
        self.length = Length.of(config.schedule, self.task.steps_per_epoch)
        self.budget = Budget(config.schedule)
        self.evaluate_every = in_steps(config.evaluate, self.task.steps_per_epoch)
        self.save_every = config.runtime.save_steps or self.evaluate_every
        self.probe_every = in_steps(config.probe, self.task.steps_per_epoch)

        randomness.seed_everything(config.seed, randomness.BUILD)
        self.model = tasks.build_model(config).to(place.device)
        if hasattr(self.task, "start"):
            self.task.start(self.model)
        if config.runtime.channels_last:
            self.model.to(memory_format=torch.channels_last)
        self.ema = build_ema(config, self.model, self.task.steps_per_epoch)
        if config.runtime.compile:
            self.model.compile()
        self.optimizer = build_optimizer(config, self.model)
        self.schedule = schedule_of(config, self.optimizer, self.length)
        self.precision = Precision(config.runtime.precision, place.device)
        self.agreement = Agreement(self.model, place)

        self.probe = Probe(self)
        self.step = 0  # optimizer steps completed
        self.lr = 0.0  # of the last step
        self.seconds = 0.0  # spent in steps: evaluation, saving and probing apart
        self.losses: list[float] = []  # of the steps since the last train event, over all ranks
        self.metrics: dict[str, float] = {}  # of the last evaluation
        self.best: dict | None = None  # the primary metric's best evaluation so far, and its step
        self.say = Progress(place, self.length, self.budget.hours)
        if hasattr(self.task, "follow"):
            self.task.follow(lambda: self.budget.spent(self))

    def due(self, every: int | None) -> bool:
        """Whether something that happens every so many steps happens now; the last step always counts."""
        return every is not None and (self.step % every == 0 or self.step == self.length.steps)

    def state(self) -> dict:
        """What a checkpoint holds: tensors and plain values, enough to go on exactly."""
        return {
            "config": plain_config(self.config),
            "model": self.model.state_dict(),
            "ema": self.ema.module.state_dict() if self.ema else None,
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.precision.scaler.state_dict(),
            "task": self.task.state() if hasattr(self.task, "state") else None,
            **{name: getattr(self, name) for name in ("step", "seconds", "losses", "metrics", "best")},
        }

    def load(self, state: dict) -> None:
        """Go on from a checkpoint."""
        self.model.load_state_dict(state["model"])
        if self.ema:
            self.ema.module.load_state_dict(state["ema"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.precision.scaler.is_enabled() and state["scaler"]:
            self.precision.scaler.load_state_dict(state["scaler"])
        if hasattr(self.task, "load"):
            self.task.load(state["task"])
        for name in ("step", "seconds", "losses", "metrics", "best"):
            setattr(self, name, state[name])
        self.budget.count(self)


def train(config: DictConfig, record: Record, place: Place, stop: StopFlag) -> dict[str, float]:
    """Train one run to its end, going on from what its folder holds; returns the final metrics.

    Raises:
        Stopped: a signal came; everything is saved.
        Diverged: a loss is not finite; nothing was updated with it.
        UserError: the config cannot be run as it is.
    """
    run = Run(config, record, place, stop)
    resume(run)
    record.begin(run.step, run.precision.name)
    run.say.start(run.step, f"global batch {config.batch_size}, lr {scaled_lr(config):g}, {run.precision.name}")
    for note in filter(None, (lr_note(config), run.budget.note())):
        run.say.line(note)
    record.summary("running", step=run.step)
    if run.step == 0 and run.probe_every:
        run.probe.look()
    for _ in steps(run):
        pass
    record.summary("complete", **totals(run))
    if not config.runtime.keep_checkpoints and place.first:
        checkpoint.remove_all(run.folder)
    return run.metrics


def resume(run: Run) -> None:
    """Go on from the newest sound checkpoint; rank 0 chooses it, so that all go on from the same."""
    state = None
    if run.place.first:
        checkpoint.clean(run.folder)
        _, state, damaged = checkpoint.newest(run.folder)
        for bad, reason in damaged.items():
            run.say.line(f"{reason}: set aside, going on from the one before")
            checkpoint.set_aside(bad)
    step = from_first(state["step"] if state else 0, run.place)
    if step:
        run.load(state or checkpoint.load(checkpoint.path_of(run.folder, step)))


def steps(run: Run) -> Iterator[int]:
    """Take the run's remaining optimizer steps; yields the number completed after each."""
    config, place, scaler, agreement = run.config, run.place, run.precision.scaler, run.agreement
    trained = [parameter for parameter in run.model.parameters() if parameter.requires_grad]
    run.model.train()
    began = time.perf_counter()
    for batches in run.task.batches(run.step, run.length.steps):
        lr = run.lr = run.schedule.set(run.budget.position(run))
        loss, asked = torch.zeros((), device=place.device), float(run.stop.asked)
        for index, batch in enumerate(batches):
            randomness.seed_everything(config.seed, randomness.MODEL, run.step, place.rank, index)
            last = index == len(batches) - 1
            with contextlib.nullcontext() if last else agreement.alone():
                with run.precision.autocast():
                    part = run.task.loss(agreement.exchanging, batch) / len(batches)
                scaler.scale(agreement.carrying(part, asked / len(batches))).backward()
            loss += part.detach()
        own = loss.item()
        if not math.isfinite(own):
            raise Diverged(explained(run, batches, own, lr))
        mean, stopping = agreement.agreed(own, asked, scaler.get_scale())
        if not math.isfinite(mean):
            raise Diverged("")  # another worker's loss: it says more
        if config.optimizer.clip_grad is not None:
            scaler.unscale_(run.optimizer)
            norm = torch.nn.utils.clip_grad_norm_(trained, config.optimizer.clip_grad)
            if not scaler.is_enabled() and not torch.isfinite(norm):  # a scaler skips such a step by itself
                raise Diverged(f"step {run.step + 1}: the gradient's norm is {norm.item()}; {circumstances(run, lr)}")
        scaler.step(run.optimizer)
        scaler.update()
        run.optimizer.zero_grad()
        run.step += 1
        if run.ema and run.step % config.ema.every == 0:
            update_ema(run.ema, run.model, run.step)
        run.losses.append(mean)
        now = time.perf_counter()
        run.seconds += now - began
        run.budget.count(run)
        run.say.step(run.step, mean, lr, run.seconds)

        if run.due(config.runtime.log_steps):
            log(run, lr)
        if run.due(run.probe_every):
            run.probe.look()
        best = run.due(run.evaluate_every) and evaluate(run)
        stopping = stopping or (place.world == 1 and run.stop.asked)  # alone there is no one to agree with
        if run.due(run.save_every) or best or stopping:
            save(run)
        if stopping and run.step < run.length.steps:
            run.record.summary("stopped", **totals(run))
            raise Stopped(f"stopped after step {run.step}: the same command goes on from there")
        began = time.perf_counter()
        yield run.step
        if run.step >= run.length.steps:  # where a clock or the data decides, it was not known before
            return


def log(run: Run, lr: float) -> None:
    """Record the mean loss of the steps since the last time."""
    run.record.log("train", run.step, timing(run), loss=math.fsum(run.losses) / len(run.losses), lr=lr, **seen(run))
    run.losses.clear()


def evaluate(run: Run) -> bool:
    """Evaluate the weights that the recipe reports (`ema.evaluate`), and where it averages, the others beside.

    Returns:
        Whether the primary metric is the best so far.
    """
    models = {"raw": run.model} | ({"ema": run.ema.module} if run.ema else {})
    shown = "ema" if run.ema and run.config.ema.evaluate else "raw"
    results = {}
    for name, model in models.items():
        model.eval()
        share_buffers(model, run.place)  # what rank 0 saves is what all evaluate
        with run.precision.autocast():
            results[name] = run.task.evaluate(model)
        model.train()
    for notice in gathered(getattr(run.task, "notices", list)(), run.place):
        run.record.log("notice", run.step, **notice)
    run.metrics = results.pop(shown)
    for name, other in results.items():
        run.metrics |= {f"{name}_{key}": value for key, value in other.items()}
    value = run.metrics[run.task.primary]
    best = run.best is None or value > run.best[run.task.primary]
    if best:
        run.best = {run.task.primary: value, "step": run.step, **tested(run, models[shown])}
    run.metrics |= {key: number for key, number in run.best.items() if key not in run.metrics and key != "step"}
    run.record.log("evaluate", run.step, **run.metrics)
    run.say.line(f"step {run.step}: " + ", ".join(f"{k} {v:.4g}" for k, v in run.metrics.items()))
    return best


def tested(run: Run, model: torch.nn.Module) -> dict[str, float]:
    """What the best model so far reaches on the task's test set, for tasks that pick by a dev set."""
    if not hasattr(run.task, "test"):
        return {}
    model.eval()
    with run.precision.autocast():
        numbers = run.task.test(model)
    model.train()
    return numbers


def save(run: Run) -> None:
    """Write a checkpoint; also as the best, where it is. Weights that are not finite are never saved."""
    for name, value in run.model.named_parameters():
        if not torch.isfinite(value).all():
            raise Diverged(f"step {run.step}: {name} is not finite; {circumstances(run, run.lr)}")
    if run.place.first:
        path = checkpoint.save(run.folder, run.step, run.state())
        if run.best and run.best["step"] == run.step:
            checkpoint.keep_best(run.folder, path)
    barrier(run.place)  # nobody leaves before the checkpoint is there


def seen(run: Run) -> dict:
    """What a task says of the data that it has used so far, where it counts that itself."""
    return run.task.seen() if hasattr(run.task, "seen") else {}


def timing(run: Run) -> dict:
    """What a clock and an allocator say."""
    samples = seen(run).get("samples", run.step * run.config.batch_size)
    return {
        "seconds": run.seconds,
        "samples_per_second": samples / run.seconds,
        "peak_memory_bytes": peak_memory(run.place),
    }


def totals(run: Run) -> dict:
    """What summary.json says of a run so far."""
    return {
        "step": run.step,
        "steps": None if run.budget.open else run.length.steps,
        "epochs": run.step / run.length.steps_per_epoch,
        **seen(run),
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
        "primary": getattr(run.task, "reported", run.task.primary),
        "metrics": run.metrics,
        "best": run.best,
        "timing": timing(run),
    }
