"""Models that cannot be conditioned now, or not in this way: meta device, values, heads, parametrized weights."""

import copy

import pytest
import torch
from families import BY_NAME, build, one_of_each, run
from torch import nn

from specattn import condition, conditioned


@one_of_each
def test_meta_device_takes_identity_alone(name):
    with torch.device("meta"):
        model = BY_NAME[name].build()
    condition(model, 0.5)
    for parameter in model.parameters():
        assert parameter.is_meta
    inputs = tuple(x.to("meta") for x in BY_NAME[name].inputs())
    assert run(model, inputs).is_meta
    for method in ("svd", "relative", "orthogonal", "rescale"):
        with torch.device("meta"):
            model = BY_NAME[name].build()
        with pytest.raises(ValueError, match="meta device: materialise the model"):
            condition(model, 0.5, method)
    with pytest.raises(ValueError, match="meta device: materialise the model"):
        condition(model, 0.5, when="init")


def test_conditioned_on_meta_then_loaded():
    plain, inputs = build(BY_NAME["timm ViT"])
    state = condition(copy.deepcopy(plain), 0.5).state_dict()
    with torch.device("meta"):
        model = condition(BY_NAME["timm ViT"].build(), 0.5)
    model.load_state_dict(state, assign=True)
    torch.testing.assert_close(run(model.eval(), inputs), run(condition(plain, 0.5), inputs), rtol=0, atol=1e-12)


def test_weight_of_not_finite_values_is_refused():
    model, _ = build(BY_NAME["timm ViT"])
    with torch.no_grad():
        model.blocks[1].attn.qkv.weight[14, 0] = float("nan")
    with pytest.raises(ValueError, match=r"blocks\.1\.attn\.k holds values that are not finite"):
        condition(model, method="svd")
    assert conditioned(model) is None


def test_head_layout_needs_the_number_of_heads():
    class NoHeads(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(4, 4) for _ in range(3))

    with pytest.raises(ValueError, match="layout='head' needs the number of heads"):
        condition(NoHeads(), layout="head")
