"""Composing: what is asked for, what is refused and how it is named."""

import pytest

from train.compose import distinguishing, expand, options, resolve
from train.errors import UserError

DIGITS = "experiment=reduced/digits_vit"


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ([DIGITS, "conditioning.lamb=1"], ["conditioning.lamb", "did you mean 'conditioning.lam'"]),
        ([DIGITS, "lam=1"], ["'lam'", "conditioning.lam"]),
        ([DIGITS, "conditioning.lam=ten"], ["conditioning.lam", "ten"]),
        ([DIGITS, "conditioning.lam=inf"], ["conditioning.lam", "finite"]),
        ([DIGITS, "conditioning=svdd"], ["svdd", "did you mean 'svd'"]),
        ([DIGITS, "conditioning.method=eye"], ["conditioning.method", "identity"]),
        (["experiment=reduced/digit_vit"], ["reduced/digits_vit"]),
        (["conditioning=svd"], ["choose an experiment", "reduced/digits_vit"]),
        ([DIGITS, "schedule.steps=5"], ["exactly one of schedule.steps and schedule.epochs"]),
        ([DIGITS, "batch_size=0"], ["batch_size=0"]),
        ([DIGITS, "batch_size=64.5"], ["batch_size"]),
        ([DIGITS, "evaluate=3"], ["evaluate.steps"]),
        ([DIGITS, "seed=0,1"], ["add -m"]),
        ([DIGITS, "seed"], ["key=value"]),
        ([DIGITS, "--lam"], ["--lam"]),
        ([DIGITS, "~seed"], ["~seed"]),
        ([DIGITS, "output_root=/${nowhere}"], ["nowhere"]),
        ([DIGITS, "conditioning=off", "conditioning.lam=10"], ["conditioning=off", "lam=10"]),
        ([DIGITS, "output_root="], ["output_root"]),
        *(
            ([DIGITS, word], [word.split("=")[0]])
            for word in (
                "seed=-1",
                "batch_size=-3",
                "runtime.devices=0",
                "runtime.threads=0",
                "runtime.micro_batch=-1",
                "runtime.workers=-1",
                "runtime.save_steps=-1",
                "dataset.flip=7",
                "dataset.classes=0",
                "dataset.pad=-1",
                "dataset.repeats=0",
                "dataset.mean=[]",
                "dataset.std=[0.0]",
                "dataset.mean=[0.1,0.2]",
                "ema.decay=2",
                "ema.decay=-1",
                "optimizer.lr=-1",
                "optimizer.lr=1e38",
                "optimizer.weight_decay=-1",
                "optimizer.clip_grad=0",
                "optimizer.betas=[0.9]",
                "schedule.warmup_epochs=-5",
                "task.mixup=-1",
                "task.label_smoothing=5",
                "conditioning.lam=1e39",
            )
        ),
        ([DIGITS, "optimizer.lr_scaling=linear"], ["optimizer.reference_batch"]),
    ],
)
def test_a_mistake_is_one_line_that_names_it(words, names):
    with pytest.raises(UserError) as caught:
        resolve(words)
    message = str(caught.value)
    assert "\n" not in message
    for name in names:
        assert name in message


def test_values_are_typed():
    config = resolve([DIGITS, "conditioning=identity", "conditioning.lam=3", "optimizer.lr=1e-4"])
    assert config.conditioning.lam == 3.0
    assert isinstance(config.conditioning.lam, float)
    assert config.optimizer.lr == 1e-4


@pytest.mark.parametrize("words", [["conditioning=off"], ["conditioning=svd", "conditioning.lam=0"], []])
def test_zero_lambda_is_one_conditioning(words):
    assert resolve([DIGITS, *words]).conditioning == resolve([DIGITS, "conditioning=off"]).conditioning


def test_every_experiment_composes():
    assert options("experiment")
    for name in options("experiment"):
        assert resolve([f"experiment={name}"]).row.scale == name.split("/")[0]


def test_sweep_is_a_product_with_the_last_key_fastest():
    runs = expand([DIGITS, "conditioning.lam=0,10", "seed=range(0,2)"])
    assert [run[1:] for run in runs] == [
        ["conditioning.lam=0", "seed=0"],
        ["conditioning.lam=0", "seed=1"],
        ["conditioning.lam=10", "seed=0"],
        ["conditioning.lam=10", "seed=1"],
    ]


def test_a_glob_over_experiments_sees_through_slashes():
    runs = expand(["experiment=glob(reduced/*)"])
    assert [run[0] for run in runs] == [f"experiment={n}" for n in options("experiment") if n.startswith("reduced/")]


@pytest.mark.parametrize("word", ["experiment=glob(nothing*)", "seed=glob(*)", "seed=interval(0,1)"])
def test_a_glob_that_matches_nothing_is_an_error(word):
    with pytest.raises(UserError):
        expand([DIGITS, word])


def test_only_what_differs_distinguishes():
    assert distinguishing([DIGITS, "optimizer.lr=2e-3", "seed=4", "runtime.devices=2", "conditioning=svd"]) == []
    assert distinguishing([DIGITS, "optimizer.lr=0.5", "model.args.depth=2"]) == [
        "model.args.depth=2",
        "optimizer.lr=0.5",
    ]
    assert distinguishing([DIGITS, "schedule=constant"]) == ["schedule=constant"]
    assert distinguishing([DIGITS, "schedule=cosine", "optimizer=adamw", "dataset=digits"]) == []


@pytest.mark.parametrize("path", ["/a b/c,d=e/f", "/it's/[1]", "/back\\slash", "'/quoted'"])
def test_paths_are_taken_as_typed(path):
    assert resolve([DIGITS, f"output_root={path}"]).output_root == path.strip("'")
