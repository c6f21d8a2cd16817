"""Singular values and extremes of the Jacobian against the SVD of torch.func.jacrev, floors and ranks included."""

import json
import math
import warnings

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from specattn.cholesky import cholesky_in_place
from specattn.jacobian import attention_jacobian
from specattn.jacobian_extremes import _above, extreme_singular_values
from specattn.jacobian_spectrum import resolution_floor, singular_values
from specattn.lanczos import NotConvergedError, largest_eigenpair

F64 = torch.float64
EPS = torch.finfo(F64).eps


def head(seed, n, width, d, bias=False, spread=1.0):
    """A random head and the singular values of its Jacobian by jacrev and svdvals."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, width, dtype=F64, generator=g)
    weights = [spread * torch.randn(width, d, dtype=F64, generator=g) / width**0.5 for _ in range(3)]
    biases = tuple(torch.randn(d, dtype=F64, generator=g) if bias else None for _ in range(3))

    def attention(*w):
        q, k, v = (x @ m if b is None else x @ m + b for m, b in zip(w, biases, strict=True))
        return torch.softmax(q @ k.mT / d**0.5, -1) @ v

    blocks = torch.func.jacrev(attention, argnums=(0, 1, 2))(*weights)
    sigma = torch.linalg.svdvals(torch.cat([b.reshape(n * d, -1) for b in blocks], 1))
    return attention_jacobian(x, *weights, biases=biases), sigma


cases = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**31),
        "n": st.integers(2, 16),
        "width": st.integers(4, 12),
        "d": st.integers(1, 4),
        "bias": st.booleans(),
        "spread": st.sampled_from([0.3, 1.0, 2.0]),
    }
)


def assert_close_to_kappa_squared(value, truth, kappa, floor_share=10):
    """The issue's bound: 1e-8, or 10 ε κ² where that is larger."""
    assert value == pytest.approx(truth, rel=max(1e-8, floor_share * EPS * kappa**2))


@settings(max_examples=60, deadline=None)
@given(case=cases)
def test_all_values_and_extremes_agree_with_jacrev(case):
    jacobian, truth = head(**case)
    truth = truth[: jacobian.max_rank]
    kappa = float(truth[0] / truth[-1])
    every, extremes = singular_values(jacobian), extreme_singular_values(jacobian)
    # Eigenvalues of the Gram are good to n ε σ_max²; near zero that is √(n ε) σ_max in the singular value.
    assert float((every.values**2 - truth**2).abs().max()) < 20 * min(jacobian.shape) * EPS * float(truth[0]) ** 2
    for found in (every, extremes):
        assert found.sigma_max == pytest.approx(float(truth[0]), rel=1e-8)
        assert found.count == len(truth) == jacobian.max_rank
        assert found.floor == pytest.approx(resolution_floor(float(truth[0]), jacobian.shape, F64, "gram"), rel=1e-6)
        if float(truth[-1]) > 2 * found.floor:
            assert found.rank == found.count
            assert_close_to_kappa_squared(found.sigma_min, float(truth[-1]), kappa)
            assert_close_to_kappa_squared(found.kappa, kappa, kappa)
            assert found.kappa_nonzero == found.kappa
        elif float(truth[-1]) < found.floor / 2:
            assert found.sigma_min is None
            assert found.kappa == math.inf
            assert found.rank < found.count


@settings(max_examples=30, deadline=None)
@given(case=cases)
@example(case={"seed": 6, "n": 2, "width": 6, "d": 3, "bias": True, "spread": 2.0})
def test_the_slow_path_resolves_what_the_gram_cannot(case):
    jacobian, truth = head(**case)
    truth = truth[: jacobian.max_rank]
    for found in (singular_values(jacobian, resolve=True), extreme_singular_values(jacobian, resolve=True)):
        if float(truth[-1]) > 100 * found.floor:
            share = max(1e-8, 100 * found.floor / float(truth[-1]))
            assert found.sigma_min == pytest.approx(float(truth[-1]), rel=share)
            assert found.rank == found.count
        assert found.floor < 1e-10 * found.sigma_max


def test_both_sides_of_the_gram_matrix_are_used_and_the_gauge_is_set_aside():
    for shape, side in (((4, 12, 4), "rows"), ((16, 5, 3), "columns")):
        jacobian, truth = head(1, *shape)
        found = extreme_singular_values(jacobian)
        assert found.side == side
        assert found.kappa == pytest.approx(float(truth[0] / truth[jacobian.max_rank - 1]), rel=1e-8)
    # 3 · 5 · 3 = 45 columns of which 9 do nothing: κ is not the ratio to the 45th value, which is rounding.
    assert jacobian.max_rank == 36 < 45
    assert float(truth[36]) < 1e-12


