"""Training steps of one model under several conditionings, measured in turn: what the benchmarks of cost share.

Times that are compared are taken next to each other: each round measures every variant once, in random order, and a
ratio is the median over rounds of two times of one round. The first round warms up and is not counted.
"""

import random
import statistics
import time
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from specattn import condition, find_projections
from specattn.mechanism import attach, conditioning_of, detach

LAM = {"identity": 10.0, "svd": 1.0}
LEAST = 3  # rounds, however long they take: quartiles need them


def interleaved(
    measures: Mapping[str, Callable[[], float]],
    rounds: int,
    seconds: float | None = None,
    told: Callable[[int], None] = lambda done: None,
) -> dict[str, list[float]]:
    """Name → what it measured in each round.

    Args:
        measures: name → a function that does the work once and returns its figure.
        rounds: how many, without the first.
        seconds: no round begins after so long, once there are `LEAST`.
        told: is called with the number of counted rounds after each.
    """
    found: dict[str, list[float]] = {name: [] for name in measures}
    order, began = random.Random(0), time.monotonic()
    for done in range(rounds + 1):
        if seconds is not None and done > LEAST and time.monotonic() - began > seconds:
            break
        for name in order.sample(list(measures), len(measures)):
            figure = measures[name]()
            if done:
                found[name].append(figure)
        told(done)
    return found


def ratios(found: dict[str, list[float]], name: str, other: str) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile over rounds of one name's figure by another's."""
    low, middle, high = statistics.quantiles([a / b for a, b in zip(found[name], found[other], strict=True)], n=4)
    return low, middle, high


class Steps:
    """A model, its optimizer, a batch, and the conditionings to switch between; the weights stay as they are."""

    def __init__(self, model: nn.Module, images: Tensor, labels: Tensor, dtype: torch.dtype | None = None) -> None:
        """`dtype`: autocast's, None for none. Everything lies on the images' device."""
        self.model, self.images, self.labels, self.dtype = model, images, labels, dtype
        self.device = images.device.type
        # The weights are not updated, so that every step of every variant does the same arithmetic; and λ = 10
        # saturates softmax, whose tails underflow to denormal numbers, which a CPU is slow at and which have nothing
        # to do with the mechanism: they are flushed to zero.
        torch.set_flush_denormal(True)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0)
        self.layers = list(dict.fromkeys(p.owner for p in find_projections(model)))
        self.held, self.seconds = {}, {}
        for method, lam in LAM.items():
            self.seconds[method] = self.timed(lambda method=method, lam=lam: condition(self.model, lam, method))
            self.held[method] = [conditioning_of(layer) for layer in self.layers]
            self.plain()

    def plain(self) -> None:
        """Take away what is attached."""
        for layer in self.layers:
            if conditioning_of(layer) is not None:
                detach(layer)

    def synchronize(self) -> None:
        """Waits for the device."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def timed(self, work: Callable[[], object]) -> float:
        """Seconds of some work."""
        self.synchronize()
        start = time.perf_counter()
        work()
        self.synchronize()
        return time.perf_counter() - start

    def step(self) -> None:
        """One training step."""
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device, self.dtype, enabled=self.dtype is not None):
            loss = nn.functional.cross_entropy(self.model(self.images).float(), self.labels)
        loss.backward()
        self.optimizer.step()

    def timed_step(self) -> float:
        """Seconds of one step."""
        return self.timed(self.step)

    def as_variant(self, variant: str, function: Callable[[], float]) -> float:
        """Runs `function` with the model as `variant`, a method of `LAM`; plain where it is none."""
        for layer, corrections in zip(self.layers, self.held.get(variant, ()), strict=variant in self.held):
            attach(layer, corrections)
        try:
            return function()
        finally:
            self.plain()

    def peak_bytes(self, work: Callable[[], object] | None = None) -> float:
        """Largest number of bytes allocated at once during `work` (a step), the model and its optimizer included."""
        work = work or self.step
        self.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            work()
            return torch.cuda.max_memory_allocated()
        state = [t for s in self.optimizer.state.values() for t in s.values() if isinstance(t, Tensor)]
        standing = sum(t.nbytes for t in [*self.model.parameters(), *self.model.buffers(), *state])
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            work()
        events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
        live = peak = 0
        for event in sorted(events, key=lambda e: e.start_ns()):
            live += event.nbytes()
            peak = max(peak, live)
        return standing + peak
