"""The recipe is the recipe: each row's numbers against its authors' code, written out independently."""

import copy
import functools
import math
import warnings

import pytest
import torch
from timm.layers import DropPath
from torch import nn

import specattn
from train.compose import resolve
from train.data.transforms import evaluation_transform, train_transform
from train.errors import UserError
from train.optimizer import Length, Schedule, lr_note, parameter_groups, scaled_lr
from train.tasks import vision_models

ROWS = ("vit", "deit", "swin", "xcit", "davit")


@functools.cache
def config(row):
    return resolve([f"experiment=paper/imagenet_{row}"])


@functools.cache
def model(row):
    """Built without drawing the numbers of its weights: seconds for each model, and no test here looks at them."""
    with pytest.MonkeyPatch.context() as patch:
        for draw in ("normal_", "uniform_", "erfinv_"):
            patch.setattr(torch.Tensor, draw, lambda tensor, *_, **__: tensor.zero_())
        return vision_models.build(config(row)).eval()


# Millions of parameters and GMACs at 224 x 224, as published with timm's models.
@pytest.mark.parametrize(
    ("row", "millions", "gmacs"),
    [("vit", 86.57, 17.58), ("swin", 87.77, 15.47), ("xcit", 84.40, 16.13), ("davit", 87.95, 15.51)],
)
def test_size_and_cost_of_the_models(row, millions, gmacs):
    analysis = pytest.importorskip("fvcore.nn.flop_count", reason="needs fvcore (pip install -e '.[dev]')")
    assert sum(p.numel() for p in model(row).parameters()) / 1e6 == pytest.approx(millions, rel=2e-3)
    fused = [module for module in model(row).modules() if getattr(module, "fused_attn", False)]
    try:
        for module in fused:
            module.fused_attn = False  # fvcore cannot see into the fused kernel
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch.jit.trace, which fvcore counts with, is deprecated
            counted, _ = analysis.flop_count(model(row), (torch.zeros(1, 3, 224, 224),))
    finally:
        for module in fused:
            module.fused_attn = True
    assert sum(counted.values()) == pytest.approx(gmacs, rel=2e-3)


def test_deit_is_vits_architecture():
    one, two = (
        [(name, tuple(p.shape)) for name, p in model(row).named_parameters() if p is not None]
        for row in ("vit", "deit")
    )
    assert one == two


def rates(row, steps_per_epoch, steps, *words):
    """The learning rate that the schedule sets at each of the steps."""
    chosen = resolve([f"experiment=paper/imagenet_{row}", *words])
    optimizer = torch.optim.AdamW([nn.Parameter(torch.zeros(1))], lr=scaled_lr(chosen))
    schedule = Schedule(chosen, optimizer, Length.of(chosen.schedule, steps_per_epoch))
    return [schedule.set(step) for step in steps]


def cosine(t, period, top=1e-3, low=1e-5):
    return low + (top - low) * (1 + math.cos(math.pi * t / period)) / 2


@pytest.mark.parametrize(("row", "epochs"), [("deit", 300), ("xcit", 400)])
def test_deit_and_xcit_set_the_rate_after_each_epoch_by_its_index(row, epochs):
    """Epochs 0 and 1 run at 1e-6; epoch e at the unshifted cosine's value for e - 1; constant within an epoch."""
    per = 1251
    asked = [0, per - 1, per, 2 * per - 1, 2 * per, 5 * per, 6 * per, 7 * per, 100 * per + 700, epochs * per - 1]
    expected = [1e-6] * 4 + [1e-6 + (1e-3 - 1e-6) / 5, 1e-6 + (1e-3 - 1e-6) * 4 / 5]
    expected += [cosine(t, epochs) for t in (5, 6, 99, epochs - 2)]
    assert rates(row, per, asked) == pytest.approx(expected, rel=1e-12)


