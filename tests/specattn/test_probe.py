"""`probe=`: a warning where the call has saturated attention, none where it has not."""

import warnings

import pytest
from families import BY_NAME, build, run

from specattn import condition


def test_saturated_attention_is_warned_about_and_the_model_is_left_as_conditioned():
    model, inputs = build(BY_NAME["timm ViT"])
    expected = run(condition(build(BY_NAME["timm ViT"])[0], 30.0), inputs)
    with pytest.warns(UserWarning, match=r"λ = 30 saturates the softmax in \d of 2 attention layers"):
        condition(model, 30.0, probe=inputs[0])
    assert (run(model, inputs) == expected).all()
    assert all(p.grad is None for p in model.parameters())


def test_no_warning_where_attention_is_in_order():
    model, inputs = build(BY_NAME["timm ViT"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        condition(model, 0.1, probe=inputs[0])
