"""Weights that are frozen, tied, wrapped, averaged or handed in from outside."""

import copy

import pytest
import torch
import transformers
from families import BERT, BY_NAME, build, conditioned_model, each_method, gradients, run
from timm.optim import param_groups_weight_decay
from timm.utils import ModelEmaV3
from torch import nn

from specattn import condition, conditioned, fold


@each_method
def test_frozen_weights(method):
    model, inputs = conditioned_model("timm ViT", method)
    expected = gradients(model, inputs)
    for key, p in model.named_parameters():
        p.requires_grad_("qkv" not in key)
    frozen = gradients(model, inputs)
    assert not any("qkv" in key for key in frozen)
    for key, grad in frozen.items():
        torch.testing.assert_close(grad, expected[key], rtol=1e-12, atol=1e-12)
    fold(model)
    assert not model.blocks[0].attn.qkv.weight.requires_grad


@each_method
def test_tied_weights_stay_tied(method):
    model, inputs = build(BY_NAME["timm ViT"])
    model.blocks[1].attn.qkv.weight = model.blocks[0].attn.qkv.weight
    condition(model, 0.5, method)
    expected = run(model, inputs)
    held = [block.attn.qkv._parameters["weight"] for block in model.blocks]
    assert held[0] is held[1]
    fold(model)
    assert model.blocks[0].attn.qkv.weight is model.blocks[1].attn.qkv.weight
    torch.testing.assert_close(run(model, inputs), expected, rtol=0, atol=1e-12)


def test_init_adds_once_to_tied_weights_and_refuses_to_change_others():
    model, _ = build(BY_NAME["timm ViT"])
    weight = model.blocks[0].attn.qkv.weight
    model.blocks[1].attn.qkv.weight = weight
    before = weight.detach().clone()
    condition(model, 0.5, targets="q", when="init")
    torch.testing.assert_close(weight.detach()[:12] - before[:12], 0.5 * torch.eye(12, dtype=torch.float64))

    model, _ = build(BY_NAME["timm ViT"])
    model.blocks[0].attn.proj = nn.Linear(12, 36, dtype=torch.float64)
    model.blocks[0].attn.proj.weight = model.blocks[0].attn.qkv.weight
    with pytest.raises(ValueError, match=r"would change blocks\.0\.attn\.proj\.weight as well"):
        condition(model, 0.5, when="init")


def test_fold_unties_a_weight_shared_with_a_plain_layer():
    model, inputs = build(BY_NAME["timm ViT"])
    model.blocks[1].attn.qkv.weight = model.blocks[0].attn.qkv.weight
    condition(model, 0.5, modules="blocks.0.attn")
    expected = run(model, inputs)
    fold(model)
    torch.testing.assert_close(run(model, inputs), expected, rtol=0, atol=1e-12)


def test_one_layer_that_is_both_q_and_k_is_corrected_once():
    class SharedQK(nn.Module):
        def __init__(self):
            super().__init__()
            self.q = self.k = nn.Linear(4, 4, dtype=torch.float64)
            self.v = nn.Linear(4, 4, dtype=torch.float64)

    model = condition(SharedQK(), 0.5)
    plain = model.q._parameters["weight"]
    torch.testing.assert_close(model.k.weight - plain, 0.5 * torch.eye(4, dtype=torch.float64))


class LoRA(nn.Module):
    """The wrapper that peft and others put in the place of a linear layer."""

    def __init__(self, layer, rank=2):
        super().__init__()
        self.base_layer = layer
        self.down = nn.Linear(layer.in_features, rank, bias=False, dtype=layer.weight.dtype)
        self.up = nn.Linear(rank, layer.out_features, bias=False, dtype=layer.weight.dtype)

    def forward(self, x):
        return self.base_layer(x) + self.up(self.down(x))


class SubclassLoRA(nn.Linear):
    """The wrapper that is itself a linear layer and reads its weight (loralib)."""

    def forward(self, x):
        return nn.functional.linear(x, self.weight, self.bias) + 0.1 * x.sum(dim=-1, keepdim=True)


