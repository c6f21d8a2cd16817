"""The sweep for W&B agents asks for what `python -m train` takes."""

import itertools

import yaml
from conftest import REPOSITORY

from train.compose import distinguishing, flatten, resolve
from train.folder import run_folder


def test_every_command_of_the_sweep_composes_and_is_a_run_of_its_own():
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
    configs = [resolve(words) for words in runs]
    assert {(config.conditioning.lam, config.seed) for config in configs} == set(
        itertools.product((0, 0.1, 1, 10), (0, 1, 2))
    )
    assert {config.runtime.wandb for config in configs} == {"online"}
    folders = {run_folder(config, distinguishing(words)) for config, words in zip(configs, runs, strict=True)}
    assert len(folders) == len(runs) == 12
    assert not [folder for folder in folders if "," in folder.parent.name]  # the folders of make ablation-lambda
