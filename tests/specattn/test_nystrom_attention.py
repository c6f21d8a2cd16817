"""Nyström and exact attention against dense float64 references written out here, and against transformers'."""

import math

import pytest
import torch
from torch import nn
from transformers import NystromformerConfig
from transformers.models.nystromformer.modeling_nystromformer import NystromformerEncoder, NystromformerSelfAttention

from specattn.models import nystrom_attention as module
from specattn.models.nystrom_attention import HeadConvolution, iterative_pinv, nystrom_attention, softmax_attention
from specattn.models.nystromformer import Block, LongRangeAttention

B, N, HEADS, D, LANDMARKS = 3, 24, 2, 4, 6


def softmax(logits):
    weights = (logits - logits.max()).exp()
    return weights / weights.sum(-1, keepdim=True)


def reference(q, k, v, visible, norm_of):
    """One head of one sample by the formula: q, k, v [N, D], visible [N]; `norm_of(kernel_2)` starts the inverse."""
    q, k = (t * visible[:, None] / math.sqrt(math.sqrt(t.shape[1])) for t in (q, k))
    segment = len(q) // LANDMARKS
    q_landmarks, k_landmarks = (torch.stack([s.mean(0) for s in t.split(segment)]) for t in (q, k))
    kernel_1, kernel_2 = softmax(q @ k_landmarks.T), softmax(q_landmarks @ k_landmarks.T)
    kernel_3 = softmax((q_landmarks @ k.T).masked_fill(~visible, -1e9))
    eye = torch.eye(LANDMARKS, dtype=q.dtype)
    z = kernel_2.T / norm_of(kernel_2)
    for _ in range(6):
        az = kernel_2 @ z
        z = 0.25 * z @ (13 * eye - az @ (15 * eye - az @ (7 * eye - az)))
    return kernel_1 @ z @ kernel_3 @ v, kernel_2


def inputs(seed=0):
    g = torch.Generator().manual_seed(seed)
    q, k, v = (2 * torch.randn(B, N, HEADS * D, dtype=torch.float64, generator=g) for _ in range(3))
    visible = torch.ones(B, N, dtype=torch.bool)
    visible[0, 13:] = False  # a padded tail, one landmark partly and one wholly padded
    visible[1, torch.randperm(N, generator=g)[:9]] = False  # black pixels
    return q, k, v, visible


def heads_of(x, sample, head):
    return x[sample, :, head * D : (head + 1) * D]


@pytest.mark.parametrize("init", ["per_matrix", "original"])
def test_nystrom_attention_is_the_formula(init):
    q, k, v, visible = inputs()
    out = nystrom_attention(q, k, v, visible[..., None], HEADS, LANDMARKS, init)
    every = [(b, h) for b in range(B) for h in range(HEADS)]

    def one(b, h, norm_of):
        return reference(*(heads_of(t, b, h) for t in (q, k, v)), visible[b], norm_of)

    def column_sum(kernel_2):
        return kernel_2.sum(0).max()

    largest = max(column_sum(one(b, h, column_sum)[1]) for b, h in every)
    for b, h in every:
        expected, _ = one(b, h, column_sum if init == "per_matrix" else lambda _: largest)
        seen = visible[b]
        torch.testing.assert_close(heads_of(out, b, h)[seen], expected[seen], rtol=0, atol=1e-12)


def test_softmax_attention_is_the_formula():
    q, k, v, visible = inputs()
    visible[2] = False  # no token at all: the padding is attended to, as if nothing were masked
    out = softmax_attention(q, k, v, visible[..., None], HEADS)
    for b in range(B):
        for h in range(HEADS):
            q1, k1, v1 = (heads_of(t, b, h) for t in (q, k, v))
            logits = q1 @ k1.T / math.sqrt(D)
            expected = softmax(logits.masked_fill(~visible[b], -1e9) if b != 2 else logits) @ v1
            torch.testing.assert_close(heads_of(out, b, h), expected, rtol=0, atol=1e-12)


def test_with_a_landmark_for_every_token_it_is_exact():
    q, k, v, visible = inputs()
    mask = visible[..., None]
    out = nystrom_attention(q, k, v, mask, HEADS, N)
    assert torch.equal(out, softmax_attention(q, k, v, mask, HEADS))


@pytest.mark.parametrize("init", ["per_matrix", "original"])
def test_the_iteration_converges_to_the_inverse(init):
    matrices = torch.softmax(3 * torch.randn(2, 3, 5, 5, dtype=torch.float64), -1)
    torch.testing.assert_close(iterative_pinv(matrices, init, 40), torch.linalg.pinv(matrices), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("batch", "tokens"), [(1, 5), (3, 64), (19, 150)])
def test_convolution_and_its_gradients_are_torchs(batch, tokens):
    torch.manual_seed(0)
    conv = HeadConvolution(HEADS, 7).double()
    v = torch.randn(batch, tokens, HEADS * D, dtype=torch.float64, requires_grad=True)
    plain = nn.functional.conv2d(
        v.unflatten(2, (HEADS, D)).transpose(1, 2), conv.weight[..., None], padding=(3, 0), groups=HEADS
    )
    plain = plain.transpose(1, 2).flatten(2)
    out = conv(v)
    torch.testing.assert_close(out, plain, rtol=0, atol=1e-12)
    cotangent = torch.randn_like(out)
    mine = torch.autograd.grad(out, [v, conv.weight], cotangent)
    for ours, theirs in zip(mine, torch.autograd.grad(plain, [v, conv.weight], cotangent), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-11)


