"""`linear_plus_diagonal` against a dense C, in every mode of differentiation, and what it keeps and allocates."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from specattn import condition
from specattn.diagonal import linear_plus_diagonal

# outputs, inputs, runs (start, stop, rows of a block)
SHAPES = [
    (12, 4, ((0, 12, 4),)),
    (12, 4, ((4, 8, 4),)),
    (12, 6, ((0, 4, 2), (8, 12, 2))),
    (6, 4, ((0, 6, 6),)),
    (12, 4, ((0, 4, 2), (4, 12, 8))),
    (10, 5, ((0, 10, 2),)),
]
torch_warns_about_itself = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:FutureWarning")


def example(outputs, inputs, runs, with_sigma):
    torch.manual_seed(0)
    blocks = sum((stop - start) // rows for start, stop, rows in runs)
    sigma = torch.rand(blocks, dtype=torch.float64) if with_sigma else None
    c = torch.zeros(outputs, inputs, dtype=torch.float64)
    block = 0
    for start, stop, rows in runs:
        for first in range(start, stop, rows):
            for i in range(min(rows, inputs)):
                c[first + i, i] = 0.7 * (1 if sigma is None else sigma[block])
            block += 1
    x, w, b = (torch.randn(*s, dtype=torch.float64) for s in ((2, 3, inputs), (outputs, inputs), (outputs,)))
    return (
        lambda x, w, b: linear_plus_diagonal(x, w, b, runs, 0.7, sigma),
        lambda x, w, b: F.linear(x, w + c, b),
        (x, w, b),
    )


@torch_warns_about_itself
@pytest.mark.parametrize("with_sigma", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_value_and_every_derivative(shape, with_sigma):
    function, dense, arguments = example(*shape, with_sigma)
    torch.testing.assert_close(function(*arguments), dense(*arguments), rtol=0, atol=1e-13)
    leaves = [t.clone().requires_grad_() for t in arguments]
    assert torch.autograd.gradcheck(function, leaves, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(function, leaves)
    x, w, b = arguments
    torch.testing.assert_close(torch.func.vmap(lambda x: function(x, w, b))(x), dense(x, w, b))
    for jacobian in (torch.func.jacrev, torch.func.jacfwd):
        found, expected = (jacobian(f, argnums=(0, 1, 2))(*arguments) for f in (function, dense))
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 5, 3, 4), (0, 4)])
def test_any_number_of_leading_dimensions(shape):
    function, dense, (_, w, b) = example(*SHAPES[0], with_sigma=False)
    x = torch.randn(*shape, dtype=torch.float64, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    function(x, w, b).square().sum().backward()
    dense(y, w, b).square().sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.parametrize("wanted", [(True, False, False), (False, True, False), (False, False, True)])
def test_gradients_are_computed_where_they_are_wanted_alone(wanted):
    function, dense, arguments = example(*SHAPES[0], with_sigma=True)
    first, second = ([t.clone().requires_grad_(w) for t, w in zip(arguments, wanted, strict=True)] for _ in range(2))
    function(*first).square().sum().backward()
    dense(*second).square().sum().backward()
    for p, q in zip(first, second, strict=True):
        assert (p.grad is None) == (q.grad is None)
        if p.grad is not None:
            torch.testing.assert_close(p.grad, q.grad)


def test_does_not_poison_the_autocast_cache():
    # A cast made without a gradient would be handed to the next user of the same weight, who then trains nothing.
    layer = nn.Linear(4, 4)
    x = torch.randn(2, 4)
    with torch.autocast("cpu", torch.bfloat16):
        linear_plus_diagonal(x, layer.weight, layer.bias, ((0, 4, 4),), 1.0, None)
        F.linear(x, layer.weight).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.abs().sum() > 0


def test_nothing_more_is_kept_for_the_backward_pass():
    torch.manual_seed(0)
    attention = nn.Module()
    attention.qkv = nn.Linear(16, 48)
    attention.num_heads = 4
    x = torch.randn(3, 5, 16, requires_grad=True)

    def kept():
        found = {}
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t: found.setdefault(t.untyped_storage().data_ptr(), t.nbytes) and t, lambda t: t
        ):
            attention.qkv(x).sum()
        return sum(found.values())

    plain = kept()
    condition(attention, 10.0)
    assert kept() == plain
