"""Theorem 3.3 in closed form against torch.func.jacrev in float64, as properties over shapes, scales and biases."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specattn.jacobian import AttentionJacobian, attention_jacobian, multihead_jacobian

F64 = torch.float64


def draw(seed, n, width, head, bias=False, spread=1.0):
    """X, (W_Q, W_K, W_V), biases."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, width, dtype=F64, generator=g)
    weights = tuple(spread * torch.randn(width, head, dtype=F64, generator=g) / width**0.5 for _ in range(3))
    biases = tuple(torch.randn(head, dtype=F64, generator=g) if bias else None for _ in range(3))
    return x, weights, biases


def attention(x, weights, biases=(None,) * 3, scale=1.0, mask=0.0):
    q, k, v = (x @ w if b is None else x @ w + b for w, b in zip(weights, biases, strict=True))
    return torch.softmax(scale * q @ k.mT + mask, -1) @ v


def dense_reference(x, weights, **kwargs):
    blocks = torch.func.jacrev(lambda *w: attention(x, w, **kwargs), argnums=(0, 1, 2))(*weights)
    rows = x.shape[0] * weights[0].shape[1]
    return torch.cat([b.reshape(rows, -1) for b in blocks], 1)


cases = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**31),
        "n": st.integers(2, 9),
        "width": st.integers(4, 8),
        "head": st.integers(1, 4),
        "bias": st.booleans(),
        "spread": st.sampled_from([0.1, 1.0, 3.0]),
    }
)


@settings(max_examples=40, deadline=None)
@given(case=cases, scale=st.sampled_from([None, 1.0, 0.3]))
def test_matrix_and_both_linear_maps_agree_with_jacrev(case, scale):
    x, weights, biases = draw(**case)
    value = case["head"] ** -0.5 if scale is None else scale
    reference = dense_reference(x, weights, biases=biases, scale=value)
    jacobian = attention_jacobian(x, *weights, scale=scale, biases=biases)
    tolerance = 1e-12 * max(1.0, float(reference.abs().max()))
    assert jacobian.shape == tuple(reference.shape)
    torch.testing.assert_close(jacobian.matrix(), reference, atol=tolerance, rtol=1e-11)
    w = torch.randn(3, reference.shape[1], dtype=F64)
    u = torch.randn(2, 3, reference.shape[0], dtype=F64)
    torch.testing.assert_close(jacobian.matvec(w), w @ reference.mT, atol=50 * tolerance, rtol=1e-10)
    torch.testing.assert_close(jacobian.rmatvec(u), u @ reference, atol=50 * tolerance, rtol=1e-10)
    assert jacobian.squared_norm() == pytest.approx(float(reference.square().sum()), rel=1e-11)


@settings(max_examples=40, deadline=None)
@given(case=cases, parts=st.sampled_from(["q", "k", "v", "qk", "qv", "kv", "qkv"]))
def test_gram_matrices_agree_with_the_dense_products_for_every_subset_of_parts(case, parts):
    x, weights, biases = draw(**case)
    jacobian = attention_jacobian(x, *weights, biases=biases).part(parts)
    dense = jacobian.matrix()
    tolerance = 1e-12 * max(1.0, float(dense.square().sum()))
    torch.testing.assert_close(jacobian.row_gram().tril(), (dense @ dense.mT).tril(), atol=tolerance, rtol=1e-11)
    torch.testing.assert_close(jacobian.column_gram(), dense.mT @ dense, atol=tolerance, rtol=1e-11)
    assert jacobian.part("".join(reversed(parts))).parts == parts


def test_row_gram_is_the_same_in_several_blocks_of_rows(monkeypatch):
    x, weights, biases = draw(3, 9, 8, 4)
    jacobian = attention_jacobian(x, *weights, biases=biases)
    whole = jacobian.row_gram().tril()
    monkeypatch.setattr("specattn.jacobian_gram._ROWS", 8)
    torch.testing.assert_close(jacobian.row_gram().tril(), whole)


def test_column_blocks_put_together_are_the_matrix():
    x, weights, _ = draw(4, 6, 8, 3)
    jacobian = attention_jacobian(x, *weights)
    torch.testing.assert_close(torch.cat(list(jacobian.column_blocks(entries=1)), 1), jacobian.matrix())


