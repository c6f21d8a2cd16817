"""A conditioned model goes on behaving like the module it was."""

import copy
import io
import pickle

import pytest
import torch
from families import BY_NAME, build, conditioned_model, correct_by_hand, each_method, gradients, one_of_each, run
from torch import nn
from torch.utils.checkpoint import checkpoint

from specattn import condition, conditioned, corrections, fold


@one_of_each
@each_method
def test_copies_and_pickles_are_the_same_model(name, method):
    model, inputs = conditioned_model(name, method)
    expected = run(model, inputs)
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(buffer, weights_only=False)):
        assert torch.equal(run(copied, inputs), expected)
        assert conditioned(copied) == conditioned(model)
        assert gradients(copied, inputs).keys() == gradients(model, inputs).keys()
        # Independent of the original: training the copy leaves it alone.
        with torch.no_grad():
            for p in copied.parameters():
                p.add_(1.0)
        assert torch.equal(run(model, inputs), expected)


@one_of_each
@each_method
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_to_dtype_moves_weight_and_correction(name, method, dtype):
    model, inputs = conditioned_model(name, method)
    expected = run(model, inputs)
    model.to(dtype)
    assert {t.dtype for t in [*model.parameters(), *model.buffers()] if t.is_floating_point()} == {dtype}
    output = run(model, tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs))
    assert output.dtype == dtype
    error = (output.double() - expected).norm() / expected.norm()
    assert error < (1e-5 if dtype == torch.float32 else 5e-2)


def test_half_keeps_the_diagonal_of_w_beside_lam_10():
    torch.manual_seed(0)
    attention = nn.Module()
    attention.q, attention.k, attention.v = (nn.Linear(64, 64, bias=False) for _ in range(3))
    plain = copy.deepcopy(attention).double()
    condition(attention, 10.0).half()
    x = torch.randn(256, 64, dtype=torch.float16)
    output = attention.q(x).double() - 10 * x.double()
    recovered = torch.linalg.lstsq(x.double(), output).solution.T.diagonal()
    torch.testing.assert_close(recovered, plain.q.weight.diagonal(), rtol=0, atol=2e-3)


@one_of_each
@each_method
def test_to_device(name, method):
    model, _ = conditioned_model(name, method)
    model.to("meta")
    assert all(t.is_meta for t in [*model.parameters(), *model.buffers()])
    assert all(c.dense().is_meta for c in corrections(model).values() if method == "svd")


@one_of_each
@each_method
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_is_as_accurate_as_weights_replaced_by_hand(name, method, dtype):
    plain, inputs = build(BY_NAME[name], torch.float32)
    by_hand = copy.deepcopy(plain)
    correct_by_hand(BY_NAME[name], by_hand, method, 0.7, "matrix", "qkv")
    model = condition(plain, 0.7, method)
    exact = gradients(
        copy.deepcopy(by_hand).double(), tuple(x.double() if x.is_floating_point() else x for x in inputs)
    )

    def errors(model):
        model.zero_grad()
        with torch.autocast("cpu", dtype):
            output = run(model, inputs)
        output.float().square().sum().backward()
        return {key: (p.grad - exact[key]).norm() for key, p in model.named_parameters() if key in exact}

    found, reference = errors(model), errors(by_hand)
    assert all(p.grad.dtype == torch.float32 for p in model.parameters() if p.grad is not None)
    assert sum(reference.values()) > 0
    assert sum(found.values()) < 1.5 * sum(reference.values())
    for key, error in found.items():
        assert error <= 0.2 * exact[key].norm() + 1e-2, key


@one_of_each
@each_method
def test_gradient_checkpointing(name, method):
    model, inputs = conditioned_model(name, method)
    expected = gradients(model, inputs)
    model.zero_grad()
    inputs = tuple(x.requires_grad_() if x.is_floating_point() else x for x in inputs)
    checkpoint(run, model, inputs, use_reentrant=False).float().square().sum().backward()
    for key, p in model.named_parameters():
        if p.grad is not None:
            torch.testing.assert_close(p.grad, expected[key], rtol=1e-12, atol=1e-12)


def test_timm_gradient_checkpointing():
    model, inputs = conditioned_model("timm ViT", "identity")
    expected = gradients(model.train(), inputs)
    model.set_grad_checkpointing()
    for key, grad in gradients(model, inputs).items():
        torch.testing.assert_close(grad, expected[key], rtol=1e-12, atol=1e-12)


@one_of_each
@each_method
def test_compile_in_one_graph(name, method):
    torch._dynamo.reset()
    model, inputs = conditioned_model(name, method)
    compiled = torch.compile(copy.deepcopy(model), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(run(compiled, inputs), run(model, inputs), rtol=0, atol=1e-12)
    for (key, grad), other in zip(gradients(model, inputs).items(), gradients(compiled, inputs).values(), strict=True):
        torch.testing.assert_close(other, grad, rtol=1e-10, atol=1e-12, msg=key)
    assert conditioned(compiled) == conditioned(model)


def test_fold_then_condition_again():
    model, inputs = conditioned_model("timm ViT", "svd")
    fold(model)
    expected = copy.deepcopy(model)
    condition(model, 0.3)
    condition(expected, 0.3, when="init")
    torch.testing.assert_close(run(model, inputs), run(expected, inputs), rtol=0, atol=1e-12)


def test_wrapped_in_data_parallel_it_is_looked_through():
    model, _ = build(BY_NAME["timm ViT"])
    wrapped = nn.DataParallel(model)
    condition(wrapped, 0.5)
    assert conditioned(model)["modules"] == ["blocks.0.attn", "blocks.1.attn"]
    assert conditioned(wrapped) == conditioned(model)
    assert conditioned(fold(wrapped)) is None


@each_method
def test_replicas_of_data_parallel_compute_with_w_plus_c(method):
    # What torch.nn.parallel.replicate does for each GPU: a module without parameters, whose weights are attributes.
    model, _ = conditioned_model("timm ViT", method)
    layer = model.blocks[0].attn.qkv
    replica = layer._replicate_for_data_parallel()
    copied = layer._parameters["weight"].clone()
    replica.weight = copied
    replica.bias = layer.bias.clone()
    x = torch.randn(2, 12, dtype=torch.float64)
    assert torch.equal(replica(x), layer(x))
    assert torch.equal(replica.weight, layer.weight)
    replica(x).sum().backward()
    assert layer._parameters["weight"].grad is not None
