"""The two keys of a timm model that the ablations turn: the scale of the logits, and LayerNorm."""

import math

import pytest
import torch
from torch import nn

from train.compose import resolve
from train.tasks.vision_models import build

HEAD = 32  # width 96, three heads


def vit(*words):
    torch.manual_seed(0)
    return build(resolve(["experiment=reduced/evidence_vit", "conditioning=off", *words])).double().eval()


@pytest.fixture
def images():
    return torch.randn(2, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_the_attention_scale_changes_the_logits_as_a_larger_w_q_would(images):
    """timm's fused path ignores a changed scale: without 1/√d must equal W_Q and its bias times √d."""
    plain, without = vit(), vit("model.attention_scale=1")
    assert not torch.allclose(plain(images), without(images), atol=1e-4)
    with torch.no_grad():
        for block in plain.blocks:
            block.attn.qkv.weight[:96] *= math.sqrt(HEAD)
            block.attn.qkv.bias[:96] *= math.sqrt(HEAD)
    torch.testing.assert_close(without(images), plain(images), rtol=1e-9, atol=1e-9)


def test_the_models_own_scale_is_one_over_the_root_of_d(images):
    torch.testing.assert_close(vit(f"model.attention_scale={HEAD**-0.5}")(images), vit()(images), rtol=1e-9, atol=1e-9)


def test_without_layer_norm_there_is_none(images):
    model = vit("model.norm=false")
    assert not any(isinstance(module, nn.LayerNorm) for module in model.modules())
    assert any(isinstance(module, nn.LayerNorm) for module in vit().modules())
    assert torch.isfinite(model(images)).all()