def test_vits_rate_moves_each_epoch_after_a_warm_up_of_thirty():
    per = 312
    asked = [0, per - 1, per, 29 * per, 30 * per, 165 * per, 300 * per - 1]
    first, top = 0.033 * 3e-3, 3e-3
    expected = [first, first, first + (top - first) / 30, first + (top - first) * 29 / 30, top, top / 2]
    expected.append(cosine(269, 270, top, 0.0))
    assert rates("vit", per, asked) == pytest.approx(expected, rel=1e-9)


def test_swins_rate_moves_each_step_and_its_cosine_begins_after_the_warm_up():
    per = 1251
    asked = [0, 1, 10 * per, 20 * per, 20 * per + 1, 160 * per, 300 * per - 1]
    expected = [1e-6, 1e-6 + (1e-3 - 1e-6) / (20 * per), (1e-6 + 1e-3) / 2, 1e-3]
    expected += [cosine(t, 280 * per) for t in (1, 140 * per, 280 * per - 1)]
    assert rates("swin", per, asked) == pytest.approx(expected, rel=1e-12)


def test_davits_rate_rests_at_its_least_for_ten_epochs_more():
    per = 1251
    chosen = config("davit")
    assert Length.of(chosen.schedule, per).steps == 310 * per
    asked = [0, per, 5 * per, 299 * per, 300 * per, 310 * per - 1]
    expected = [1e-6, 1e-6 + (1e-3 - 1e-6) / 5, cosine(5, 300), cosine(299, 300), 1e-5, 1e-5]
    assert rates("davit", per, asked) == pytest.approx(expected, rel=1e-12)


def test_each_recipe_scales_its_rates_by_its_own_rule():
    """At half the batch: DeiT's and XCiT's lr halves, Swin's bounds too, ViT's and DaViT's stay unless asked."""
    half = {row: [f"batch_size={config(row).batch_size // 2}"] for row in ROWS}
    for row, first, least in (("deit", 1e-6, 1e-5), ("xcit", 1e-6, 1e-5), ("swin", 5e-7, 5e-6)):
        per, epochs = 2502, config(row).schedule.epochs
        found = rates(row, per, [*range(0, 30 * per, per), int(epochs * per) - 1], *half[row])
        assert found[0] == pytest.approx(first)
        assert max(found) == pytest.approx(5e-4, rel=5e-3)
        assert found[-1] == pytest.approx(least, rel=0.02)
    note = lr_note(resolve(["experiment=paper/imagenet_deit", *half["deit"]]))
    assert note == "batch_size=512, the recipe's is 1024: lr scaled linearly from 0.001 to 0.0005"
    for row, lr in (("vit", 3e-3), ("davit", 1e-3)):
        other = resolve([f"experiment=paper/imagenet_{row}", *half[row]])
        assert scaled_lr(other) == lr
        assert lr_note(other).startswith("warning: ")
        other.optimizer.lr_scaling = "linear"
        assert scaled_lr(other) == lr / 2
    assert rates("vit", 624, [0], *half["vit"], "optimizer.lr_scaling=linear") == pytest.approx([0.033 * 1.5e-3])
    assert all(lr_note(config(row)) is None for row in ROWS)


# Tensors without and with decay. DeiT: 12 blocks of 4 matrices and 8 others; patch and head matrix; their biases,
# class token, positions and the last norm's two. Swin: 24 blocks of 4 matrices, 8 others and a bias table, three
# mergings of one matrix and a norm, patch and head. XCiT and DaViT are counted in the tests below.
UNDECAYED = {
    "vit": (0, 152),
    "deit": (12 * 8 + 2 + 1 + 1 + 2, 12 * 4 + 2),
    "swin": (24 * 9 + 3 * 2 + 1 + 2 + 2 + 1, 24 * 4 + 3 + 2),
    # 24 blocks: 3 layer scales, 3 norms, 4 biases of XCA and MLP, 2 convolutions' biases and a batch norm; matrices:
    # qkv, proj, two of the MLP, two convolutions, temperature. 2 class blocks: 2 scales, 2 norms, 6 biases, 6 matrices.
    # Stem: 4 convolutions with batch norms. Then the class token, the positions' bias, the last norm, the head's bias.
    "xcit": (24 * (3 + 6 + 4 + 2 + 2) + 2 * (2 + 4 + 6) + 4 * 2 + 1 + 1 + 2 + 1, 24 * 7 + 2 * 6 + 4 + 1 + 1),
    # 12 dual blocks of two halves, each: 2 position encodings (weight, bias), 2 norms, 2 + 2 linear layers. Stem and
    # three downsamplings: a convolution and a norm each. Then the last norm and the head.
    "davit": (24 * (2 + 4 + 4) + 4 * 3 + 2 + 1, 24 * (2 + 4) + 4 + 1),
}


