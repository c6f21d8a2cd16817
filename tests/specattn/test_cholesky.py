"""The float32 factor as a preconditioner: the smallest eigenvector to float64, or an honest None."""

import pytest
import torch

from specattn import jacobian_extremes
from specattn.cholesky import smallest_by_float32
from specattn.jacobian import attention_jacobian
from specattn.jacobian_extremes import extreme_singular_values
from specattn.jacobian_spectrum import singular_values


def spectrum_matrix(values):
    """A symmetric float64 matrix with the given eigenvalues in a random basis."""
    generator = torch.Generator().manual_seed(1)
    basis = torch.linalg.qr(torch.randn(len(values), len(values), generator=generator, dtype=torch.float64))[0]
    return basis @ torch.diag(values) @ basis.mT, basis


@pytest.mark.parametrize("smallest", [[1.0, 2.0], [1.0, 1.0 + 1e-6], [1.0, 1.0]])
def test_it_finds_the_smallest_also_beside_a_close_one(smallest):
    values = torch.cat([torch.tensor(smallest), torch.linspace(3, 1e4, 198)]).double()
    matrix, _ = spectrum_matrix(values)
    vector = smallest_by_float32(matrix.clone(), lambda v: matrix @ v, None, values.max().sqrt().item())
    assert vector @ matrix @ vector == pytest.approx(1.0, rel=1e-9)
    assert vector.norm().item() == pytest.approx(1.0)


def test_a_matrix_beyond_float32_is_left_to_float64():
    values = torch.cat([torch.tensor([1e-12]), torch.linspace(1, 2, 99)]).double()
    matrix, _ = spectrum_matrix(values)
    found = smallest_by_float32(matrix.clone(), lambda v: matrix @ v, None, 2**0.5)
    assert found is None or found @ matrix @ found == pytest.approx(1e-12, rel=1e-3)
    assert smallest_by_float32(-matrix, lambda v: -matrix @ v, None, 2**0.5) is None


def test_a_known_null_space_is_left_out():
    values = torch.cat([torch.zeros(3), torch.linspace(1, 50, 97)]).double()
    matrix, basis = spectrum_matrix(values)
    null, top = basis[:, :3], 50**0.5
    deflated = matrix + top**2 * null @ null.mT
    vector = smallest_by_float32(deflated, lambda v: matrix @ v, null, top)
    assert vector @ matrix @ vector == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize(("tokens", "width", "head"), [(12, 10, 4), (24, 6, 3)])  # the Gram matrix of rows, of columns
def test_large_and_small_jacobians_take_different_ways_to_the_same_extremes(tokens, width, head, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(tokens, width, generator=generator, dtype=torch.float64)
    weights = [torch.randn(width, head, generator=generator, dtype=torch.float64) / width**0.5 for _ in range(3)]
    jacobian = attention_jacobian(x, *weights)
    monkeypatch.setattr(jacobian_extremes, "_LARGE", 0)
    found, reference = extreme_singular_values(jacobian), singular_values(jacobian)
    assert found.sigma_max == pytest.approx(reference.sigma_max, rel=1e-8)
    assert found.sigma_min == pytest.approx(reference.sigma_min, rel=1e-8)
    assert found.rank == reference.rank
