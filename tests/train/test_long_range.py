"""The Long Range Arena rows: the recipe is the recipe, and the task counts every sequence once."""

import pytest
import torch
from torch import nn

from train.compose import resolve
from train.optimizer import Length, Schedule, build_optimizer, scaled_lr

ROWS = ("listops", "text", "retrieval", "image", "pathfinder")
# batch, warm-up, steps, evaluation interval, kept tokens, padded length, classes
TABLE = {
    "listops": (32, 1000, 5000, 50, 2000, 2048, 10),
    "text": (32, 8000, 20000, 500, 4000, 4096, 2),
    "retrieval": (32, 800, 30000, 300, 4000, 4096, 2),
    "image": (256, 175, 35000, 175, 1024, 1024, 10),
    "pathfinder": (256, 312, 62400, 312, 1024, 1024, 2),
}


@pytest.mark.parametrize("row", ROWS)
def test_the_recipe_is_the_authors(row):
    config = resolve([f"experiment=paper/lra_{row}"])
    data, schedule = config.dataset, config.schedule
    assert TABLE[row] == (
        config.batch_size,
        schedule.warmup_steps,
        schedule.steps,
        config.evaluate.steps,
        data.max_length,
        data.padded_length,
        data.classes,
    )
    args = config.model.args
    assert (args.dim, args.depth, args.num_heads, args.mlp_dim, args.dropout) == (64, 2, 2, 128, 0.1)
    assert (args.landmarks, args.conv_kernel, args.pinv_iterations) == (64, 35, 6)
    optimizer = build_optimizer(config, nn.Linear(2, 2))
    for group in optimizer.param_groups:
        assert (group["lr"], group["weight_decay"], group["eps"]) == (1e-4, 0, 1e-6)
    assert config.optimizer.clip_grad is None


@pytest.mark.parametrize("anneal", ["linear", "cosine"])
@pytest.mark.parametrize(("steps", "warmup"), [(5000, 1000), (62, 3), (10, 2)])
def test_the_rate_and_beta1_are_torchs_one_cycle(steps, warmup, anneal):
    words = [f"schedule.steps={steps}", f"schedule.warmup_steps={warmup}", f"schedule.anneal={anneal}"]
    config = resolve(["experiment=paper/lra_listops", *words])
    ours = torch.optim.AdamW([nn.Parameter(torch.zeros(1))], lr=scaled_lr(config))
    theirs = torch.optim.AdamW([nn.Parameter(torch.zeros(1))], lr=scaled_lr(config))
    schedule = Schedule(config, ours, Length.of(config.schedule, 100))
    torchs = torch.optim.lr_scheduler.OneCycleLR(
        theirs,
        max_lr=scaled_lr(config),
        total_steps=steps,
        pct_start=warmup / steps,
        anneal_strategy="linear" if anneal == "linear" else "cos",
    )
    for step in range(steps):
        assert schedule.set(step) == pytest.approx(theirs.param_groups[0]["lr"], rel=1e-9, abs=1e-18)
        assert ours.param_groups[0]["betas"] == pytest.approx(theirs.param_groups[0]["betas"], rel=1e-9)
        theirs.step()
        if step < steps - 1:
            torchs.step()
