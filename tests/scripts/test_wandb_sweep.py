"""The sweep for W&B agents asks for what `python -m train` takes."""

import itertools

import yaml
from conftest import REPOSITORY

from train.compose import distinguishing, flatten, resolve
from train.folder import run_folder


def test_the_sweeps_commands_are_the_runs_of_the_lambda_ablation():
    sweep = yaml.safe_load((REPOSITORY / "scripts" / "wandb_sweep.yaml").read_text())
    assert sweep["method"] == "grid"
    assert (REPOSITORY / sweep["program"]).is_file()
    assert sweep["command"] == ["${env}", "python", "-m", "train", "${args_no_hyphens}"]
    names = list(sweep["parameters"])
    values = [
        parameter.get("values", [parameter["value"]] if "value" in parameter else None)
        for parameter in sweep["parameters"].values()
    ]
    # As an agent writes ${args_no_hyphens}: key=value, one word each.
    runs = [[f"{k}={v}" for k, v in zip(names, chosen, strict=True)] for chosen in itertools.product(*values)]
    known = flatten(resolve(["experiment=paper/imagenet_vit"]))
    assert set(names) - set(known) == {"conditioning"}  # the group, which chooses several keys
    assert {tuple(words[2:4]) for words in runs} == {
        (f"conditioning.lam={lam}", f"seed={seed}") for lam, seed in itertools.product((0, 0.1, 1, 10), (0, 1, 2))
    }
    chosen = [*runs[::3], runs[-1]]  # each λ, and another seed
    configs = [resolve(words) for words in chosen]
    assert {config.runtime.wandb for config in configs} == {"online"}
    folders = [run_folder(config, distinguishing(words)) for config, words in zip(configs, chosen, strict=True)]
    assert [folder.parts[-2] for folder in folders] == [
        "baseline", "identity-lam0.1", "identity-lam1", "identity-lam10", "identity-lam10",
    ]  # those of make ablation-lambda  # fmt: skip
    assert [folder.name for folder in folders] == ["seed0"] * 4 + ["seed2"]
