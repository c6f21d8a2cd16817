"""The processes of one run: who am I, on which device, and how numbers are summed over all of us."""

import contextlib
import datetime
import os
import resource
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

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


def from_first(number: int, place: Place) -> int:
    """Rank 0's whole number, on every rank."""
    if place.world == 1:
        return number
    value = torch.tensor(number, device=place.device)
    dist.broadcast(value, src=0)
    return int(value)


def share_buffers(model: nn.Module, place: Place) -> None:
    """Give every rank rank 0's buffers: running statistics that are not synchronised differ after each step."""
    if place.world > 1:
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)


def gathered(found: list, place: Place) -> list:
    """All ranks' lists, one after the other, on every rank; every rank must call it."""
    if place.world == 1:
        return found
    parts: list[list] = [[] for _ in range(place.world)]
    dist.all_gather_object(parts, found)
    return [item for part in parts for item in part]


def barrier(place: Place) -> None:
    """Wait for all processes."""
    if place.world > 1:
        dist.barrier()


def peak_memory(place: Place) -> int:
    """The most memory this process has held, in bytes: allocated on the GPU, or resident on the CPU."""
    if place.device.type == "cuda":
        return torch.cuda.max_memory_allocated(place.device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Agreement(nn.Module):
    """A model whose exchange of gradients carries two more numbers: the loss, and whether a process was asked to stop.

    They travel as the gradient of a parameter of their own, so that agreeing costs no exchange of its own (one
    all-reduce more is 3 % of a small step). Without processes to agree with, it only hands the numbers through.

    Args:
        model: what is trained; `exchanging` is what the loss is computed with.
        place: this process.
    """

    def __init__(self, model: nn.Module, place: Place) -> None:
        super().__init__()
        self.model = model
        self.numbers = nn.Parameter(torch.zeros(2, device=place.device))  # stays zero: no optimizer knows it
        self.place = place
        if place.world > 1:
            # Only the statistics of batch normalisation differ between ranks: a correction C need not be sent again.
            normalised = any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())
            devices = [place.device.index] if place.device.type == "cuda" else None
            # A tuple hides it from the modules, of which it would otherwise be a child and a parent.
            self.exchange = (DistributedDataParallel(self, device_ids=devices, forward_sync_buffers=normalised),)

    @property
    def exchanging(self) -> nn.Module:
        """The model to compute the loss with."""
        return self.exchange[0] if self.place.world > 1 else self.model

    def forward(self, *arguments: object, **named: object) -> object:
        """The model's own."""
        return self.model(*arguments, **named)

    def alone(self) -> contextlib.AbstractContextManager:
        """The context of a micro-batch after which nothing is exchanged yet."""
        return self.exchange[0].no_sync() if self.place.world > 1 else contextlib.nullcontext()

    def carrying(self, loss: torch.Tensor, stop: float) -> torch.Tensor:
        """The loss, of unchanged value and gradient, with the numbers hung on to its backward pass."""
        if self.place.world == 1:
            return loss
        return loss + (self.numbers * torch.stack([loss.detach(), loss.new_tensor(stop)])).sum()

    def agreed(self, loss: float, stop: float, scale: float) -> tuple[float, bool]:
        """After the backward pass: the mean loss over all processes, and whether any was asked to stop.

        Args:
            loss, stop: this process's own, summed over micro-batches.
            scale: what the loss was multiplied by before its backward pass.
        """
        if self.place.world == 1:
            return loss, stop > 0
        loss, stop = (self.numbers.grad / scale).tolist()
        self.numbers.grad = None
        return loss, stop > 0