def near_floor(power):
    """A head whose σ_min lies between the floors of the Gram matrix and of the SVD: two tokens nearly coincide."""
    g = torch.Generator().manual_seed(2)
    x = torch.randn(6, 10, dtype=F64, generator=g)
    x[1] = x[0] + 10.0**-power * torch.randn(10, dtype=F64, generator=g)
    weights = [torch.randn(10, 3, dtype=F64, generator=g) / 10**0.5 for _ in range(3)]
    return attention_jacobian(x, *weights)


def test_below_the_floor_kappa_is_infinite_and_rank_and_kappa_nonzero_say_why():
    jacobian = near_floor(10)
    truth = torch.linalg.svdvals(jacobian.matrix())
    for found in (singular_values(jacobian), extreme_singular_values(jacobian)):
        assert found.sigma_min is None
        assert found.kappa == math.inf
        assert found.rank == int((truth > found.floor).sum()) == 15
        assert found.kappa_nonzero == pytest.approx(float(truth[0] / truth[14]), rel=1e-6)
        assert found.relative_error == math.inf
    for found in (singular_values(jacobian, resolve=True), extreme_singular_values(jacobian, resolve=True)):
        assert found.rank == 18
        assert found.kappa == pytest.approx(float(truth[0] / truth[-1]), rel=1e-4)
        assert found.method == "svd"


def test_exactly_dependent_rows_are_counted_by_either_path():
    jacobian = near_floor(400)  # 10^-400 is zero in float64: two equal tokens, three rows twice
    for resolve in (False, True):
        found = extreme_singular_values(jacobian, resolve)
        assert (found.rank, found.count, found.kappa) == (15, 18, math.inf)
        assert found.kappa_nonzero == pytest.approx(singular_values(jacobian, resolve).kappa_nonzero, rel=1e-6)


def test_a_zero_jacobian_is_reported_not_divided_by():
    x = torch.zeros(3, 5, dtype=F64)
    w = torch.ones(5, 2, dtype=F64)
    for function in (singular_values, extreme_singular_values):
        found = function(attention_jacobian(x, w, w, w))
        assert (found.sigma_max, found.rank, found.sigma_min, found.kappa) == (0.0, 0, None, math.inf)


@pytest.mark.parametrize("parts", ["q", "k", "v"])
def test_the_three_parts_have_their_own_spectra(parts):
    jacobian, _ = head(4, 12, 6, 3)
    part = jacobian.part(parts)
    truth = torch.linalg.svdvals(part.matrix())
    found = singular_values(part)
    assert found.count == min(part.shape)
    floor = found.floor
    torch.testing.assert_close(found.values[truth > floor], truth[truth > floor], atol=floor, rtol=1e-6)
    extremes = extreme_singular_values(part)
    assert extremes.rank == found.rank
    assert extremes.kappa_nonzero == pytest.approx(found.kappa_nonzero, rel=1e-5)


def test_the_record_is_plain():
    record = singular_values(head(5, 4, 6, 2)[0]).record()
    assert json.loads(json.dumps(record)) == record
    assert "values" not in record


def test_agreement_with_scipy_svds_on_a_mid_size_case():
    linalg = pytest.importorskip("scipy.sparse.linalg")
    jacobian, _ = head(6, 24, 16, 8)
    rows, columns = jacobian.shape
    operator = linalg.LinearOperator(
        (rows, columns),
        matvec=lambda w: jacobian.matvec(torch.from_numpy(w).reshape(-1)).numpy(),
        rmatvec=lambda u: jacobian.rmatvec(torch.from_numpy(u).reshape(-1)).numpy(),
        dtype="float64",
    )
    top = linalg.svds(operator, k=3, return_singular_vectors=False, random_state=0)
    assert extreme_singular_values(jacobian).sigma_max == pytest.approx(top.max(), rel=1e-10)
    mine = singular_values(jacobian).values[:3].tolist()
    assert mine == pytest.approx(sorted(top.tolist(), reverse=True), rel=1e-10)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # what it uses of torch is deprecated