def test_gradients_by_differences(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(module, "_BLOCK", 4)
    conv = HeadConvolution(2, 3)
    weight = torch.randn(2, 1, 3, dtype=torch.float64, requires_grad=True)
    q, k, v = (torch.randn(2, 6, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    visible = torch.tensor([[1, 1, 1, 1, 0, 0], [0, 1, 1, 0, 1, 1]]).bool()[..., None]

    def convolution(v, weight):
        return torch.func.functional_call(conv, {"weight": weight}, v)

    def attention(q, k, v):  # rows at padding mean nothing
        return nystrom_attention(q, k, v, visible, 2, 3) * visible

    assert torch.autograd.gradcheck(convolution, (v, weight))
    assert torch.autograd.gradgradcheck(convolution, (v, weight))
    assert torch.autograd.gradcheck(attention, (q, k, v))


def same_layers(tokens, landmarks=8, **arguments):
    """Transformers' layer and ours on its weights, in float64, without the output projection."""
    config = NystromformerConfig(
        hidden_size=16,
        num_attention_heads=HEADS,
        num_landmarks=landmarks,
        segment_means_seq_len=tokens,
        conv_kernel_size=5,
        attention_probs_dropout_prob=0.0,
        inv_coeff_init_option=False,
    )
    torch.manual_seed(0)
    theirs = NystromformerSelfAttention(config).double()
    with torch.no_grad():
        for p in theirs.parameters():
            p.add_(torch.randn_like(p), alpha=0.3)
    ours = LongRangeAttention(16, HEADS, landmarks=landmarks, conv_kernel=5, pinv_init="original", **arguments).double()
    ours.out_proj = nn.Identity()
    ours.load_state_dict({k: v.reshape(ours.get_parameter(k).shape) for k, v in theirs.state_dict().items()})
    return theirs, ours


@pytest.mark.parametrize(("tokens", "landmarks"), [(96, 8), (16, 16)])
def test_transformers_layer_on_the_same_weights(tokens, landmarks):
    theirs, ours = same_layers(tokens, landmarks)
    x = torch.randn(B, tokens, 16, dtype=torch.float64, requires_grad=True)
    expected = theirs(x, torch.zeros(B, 1, 1, tokens, dtype=torch.float64))[0]
    out = ours(x, torch.ones(B, tokens, 1, dtype=torch.bool))
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    cotangent = torch.randn_like(out)
    expected_grads = torch.autograd.grad(expected, [x, *theirs.parameters()], cotangent)
    for mine, grad in zip(torch.autograd.grad(out, [x, *ours.parameters()], cotangent), expected_grads, strict=True):
        torch.testing.assert_close(mine, grad.reshape(mine.shape), rtol=0, atol=1e-11)


def test_transformers_encoder_from_our_parts():
    """Theirs normalises after each sublayer and ours before: what the sublayers compute is the same."""
    config = NystromformerConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        intermediate_size=24,
        num_landmarks=8,
        segment_means_seq_len=32,
        conv_kernel_size=5,
        hidden_act="gelu",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        inv_coeff_init_option=False,
    )
    torch.manual_seed(0)
    theirs = NystromformerEncoder(config).double()
    x = torch.randn(B, 32, 16, dtype=torch.float64)
    expected = theirs(x, torch.zeros(B, 1, 1, 32, dtype=torch.float64)).last_hidden_state
    visible = torch.ones(B, 32, 1, dtype=torch.bool)
    for layer in theirs.layer:
        attention = LongRangeAttention(16, HEADS, landmarks=8, conv_kernel=5, pinv_init="original")
        block = Block(attention, 16, 24, 0.0).double()
        own = {"attention.out_proj": layer.attention.output.dense}
        own |= {f"attention.{name}": getattr(layer.attention.self, name) for name in ("query", "key", "value", "conv")}
        own |= {"mlp.0": layer.intermediate.dense, "mlp.3": layer.output.dense}
        own |= {"norm1": layer.attention.output.LayerNorm, "norm2": layer.output.LayerNorm}
        state = {f"{name}.{key}": value for name, part in own.items() for key, value in part.state_dict().items()}
        block.load_state_dict({key: value.reshape(block.get_parameter(key).shape) for key, value in state.items()})
        for norm in (block.norm1, block.norm2):
            norm.eps = config.layer_norm_eps
        x = block.norm1(x + block.attention(x, visible))
        x = block.norm2(x + block.mlp(x))
    torch.testing.assert_close(x, expected, rtol=0, atol=1e-12)


def test_a_number_of_tokens_that_does_not_divide_is_refused():
    layer = LongRangeAttention(8, 2, landmarks=6)
    for tokens in (4, 10):
        with pytest.raises(ValueError, match=f"multiple of 6 tokens, not {tokens}"):
            layer(torch.randn(1, tokens, 8), torch.ones(1, tokens, 1, dtype=torch.bool))
