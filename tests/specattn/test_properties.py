"""Properties over shapes, heads, targets, layouts and dtypes (hypothesis)."""

import copy

import torch
from families import dense_correction
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from specattn import condition, conditioned, corrections, find_projections, fold

METHODS = ("identity", "relative", "svd", "rescale", "orthogonal")
DTYPES = (torch.float64, torch.float32)
TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-4}


class Fused(nn.Module):
    def __init__(self, heads, d, width, kv_heads):
        super().__init__()
        self.num_heads = heads
        self.qkv = nn.Linear(width, 3 * heads * d)

    def forward(self, x):
        return self.qkv(x)


class Separate(nn.Module):
    """Grouped queries: fewer heads for k and v."""

    def __init__(self, heads, d, width, kv_heads):
        super().__init__()
        self.num_heads = heads
        self.q_proj = nn.Linear(width, heads * d)
        self.k_proj = nn.Linear(width, kv_heads * d)
        self.v_proj = nn.Linear(width, kv_heads * d)

    def forward(self, x):
        return torch.cat([self.q_proj(x), self.k_proj(x), self.v_proj(x)], dim=-1)


class Transposed(nn.Module):
    def __init__(self, heads, d, width, kv_heads):
        super().__init__()
        self.num_heads = heads
        self.c_attn = nn.Module()
        self.c_attn.weight = nn.Parameter(torch.randn(width, 3 * heads * d))

    def forward(self, x):
        return x @ self.c_attn.weight


models = st.tuples(
    st.sampled_from([Fused, Separate, Transposed]),
    st.integers(1, 4),  # heads
    st.integers(1, 5),  # d
    st.integers(1, 9),  # width: the projections are wide, square and tall
    st.integers(1, 4),  # heads of k and v
    st.sampled_from(DTYPES),
    st.integers(0, 2**31),
)
targets = st.sets(st.sampled_from("qkv"), min_size=1).map("".join)
calls = st.fixed_dictionaries(
    {
        "lam": st.floats(-3, 3).filter(lambda lam: abs(lam) > 1e-3),
        "method": st.sampled_from(METHODS),
        "layout": st.sampled_from(["matrix", "head"]),
        "targets": targets,
    }
)
quick = settings(max_examples=60, deadline=None, derandomize=True)


def build(spec):
    cls, heads, d, width, kv_heads, dtype, seed = spec
    torch.manual_seed(seed)
    model = cls(heads, d, width, kv_heads).to(dtype)
    return model, torch.randn(3, width, dtype=dtype), TOLERANCE[dtype]


@quick
@given(models, calls)
def test_outputs_and_gradients_are_those_of_the_sum(spec, call):
    model, x, tolerance = build(spec)
    by_hand = copy.deepcopy(model)
    condition(model, **call)
    found = corrections(model)
    assert {name[-1] for name in found} == set(call["targets"])
    with torch.no_grad():
        for p in find_projections(by_hand):
            if p.which in call["targets"]:
                c = found[p.name].dense(p.weight.dtype)
                if call["method"] != "orthogonal":
                    blocks = p.heads if call["layout"] == "head" else 1
                    expected = dense_correction(p.weight, call["method"], call["lam"], blocks)
                    torch.testing.assert_close(c, expected, rtol=tolerance, atol=tolerance)
                p.weight.add_(c)
    x, y = x.clone().requires_grad_(), x.clone().requires_grad_()
    output, expected = model(x), by_hand(y)
    torch.testing.assert_close(output, expected, rtol=tolerance, atol=tolerance)
    output.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=tolerance, atol=10 * tolerance)
    for p, q in zip(model.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=tolerance, atol=10 * tolerance)


@quick
@given(models, calls)
def test_state_round_trip_and_fold(spec, call):
    model, x, tolerance = build(spec)
    plain = copy.deepcopy(model)
    condition(model, **call)
    expected = model(x)
    for key, value in plain.state_dict().items():
        assert torch.equal(model.state_dict()[key], value)
    other, _, _ = build((*spec[:-1], spec[-1] + 1))
    condition(other, **call).load_state_dict(model.state_dict())
    assert torch.equal(other(x), expected)
    assert conditioned(other) == conditioned(model)
    fold(model)
    assert [type(m) for m in model.modules()] == [type(m) for m in plain.modules()]
    torch.testing.assert_close(model(x), expected, rtol=tolerance, atol=tolerance)


@quick
@given(models, calls)
def test_lam_zero_is_the_plain_model(spec, call):
    model, x, _ = build(spec)
    plain = copy.deepcopy(model)
    condition(model, **call | {"lam": 0})
    assert [type(m) for m in model.modules()] == [type(m) for m in plain.modules()]
    assert list(model.state_dict()) == list(plain.state_dict())
    assert torch.equal(model(x), plain(x))


@quick
@given(models, st.floats(0.05, 4), st.sampled_from(["matrix", "head"]))
def test_singular_values_under_svd_are_raised_by_lam_sigma_max(spec, lam, layout):
    """Theorem 3.5, with λ in place of 1."""
    model, _, tolerance = build(spec)
    plain = {p.name: torch.linalg.svdvals(p.blocks(p.weight.detach(), layout)) for p in find_projections(model)}
    condition(model, lam, "svd", layout)
    for p in find_projections(model):
        s = plain[p.name]
        found = torch.linalg.svdvals(p.blocks(p.effective_weight, layout))
        torch.testing.assert_close(found, s + lam * s[:, :1], rtol=tolerance, atol=tolerance)
        assert (found[:, 0] / found[:, -1] <= (1 + lam) / lam * (1 + tolerance)).all()
