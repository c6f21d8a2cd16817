"""Two processes that train one conditioned model: the corrections are those of rank 0, and gradients average."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from specattn import condition, conditioned, corrections

STEPS, LR = 3, 0.1


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.num_heads = 2
        self.qkv = nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return nn.functional.scaled_dot_product_attention(q, k, v)


def model(seed, method):
    torch.manual_seed(seed)
    return condition(Attention().double(), 0.5, method)


def batch():
    return torch.randn(4, 5, 8, generator=torch.Generator().manual_seed(7), dtype=torch.float64)


def train(module, x):
    optimizer = torch.optim.SGD(module.parameters(), lr=LR)
    for _ in range(STEPS):
        optimizer.zero_grad()
        module(x).square().mean().backward()
        optimizer.step()


def worker(rank, rendezvous, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    for method in ("identity", "relative", "svd"):
        # The ranks start from different weights on purpose. Corrections are not sent again at every step.
        ddp = DistributedDataParallel(model(rank, method), forward_sync_buffers=False)
        train(ddp, batch().chunk(2)[rank])
        assert conditioned(ddp)["method"] == method
        torch.save(ddp.module.state_dict(), os.path.join(folder, f"{method}-{rank}.pt"))
    dist.destroy_process_group()


def test_two_processes_equal_one(tmp_path):
    mp.spawn(worker, args=(tmp_path / "rendezvous", tmp_path), nprocs=2)
    for method in ("identity", "relative", "svd"):
        alone = model(0, method)
        before = {name: c.dense(torch.float64).clone() for name, c in corrections(alone).items()}
        train(alone, batch())
        for rank in (0, 1):
            other = model(5, method)
            other.load_state_dict(torch.load(tmp_path / f"{method}-{rank}.pt", weights_only=True))
            for p, q in zip(other.parameters(), alone.parameters(), strict=True):
                torch.testing.assert_close(p, q, rtol=0, atol=1e-12)
            for name, correction in corrections(other).items():
                assert torch.equal(correction.dense(torch.float64), before[name])
