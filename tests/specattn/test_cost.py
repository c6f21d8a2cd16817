"""The cost that does not depend on the clock: memory of a training step, and that the benchmark itself runs."""

from argparse import Namespace

import pytest
import torch

from scripts import bench_overhead, numerics


@pytest.fixture
def small():
    torch.manual_seed(0)
    yield Namespace(model="test_vit", batch=2, precision="float32", rounds=2, device="cpu")
    torch.set_flush_denormal(False)


def test_identity_allocates_at_most_one_percent_more(small):
    bench = bench_overhead.Bench(small)
    peak = {v: bench.as_variant(v, bench.peak_bytes) for v in ("plain", "plain again", "identity", "parametrize")}
    assert peak["plain again"] == peak["plain"]
    assert peak["identity"] <= 1.01 * peak["plain"]
    assert peak["parametrize"] > 1.01 * peak["plain"]  # the measure sees a W + C that is kept


def test_the_benchmark_reports_every_variant(small):
    report = "\n".join(bench_overhead.measure(small))
    for variant in ("plain again", "identity", "svd", "parametrize"):
        assert f"| {variant} |" in report
    assert "equal to the plain model's: True" in report


def test_the_mechanism_chosen_is_the_most_accurate(monkeypatch):
    monkeypatch.setattr(numerics, "TOKENS", 1024)
    monkeypatch.setattr(numerics, "SEEDS", 1)
    errors = numerics.measure(10.0, torch.bfloat16)
    weight, rounded, chosen = errors.values()
    for quantity, error in chosen.items():
        assert error <= 1.02 * min(weight[quantity], rounded[quantity]), quantity
    assert weight["diagonal of W"] > 0.5
    assert chosen["diagonal of W"] < 0.1
