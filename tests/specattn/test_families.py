"""Every family of attention against weights that were replaced by W + C by hand, in float64."""

import copy

import pytest
import torch
from families import build, correct_by_hand, every_family, run

from specattn import condition, fold


@every_family
@pytest.mark.parametrize(
    ("method", "layout", "targets"),
    [("identity", "matrix", "qkv"), ("identity", "head", "v"), ("svd", "head", "qkv"), ("relative", "matrix", "qv")],
)
def test_conditioned_equals_weights_replaced_by_hand(case, method, layout, targets):
    model, inputs = build(case)
    before = run(model, inputs)
    reference = copy.deepcopy(model)
    correct_by_hand(case, reference, method, 0.7, layout, targets)
    condition(model, 0.7, method, layout, targets)

    output, expected = run(model, inputs), run(reference, inputs)
    assert not torch.allclose(before, expected, atol=1e-6)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)
    output.square().sum().backward()
    expected.square().sum().backward()
    for (name, p), (name_expected, q) in zip(model.named_parameters(), reference.named_parameters(), strict=True):
        assert name == name_expected
        if q.grad is None:
            assert p.grad is None
        else:
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-10, atol=1e-11, msg=name)

    # Without gradients torch's own modules take a fast path that reads the weight itself.
    with torch.no_grad():
        torch.testing.assert_close(run(model, inputs), expected, rtol=0, atol=1e-12)

    # Nothing but the targets was touched, biases included.
    fold(model)
    assert [type(m) for m in model.modules()] == [type(m) for m in reference.modules()]
    for (name, value), (_, expected_value) in zip(
        model.state_dict().items(), reference.state_dict().items(), strict=True
    ):
        torch.testing.assert_close(value, expected_value, rtol=0, atol=1e-13, msg=name)