def wrap(model):
    torch.manual_seed(3)
    for block in model.blocks:
        block.attn.qkv = LoRA(block.attn.qkv)
    return model


@each_method
def test_lora_before_and_after(method):
    model, inputs = build(BY_NAME["timm ViT"])
    before = condition(wrap(copy.deepcopy(model)), 0.5, method)
    after = wrap(condition(copy.deepcopy(model), 0.5, method))
    torch.testing.assert_close(run(before, inputs), run(after, inputs), rtol=0, atol=1e-12)
    assert conditioned(before) == conditioned(after)
    assert not torch.allclose(run(before, inputs), run(wrap(model), inputs))
    first, second = gradients(before, inputs), gradients(after, inputs)
    for key in first:
        torch.testing.assert_close(first[key], second[key], rtol=1e-12, atol=1e-12)


def test_subclass_of_linear_with_a_forward_of_its_own():
    model, inputs = build(BY_NAME["timm ViT"])
    for block in model.blocks:
        block.attn.qkv.__class__ = SubclassLoRA
    by_hand = copy.deepcopy(model)
    with torch.no_grad():
        for block in by_hand.blocks:
            block.attn.qkv.weight.add_(0.5 * torch.eye(12, dtype=torch.float64).repeat(3, 1))
    torch.testing.assert_close(run(condition(model, 0.5), inputs), run(by_hand, inputs), rtol=0, atol=1e-12)


def test_ema_averages_w_alone():
    model, inputs = conditioned_model("timm ViT", "svd")
    ema = ModelEmaV3(model, decay=0.5)
    constant = {key: value.clone() for key, value in model.state_dict().items() if "specattn" in key}
    with torch.no_grad():
        for p in model.parameters():
            p.add_(1.0)
    ema.update(model)
    for key, value in ema.module.state_dict().items():
        if "specattn" in key:
            assert torch.equal(value, constant[key])
        elif value.is_floating_point():
            torch.testing.assert_close(value, model.state_dict()[key] - 0.5)
    assert run(ema.module, inputs).isfinite().all()
    assert conditioned(ema.module) == conditioned(model)

    averaged = torch.optim.swa_utils.AveragedModel(model, use_buffers=True)
    averaged.update_parameters(model)
    torch.testing.assert_close(run(averaged.module, inputs), run(model, inputs))


def test_weight_decay_rules_by_name_and_shape_go_on_working():
    plain, _ = build(BY_NAME["timm ViT"])
    names = {id(p): name for name, p in plain.named_parameters()}
    expected = [[names[id(p)] for p in group["params"]] for group in param_groups_weight_decay(plain)]
    model = condition(copy.deepcopy(plain), 0.5, "svd")
    names = {id(p): name for name, p in model.named_parameters()}
    assert [[names[id(p)] for p in group["params"]] for group in param_groups_weight_decay(model)] == expected
    assert any(name.endswith("qkv.weight") for name in expected[1])


def test_functional_call_takes_w():
    model, inputs = conditioned_model("timm ViT", "identity")
    expected = run(model, inputs)
    assert torch.equal(torch.func.functional_call(model, dict(model.named_parameters()), inputs), expected)
    zeros = {name: torch.zeros_like(p) for name, p in model.named_parameters() if "qkv" in name}
    assert not torch.allclose(torch.func.functional_call(model, zeros, inputs), expected)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore:There is a performance drop because we have not yet implemented the batching rule")
def test_function_transforms():
    model, (images,) = conditioned_model("timm ViT", "relative")
    weights = dict(model.named_parameters())

    def loss(weights, image):
        return torch.func.functional_call(model, weights, image[None]).square().sum()

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, images)
    for i, image in enumerate(images):
        one = torch.func.grad(loss)(weights, image)
        for name in weights:
            torch.testing.assert_close(each[name][i], one[name], rtol=1e-9, atol=1e-11)


def test_bert_with_tied_embeddings_keeps_them_tied():
    model = condition(transformers.BertForMaskedLM(transformers.BertConfig(**BERT)), 0.5)
    assert model.cls.predictions.decoder.weight is model.bert.embeddings.word_embeddings.weight