@settings(max_examples=25, deadline=None)
@given(case=cases)
def test_the_gauge_directions_are_orthonormal_and_do_nothing(case):
    x, weights, biases = draw(**case)
    jacobian = attention_jacobian(x, *weights, biases=biases)
    basis = jacobian.gauge_basis()
    head = case["head"]
    expected = head**2 - head * case["bias"]
    assert jacobian.gauge_dim == expected
    if expected:
        assert basis.shape == (jacobian.shape[1], expected)
        torch.testing.assert_close(basis.mT @ basis, torch.eye(expected, dtype=F64), atol=1e-12, rtol=0)
        reference = dense_reference(x, weights, biases=biases, scale=head**-0.5)
        assert float((reference @ basis).abs().max()) < 1e-12 * max(1.0, float(reference.abs().max()))


@pytest.mark.parametrize("bias", [False, True])
def test_nothing_but_the_gauge_is_lost_when_there_are_many_tokens(bias):
    """Column rank is exactly 3 D d − d² (d more with a query bias): the bound that κ counts by is attained."""
    x, weights, biases = draw(5, 24, 5, 3, bias)
    jacobian = attention_jacobian(x, *weights, biases=biases)
    reference = dense_reference(x, weights, biases=biases, scale=3**-0.5)
    assert reference.shape[0] > jacobian.max_rank
    assert int(torch.linalg.matrix_rank(reference)) == jacobian.max_rank == 3 * 5 * 3 - 9 + 3 * bias


def test_reduced_keeps_the_singular_values_and_narrows_x():
    x, weights, biases = draw(6, 4, 9, 3, True)
    jacobian = attention_jacobian(x, *weights, biases=biases)
    reduced = jacobian.reduced()
    assert reduced.x_ND.shape == (4, 4)
    before, after = (torch.linalg.svdvals(j.matrix()) for j in (jacobian, reduced))
    torch.testing.assert_close(before, after, atol=1e-12, rtol=1e-10)


def test_a_mask_is_part_of_the_attention():
    x, weights, _ = draw(7, 6, 8, 3)
    mask = torch.full((6, 6), float("-inf"), dtype=F64).triu(1)
    reference = dense_reference(x, weights, scale=0.5, mask=mask)
    jacobian = attention_jacobian(x, *weights, scale=0.5, mask=mask)
    torch.testing.assert_close(jacobian.matrix(), reference, atol=1e-12, rtol=1e-11)


def test_a_multi_head_layer_is_block_diagonal_over_heads():
    torch.manual_seed(8)
    n, width, heads, head = 5, 8, 2, 4
    x = torch.randn(n, width, dtype=F64)
    weights = torch.randn(3, heads, width, head, dtype=F64) / 3
    biases = torch.randn(3, heads, head, dtype=F64)

    def layer(w):
        q, k, v = (x @ w + biases[:, :, None]).unbind(0)
        return (torch.softmax(q @ k.mT / head**0.5, -1) @ v).transpose(0, 1)  # N, H, d

    reference = torch.func.jacrev(layer)(weights)  # N, H, d, 3, H, D, d
    blocks = multihead_jacobian(x, *weights, biases=tuple(biases))
    for h, block in enumerate(blocks):
        mine = reference[:, h, :, :, h].reshape(n * head, -1)
        torch.testing.assert_close(block.matrix(), mine, atol=1e-12, rtol=1e-11)
        assert not reference[:, h, :, :, 1 - h].any()
    union = torch.cat([torch.linalg.svdvals(b.matrix()) for b in blocks]).sort(descending=True).values
    whole = torch.linalg.svdvals(reference.reshape(n * heads * head, -1))[: len(union)]
    torch.testing.assert_close(union, whole, atol=1e-12, rtol=1e-9)


def test_shapes_that_do_not_fit_are_refused_in_words():
    x, (wq, wk, wv), _ = draw(9, 4, 6, 3)
    with pytest.raises(ValueError, match="width 6 but the projections take 5"):
        attention_jacobian(x, wq[:5], wk[:5], wv[:5])
    with pytest.raises(ValueError, match="must be"):
        attention_jacobian(x, wq, wk[:, :2], wv)
    with pytest.raises(ValueError, match="d must be at most D"):
        attention_jacobian(x[:, :2], wq[:2], wk[:2], wv[:2])
    jacobian: AttentionJacobian = attention_jacobian(x, wq, wk, wv)
    for parts in ("", "x", "qq"):
        with pytest.raises(ValueError, match="letters of 'qkv'"):
            jacobian.part(parts)