@pytest.mark.parametrize("row", ROWS)
def test_what_decays(row):
    def counted(subject):
        groups = {group["weight_decay"]: len(group["params"]) for group in parameter_groups(config(row), subject)}
        assert groups.keys() <= {0.0, config(row).optimizer.weight_decay}
        return groups.get(0.0, 0), groups[config(row).optimizer.weight_decay]

    assert counted(model(row)) == UNDECAYED[row]
    conditioned = specattn.condition(copy.deepcopy(model(row)), lam=10)
    assert counted(conditioned) == UNDECAYED[row]


def decayed(row):
    with_decay = {id(p) for g in parameter_groups(config(row), model(row)) if g["weight_decay"] for p in g["params"]}
    return {name for name, parameter in model(row).named_parameters() if id(parameter) in with_decay}


def test_names_that_decay_or_do_not():
    assert {"cls_token", "pos_embed", "norm.bias"} <= decayed("vit")
    assert not {"cls_token", "pos_embed"} & decayed("deit")
    assert not [name for name in decayed("swin") if "relative_position_bias_table" in name]
    assert {"blocks.0.attn.temperature", "pos_embed.token_projection.weight"} <= decayed("xcit")
    assert "stages.0.blocks.0.0.cpe1.proj.weight" in decayed("davit")


def drop_paths(row):
    """The rates in order, one for each residual branch (none: 0)."""
    kinds = ("drop_path", "drop_path1", "drop_path2", "drop_path3")
    return [
        getattr(module, kind).drop_prob if isinstance(getattr(module, kind), DropPath) else 0.0
        for module in model(row).modules()
        for kind in kinds
        if isinstance(getattr(module, kind, None), nn.Module)
    ]


def ramp(top, blocks, branches=2):
    return [top * block / (blocks - 1) for block in range(blocks) for _ in range(branches)]


def test_drop_path_of_every_block():
    assert drop_paths("vit") == [0.0] * 24
    assert drop_paths("deit") == pytest.approx(ramp(0.1, 12))
    assert drop_paths("swin") == pytest.approx(ramp(0.5, 24))
    assert drop_paths("davit") == pytest.approx(ramp(0.4, 12, branches=4))  # timm: one rate for each dual block
    inside = [0.15] * (24 * 3)
    assert drop_paths("xcit") == pytest.approx(inside + [0.0] * (len(drop_paths("xcit")) - len(inside)))


TIMM = """Compose(
    RandomResizedCropAndInterpolation(size=(224, 224), scale=(0.08, 1.0), ratio=(0.75, 1.3333), interpolation=bicubic)
    RandomHorizontalFlip(p=0.5)
    RandAugment(n=2, ops=OPERATIONS)
    MaybeToTensor()
    Normalize(mean=tensor([0.4850, 0.4560, 0.4060]), std=tensor([0.2290, 0.2240, 0.2250]))
    RandomErasing(p=0.25, mode=pixel, count=(1, 1))
)"""
OPERATIONS = (
    "AutoContrast", "Equalize", "Invert", "Rotate", "PosterizeIncreasing", "SolarizeIncreasing", "SolarizeAdd",
    "ColorIncreasing", "ContrastIncreasing", "BrightnessIncreasing", "SharpnessIncreasing", "ShearX", "ShearY",
    "TranslateXRel", "TranslateYRel",
)  # fmt: skip
TORCHVISION = """Compose(
    RandomResizedCrop(size=(224, 224), scale=(0.08, 1.0), ratio=(0.75, 1.3333), interpolation=bilinear, antialias=True)
    RandomHorizontalFlip(p=0.5)
    RandAugment(num_ops=2, magnitude=9, num_magnitude_bins=31, interpolation=InterpolationMode.BILINEAR, fill=None)
    ToTensor()
    Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
)"""


