"""What differs from a plain module, as documented in docs/library.md: what happens is pinned here."""

import pytest
import torch
from families import BY_NAME, build, conditioned_model, run
from torch import nn

from specattn import condition


def test_limit_writing_into_the_attribute_is_lost_and_into_the_parameter_is_not():
    model, inputs = conditioned_model("timm ViT", "identity")
    expected = run(model, inputs)
    model.blocks[0].attn.qkv.weight.data.zero_()  # writes into W + C, which is thrown away
    assert torch.equal(run(model, inputs), expected)
    dict(model.named_parameters())["blocks.0.attn.qkv.weight"].data.zero_()
    assert not torch.equal(run(model, inputs), expected)


def test_limit_the_attribute_is_no_parameter():
    model, _ = conditioned_model("timm ViT", "identity")
    weight = model.blocks[0].attn.qkv.weight
    assert not isinstance(weight, nn.Parameter)
    with pytest.raises(ValueError, match="can't optimize a non-leaf Tensor"):
        torch.optim.SGD([weight], lr=0.1)
    with pytest.raises(AttributeError, match="not an nn"):
        model.get_parameter("blocks.0.attn.qkv.weight")


def test_assigning_a_parameter_replaces_w():
    model, _ = conditioned_model("timm ViT", "identity")
    plain, _ = build(BY_NAME["timm ViT"])
    with torch.no_grad():
        for p in plain.parameters():
            p.mul_(0.5)
    for conditioned_block, block in zip(model.blocks, plain.blocks, strict=True):
        conditioned_block.attn.qkv.weight = nn.Parameter(block.attn.qkv.weight.detach().clone())
    held = model.blocks[0].attn.qkv._parameters["weight"]
    assert torch.equal(held, plain.blocks[0].attn.qkv.weight)
    torch.testing.assert_close(
        model.blocks[0].attn.qkv.weight - held, 0.7 * torch.eye(12, dtype=torch.float64).repeat(3, 1)
    )


def test_limit_parametrized_weights_are_refused_both_ways():
    model, _ = build(BY_NAME["timm ViT"])
    nn.utils.parametrizations.spectral_norm(model.blocks[0].attn.qkv)
    with pytest.raises(ValueError, match="remove the parametrization first"):
        condition(model, 0.5)

    model, _ = conditioned_model("timm ViT", "identity")
    with pytest.raises(RuntimeError, match="cannot be parametrized after condition"):
        nn.utils.parametrizations.spectral_norm(model.blocks[0].attn.qkv)