def test_agreement_with_curvlinops_on_a_mid_size_case():
    """Their Jacobian operator is built by autograd from the model alone and shares no code with ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own imports use what torch deprecates
        curvlinops = pytest.importorskip("curvlinops")
    torch.manual_seed(7)
    n, width, d = 12, 10, 4
    x = torch.randn(n, width, dtype=F64)

    class Head(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.ParameterList([torch.randn(width, d, dtype=F64) / width**0.5 for _ in range(3)])

        def forward(self, tokens):
            q, k, v = (tokens @ w for w in self.w)
            return torch.softmax(q @ k.mT / d**0.5, -1) @ v

    model = Head()
    operator = curvlinops.JacobianLinearOperator(model, list(model.parameters()), [(x[None], torch.zeros(1))])
    dense = operator @ torch.eye(operator.shape[1], dtype=F64)
    truth = torch.linalg.svdvals(dense.detach())
    jacobian = attention_jacobian(x, *(p.detach() for p in model.w))
    torch.testing.assert_close(singular_values(jacobian, resolve=True).values, truth[: jacobian.max_rank])
    assert extreme_singular_values(jacobian).kappa == pytest.approx(float(truth[0] / truth[47]), rel=1e-8)


def test_lanczos_finds_the_largest_through_a_cluster_and_says_when_it_cannot():
    torch.manual_seed(8)
    basis = torch.linalg.qr(torch.randn(60, 60, dtype=F64))[0]
    values = torch.cat([torch.linspace(0, 1, 40), 1 + 1e-9 * torch.arange(20)]).double()
    matrix = basis * values @ basis.mT
    theta, vector = largest_eigenpair(lambda v: matrix @ v, 60, basis, tolerance=1e-8)
    assert theta == pytest.approx(1 + 19e-9, rel=2e-8)
    assert float((matrix @ vector - theta * vector).norm()) < 1e-7
    # A matrix of the opposite sign: the largest eigenvalue is the one nearest zero, not the one largest in size.
    assert largest_eigenpair(lambda v: -(matrix @ v), 60, basis)[0] == pytest.approx(0.0, abs=1e-9)
    with pytest.raises(NotConvergedError, match="relative error"):
        largest_eigenpair(lambda v: values.diag() @ v, 60, basis, tolerance=1e-14, block=2, max_basis=4)


@settings(max_examples=80, deadline=None)
@given(
    order=st.sampled_from([6, 20, 64, 65, 120]),
    outside=st.integers(1, 5),
    spread=st.sampled_from([1e-7, 1e-6, 1e-5, 1e-4]),
    low=st.sampled_from([0.1, 0.8]),
    seed=st.integers(0, 2**31),
)
@example(order=100, outside=3, spread=1e-6, low=0.8, seed=0)
def test_lanczos_finds_the_largest_of_a_cluster_that_is_nearly_everything(order, outside, spread, low, seed):
    """A first block that meets one member of the cluster, and no other, must not take what is below it for the next."""
    g = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(order, order, dtype=F64, generator=g))[0]
    cluster = 1 - spread * torch.rand(order - outside, dtype=F64, generator=g)
    values = torch.cat([cluster, low * torch.rand(outside, dtype=F64, generator=g)])
    matrix = basis * values @ basis.mT
    assert largest_eigenpair(lambda v: matrix @ v, order, basis)[0] == pytest.approx(float(cluster.max()), rel=1e-8)


@pytest.mark.parametrize(("order", "block"), [(7, 3), (9, 3), (5, 8), (1, 1)])
def test_the_blocked_cholesky_is_the_cholesky_and_reads_the_lower_triangle_alone(order, block):
    torch.manual_seed(9)
    root = torch.randn(order, order, dtype=F64)
    matrix = root @ root.mT + torch.eye(order, dtype=F64)
    given = torch.where(torch.ones_like(matrix, dtype=torch.bool).tril(), matrix, math.nan)
    assert cholesky_in_place(given, block)
    torch.testing.assert_close(given.tril(), torch.linalg.cholesky(matrix))
    matrix[-1, -1] = -1.0
    assert not cholesky_in_place(matrix, block)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), order=st.integers(2, 40), zeros=st.integers(1, 20), decades=st.floats(0.0, 10.0))
def test_the_smallest_eigenvalue_above_the_floor_is_found_wherever_it_lies(seed, order, zeros, decades):
    """Zeros and a spectrum that ends anywhere between the largest value and the floor."""
    g = torch.Generator().manual_seed(seed)
    total = order + zeros
    values = torch.cat([torch.zeros(zeros, dtype=F64), torch.logspace(-decades, 0, order, dtype=F64)])
    basis = torch.linalg.qr(torch.randn(total, total, dtype=F64, generator=g))[0]
    gram = basis * values @ basis.mT
    floor = 1e-12
    count, smallest = _above((gram + gram.mT) / 2, floor, 1.0, basis)
    assert count == order
    assert smallest == pytest.approx(float(10.0**-decades), rel=1e-8 + 1e-14 * 10.0**decades)
