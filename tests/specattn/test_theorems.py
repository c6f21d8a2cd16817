"""Theorems 3.4, 3.5, 3.8 as properties: what is proved holds on every draw, what is false has a counterexample."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specattn.correction import svd
from specattn.jacobian import attention_jacobian
from specattn.jacobian_spectrum import singular_values
from specattn.theorems import (
    identity_bound,
    kappa,
    softmax_derivative_kappa,
    sufficient_lam,
    theorem_3_4,
    theorem_3_5,
    theorem_3_8,
)

F64 = torch.float64
shapes = st.tuples(st.integers(1, 7), st.integers(1, 7))


def matrix(seed, shape, decay=0.0):
    g = torch.Generator().manual_seed(seed)
    columns = 10.0 ** (-decay * torch.arange(shape[1], dtype=F64))
    return torch.randn(shape, dtype=F64, generator=g) * columns


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**31), shape=shapes, decay=st.sampled_from([0.0, 1.0, 4.0]), lam=st.floats(0.1, 4.0))
def test_3_5_holds_at_the_weights_that_c_was_computed_from(seed, shape, decay, lam):
    weight = matrix(seed, shape, decay)
    before, after = theorem_3_5(weight)
    assert after <= 2 + 1e-12
    assert theorem_3_5(weight, lam)[1] <= (1 + lam) / lam * (1 + 1e-12)
    sigma = torch.linalg.svdvals(weight)
    expected = 2 * sigma[0] / (sigma[-1] + sigma[0])
    assert after == pytest.approx(float(expected), rel=1e-9)
    assert after <= before * (1 + 1e-9)
    # The correction that the library adds is the same one.
    assert after == pytest.approx(kappa(weight + svd(weight[None], 1.0)[0]), rel=1e-9)


def test_3_5_says_nothing_once_the_weights_have_moved():
    weight = matrix(1, (4, 4))
    correction = svd(weight[None], 1.0)[0]
    assert kappa(weight + correction) <= 2 + 1e-12
    moved = weight - correction
    moved[0] += 1e-3
    assert kappa(moved + correction) > 2


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**31), shape=shapes, excess=st.floats(1.01, 20.0))
def test_3_8_the_sufficient_condition_is_never_violated(seed, shape, excess):
    weight = matrix(seed, shape)
    top = float(torch.linalg.svdvals(weight)[0])
    lam = excess * top
    before, (after,) = theorem_3_8(weight, torch.tensor([lam]))
    assert float(after) <= identity_bound(top, lam) * (1 + 1e-9)
    threshold = sufficient_lam(top, before)
    if math.isfinite(threshold) and threshold < 1e6:
        _, (beyond,) = theorem_3_8(weight, torch.tensor([1.001 * threshold], dtype=F64))
        assert float(beyond) < before * (1 + 1e-9)


@pytest.mark.parametrize("lam", [2.0, 10.0])
def test_3_8_is_false_in_general(lam):
    minus = -lam * torch.eye(5, dtype=F64)
    assert theorem_3_8(minus, torch.tensor([lam]))[1].tolist() == [math.inf]
    # Not only where the sum is singular: here both are regular, and λ ≥ 2 makes κ thirty times worse.
    weight = -lam * torch.diag(torch.tensor([1.0, 1.1, 1.2, 1.3], dtype=F64)) * 1.01
    before, (after,) = theorem_3_8(weight, torch.tensor([lam]))
    assert before == pytest.approx(1.3)
    assert float(after) > 20 * before


def test_3_8_bound_is_attained_and_infinite_below_sigma_max():
    weight = torch.diag(torch.tensor([1.0, -1.0], dtype=F64))
    assert float(theorem_3_8(weight, torch.tensor([3.0]))[1]) == pytest.approx(identity_bound(1.0, 3.0)) == 2.0
    assert identity_bound(1.0, 1.0) == identity_bound(1.0, 0.5) == math.inf
    assert sufficient_lam(1.0, math.inf) == 1.0
    assert sufficient_lam(1.0, 1.0) == math.inf


def test_the_softmax_derivative_is_singular_and_its_kappa_is_taken_on_the_rest():
    torch.manual_seed(2)
    p = torch.softmax(torch.randn(4, 6, dtype=F64), -1)
    blocks = torch.block_diag(*[torch.diag(row) - torch.outer(row, row) for row in p])
    values = torch.linalg.eigvalsh(blocks).flip(0)
    assert kappa(blocks) == math.inf
    assert float(values[20].abs()) < 1e-15  # 4 rows · 5 values, then four zeros
    assert softmax_derivative_kappa(p) == pytest.approx(float(values[0] / values[19]), rel=1e-9)
    uniform = torch.full((3, 5), 0.2, dtype=F64)
    assert softmax_derivative_kappa(uniform) == pytest.approx(1.0)
    p[0] = torch.tensor([1.0, 0, 0, 0, 0, 0])
    assert softmax_derivative_kappa(p) == math.inf
    assert softmax_derivative_kappa(torch.ones(2, 1, dtype=F64)) == math.inf


def test_3_4_is_computed_term_by_term():
    torch.manual_seed(3)
    x = torch.randn(4, 6, dtype=F64)
    wq, wk, wv = (torch.randn(6, 3, dtype=F64) for _ in range(3))
    terms = theorem_3_4(attention_jacobian(x, wq, wk, wv), wv)
    p = torch.softmax((x @ wq) @ (x @ wk).mT / 3**0.5, -1)
    expected = {"kappa_x": x, "kappa_wq": wq, "kappa_wk": wk, "kappa_wv": wv, "kappa_softmax": p}
    for name, value in expected.items():
        assert terms[name] == pytest.approx(float(torch.linalg.cond(value)), rel=1e-9)
    weights = terms["kappa_wv"] * (terms["kappa_wq"] + terms["kappa_wk"])
    assert terms["bound"] == pytest.approx(
        terms["kappa_x"] ** 3 * terms["kappa_lambda"] * weights + terms["kappa_x"] * terms["kappa_softmax"]
    )


@pytest.mark.parametrize("seed", range(5))
def test_3_4_on_small_gaussian_heads(seed):
    """On random heads with fewer tokens than channels the bound is finite and, on these draws, holds by far."""
    torch.manual_seed(seed)
    x = torch.randn(6, 8, dtype=F64)
    weights = [torch.randn(8, 4, dtype=F64) / 8**0.5 for _ in range(3)]
    jacobian = attention_jacobian(x, *weights)
    terms = theorem_3_4(jacobian, weights[2])
    assert singular_values(jacobian).kappa < terms["bound"] < math.inf