@pytest.mark.parametrize("row", ROWS)
def test_the_training_transform_as_printed(row):
    operations = "".join(f"\n\tAugmentOp(name={name}, p=0.5, m=9, mstd=0.5)" for name in OPERATIONS)
    expected = TORCHVISION if row == "vit" else TIMM.replace("OPERATIONS", operations)
    assert str(train_transform(config(row).dataset)) == expected


def test_the_fill_and_reach_of_the_augmentation():
    operations = train_transform(config("deit").dataset).transforms[2].ops
    assert {operation.kwargs["fillcolor"] for operation in operations} == {(124, 116, 104)}  # 255 x the mean
    assert {operation.hparams["translate_const"] for operation in operations} <= {100, int(0.45 * 224)}


@pytest.mark.parametrize(
    ("row", "resize", "mode"),
    [("vit", 256, "bilinear"), ("deit", 256, "bicubic"), ("swin", 256, "bicubic"), ("xcit", 224, "bicubic"),
     ("davit", 248, "bicubic")],
)  # fmt: skip
def test_the_evaluation_transform_as_printed(row, resize, mode):
    assert str(evaluation_transform(config(row).dataset)) == (
        "Compose(\n"
        f"    Resize(size={resize}, interpolation={mode}, max_size=None, antialias=True)\n"
        "    CenterCrop(size=(224, 224))\n    MaybeToTensor()\n"
        "    Normalize(mean=tensor([0.4850, 0.4560, 0.4060]), std=tensor([0.2290, 0.2240, 0.2250]))\n)"
    )


def test_everything_else_of_the_recipes():
    """The remaining columns of the recipe table, row by row."""
    keys = (
        "batch_size", "schedule.epochs", "optimizer.weight_decay", "optimizer.clip_grad", "task.label_smoothing",
        "task.mixup", "task.cutmix", "task.mix_probability", "task.cutmix_probability", "dataset.repeats",
        "ema.decay", "ema.every", "ema.copy_epochs", "ema.evaluate",
    )  # fmt: skip
    table = {
        "vit": (4096, 300, 0.3, 1.0, 0.11, 0.2, 1.0, 1.0, 0.5, 3, 0.99126, 32, 30, True),
        "deit": (1024, 300, 0.05, None, 0.1, 0.8, 1.0, 1.0, 0.5, 3, 0.99996, 1, 0, False),
        "swin": (1024, 300, 0.05, 5.0, 0.1, 0.8, 1.0, 1.0, 0.5, 1, 0.0, 1, 0, True),
        "xcit": (1024, 400, 0.05, None, 0.1, 0.8, 1.0, 1.0, 0.5, 3, 0.99996, 1, 0, False),
        "davit": (1024, 300, 0.05, 1.0, 0.1, 0.8, 1.0, 1.0, 0.5, 1, 0.0, 1, 0, True),
    }
    for row, values in table.items():
        for key, value in zip(keys, values, strict=True):
            group, _, name = key.partition(".")
            found = config(row)[group][name] if name else config(row)[group]
            assert found == value, (row, key)
        assert config(row).optimizer.name == "adamw"
        assert list(config(row).optimizer.betas) == [0.9, 0.999]
        assert config(row).optimizer.eps == 1e-8


def test_one_of_cooldown_steps_and_epochs():
    with pytest.raises(UserError, match="cooldown"):
        resolve(["experiment=paper/imagenet_davit", "schedule.cooldown_steps=5"])
