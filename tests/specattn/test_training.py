"""Training under a correction equals the paper's definition: W is trained and decayed, C is neither."""

import copy

import pytest
import torch
from families import BY_NAME, build, run

from specattn import condition, corrections, find_projections, fold

STEPS = 6
# A step is a function of the gradients alone, or (last three) of the parameter too.
GRADIENT_ONLY = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
    "adamw without decay": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0),
}


class TrustRatio(torch.optim.Optimizer):
    """LARS in its simplest form: the step has a fixed share of the parameter's norm."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None and p.grad.norm() > 0:
                    p.add_(p.grad, alpha=-group["lr"] * (p.norm() / p.grad.norm()).item())


def train(model, inputs, make_optimizer, steps=STEPS):
    """W + C of every projection after each step."""
    optimizer = make_optimizer(model.parameters())
    trajectory = []
    for _ in range(steps):
        optimizer.zero_grad()
        run(model, inputs).square().mean().backward()
        optimizer.step()
        trajectory.append(torch.cat([p.effective_weight.detach().flatten() for p in find_projections(model)]))
    return torch.stack(trajectory)


def persistent_and_init(method="svd", lam=0.3):
    model, inputs = build(BY_NAME["timm ViT"])
    return condition(copy.deepcopy(model), lam, method), condition(model, lam, method, when="init"), inputs


@pytest.mark.parametrize("method", ["identity", "svd"])
@pytest.mark.parametrize("optimizer", GRADIENT_ONLY)
def test_persistent_and_init_are_one_trajectory_without_decay(optimizer, method):
    persistent, init, inputs = persistent_and_init(method)
    start = torch.cat([p.effective_weight.detach().flatten() for p in find_projections(persistent)])
    first = train(persistent, inputs, GRADIENT_ONLY[optimizer])
    second = train(init, inputs, GRADIENT_ONLY[optimizer])
    assert (first[-1] - start).norm() > 1e-3
    torch.testing.assert_close(first, second, rtol=0, atol=1e-9)


def test_decoupled_decay_differs_by_decayed_c_as_the_algebra_says():
    lr, decay = 0.01, 0.1
    persistent, init, inputs = persistent_and_init("identity")
    c = torch.cat(
        [corrections(persistent)[p.name].dense(torch.float64).flatten() for p in find_projections(persistent)]
    )
    first, second = (
        train(m, inputs, lambda p: torch.optim.AdamW(p, lr=lr, weight_decay=decay), steps=1)[0]
        for m in (persistent, init)
    )
    # persistent: (1 - ηw) W - ηg + C; init: (1 - ηw) (W + C) - ηg.
    torch.testing.assert_close(first - second, lr * decay * c, rtol=0, atol=1e-13)


def test_l2_decay_differs_too():
    persistent, init, inputs = persistent_and_init("identity")
    c = torch.cat(
        [corrections(persistent)[p.name].dense(torch.float64).flatten() for p in find_projections(persistent)]
    )
    first, second = (
        train(m, inputs, lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=0.1), steps=1)[0]
        for m in (persistent, init)
    )
    torch.testing.assert_close(first - second, 0.05 * 0.1 * c, rtol=0, atol=1e-13)


def test_trust_ratio_optimizers_tell_them_apart():
    persistent, init, inputs = persistent_and_init("identity", lam=1.0)
    first = train(persistent, inputs, lambda p: TrustRatio(p, lr=0.01), steps=1)
    second = train(init, inputs, lambda p: TrustRatio(p, lr=0.01), steps=1)
    assert (first - second).norm() > 1e-3


@pytest.mark.parametrize("method", ["identity", "relative", "svd", "orthogonal", "rescale"])
def test_c_is_neither_trained_nor_decayed(method):
    model, inputs = build(BY_NAME["timm ViT"])
    condition(model, 0.3, method)
    before = {name: c.dense(torch.float64).clone() for name, c in corrections(model).items()}
    train(model, inputs, lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=1.0))
    for name, correction in corrections(model).items():
        assert torch.equal(correction.dense(torch.float64), before[name])
    assert not any("specattn" in name for name, _ in model.named_parameters())


def test_decay_alone_leaves_c():
    model, _ = build(BY_NAME["timm ViT"])
    condition(model, 0.5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0, weight_decay=1.0)  # one step takes W to 0
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    fold(model)
    for projection in find_projections(model):
        torch.testing.assert_close(projection.weight, 0.5 * torch.eye(12, dtype=torch.float64), rtol=0, atol=1e-12)
