"""The processes of one run: who am I, on which device, and how numbers are summed over all of us."""

import datetime
import os
import resource
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from train.errors import UserError


@dataclass(frozen=True)
class Place:
    """One process among `world`; rank 0 writes the records."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0


def join(device: str = "auto") -> Place:
    """Take this process's place among those that torch's elastic launcher started (alone where none did).

    Args:
        device: auto, cpu or cuda.

    Raises:
        UserError: there is no GPU for this process.
    """
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    cuda = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    where = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else torch.device("cpu")
    if cuda:
        available = torch.cuda.device_count()
        if where.index >= available:
            raise UserError(f"this needs {where.index + 1} GPU(s), and there are {available}: set runtime.devices")
        torch.cuda.set_device(where)
    if world > 1 and not dist.is_initialized():
        # Half an hour: rank 0 may be decoding or saving while the others wait.
        dist.init_process_group(
            "nccl" if cuda else "gloo",
            timeout=datetime.timedelta(minutes=30),
            device_id=where if cuda else None,
        )
    return Place(rank, world, where)


def leave() -> None:
    """Close the process group, where there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def summed(values: torch.Tensor, place: Place) -> torch.Tensor:
    """The sum of a tensor over all processes, in float64 where it is floating (float32 does not count well)."""
    values = values.double() if values.is_floating_point() else values.clone()
    if place.world > 1:
        values = values.to(place.device)
        dist.all_reduce(values)
    return values


def sum_later(values: list[float], place: Place) -> Callable[[], list[float]]:
    """Begin to sum numbers over all processes; the function that is returned waits for the sums.

    What is done in between hides the exchange, which would otherwise cost a small step several percent.
    """
    if place.world == 1:
        return lambda: values
    sums = torch.tensor(values, dtype=torch.float64, device=place.device)
    exchange = dist.all_reduce(sums, async_op=True)

    def wait() -> list[float]:
        exchange.wait()
        return sums.tolist()

    return wait


def from_first(number: int, place: Place) -> int:
    """Rank 0's whole number, on every rank."""
    if place.world == 1:
        return number
    value = torch.tensor(number, device=place.device)
    dist.broadcast(value, src=0)
    return int(value)


def barrier(place: Place) -> None:
    """Wait for all processes."""
    if place.world > 1:
        dist.barrier()


def peak_memory(place: Place) -> int:
    """The most memory this process has held, in bytes: allocated on the GPU, or resident on the CPU."""
    if place.device.type == "cuda":
        return torch.cuda.max_memory_allocated(place.device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
