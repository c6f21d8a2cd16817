"""What a stranger meets first: pins, imports, help, README."""

import re
import subprocess
import sys
import tomllib

import pytest
import yaml
from conftest import REPOSITORY


def project():
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def test_environment_yml_has_the_pins_of_pyproject():
    listed = yaml.safe_load((REPOSITORY / "environment.yml").read_text())["dependencies"][-1]["pip"]
    extras = project()["optional-dependencies"]
    wanted = [*project()["dependencies"], *(pin for name, pins in extras.items() if name != "coco" for pin in pins)]
    assert sorted(listed) == sorted(wanted)
    alone = (REPOSITORY / "openmmlab.txt").read_text().splitlines()
    wanted += extras["coco"] + [line for line in alone if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+(\[\w+\])?==[\w.]+", pin) for pin in wanted)


def test_the_library_imports_nothing_heavier_than_torch():
    """Every module that `import specattn` and its public names bring comes with torch itself, or is ours."""
    code = """
import sys, torch
before = set(sys.modules)
import specattn
for name in specattn.__all__:
    getattr(specattn, name)
print(*sorted({name.split(".")[0] for name in set(sys.modules) - before}))
"""
    brought = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert set(brought) - set(sys.stdlib_module_names) - {"torch"} == {"specattn"}


def test_make_help_lists_every_target_and_variable():
    shown = subprocess.run(["make", "help"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    assert shown == subprocess.run(["make"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    makefile = (REPOSITORY / "Makefile").read_text()
    for target in " ".join(re.findall(r"^\.PHONY: (.*)", makefile, re.M)).split():
        assert re.search(rf"^  {target} ", shown, re.M), target
    for variable in ("SCALE", "METHOD", "LAM", "SEEDS", "DEVICES", "JOBS", "DATA_ROOT", "ARGS"):
        assert f"{variable}=" in shown


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ([], ["experiment=paper/imagenet_vit", "conditioning=identity", "conditioning.lam=0,10", "seed=0"]),
        (["METHOD=svd", "SCALE=reduced"], ["experiment=reduced/imagenet_vit", "conditioning.lam=0,1"]),
        (
            ["LAM=3", "SEEDS=0,1", "DEVICES=2", "ARGS=a=b"],
            ["conditioning.lam=3", "seed=0,1", "runtime.devices=2", "a=b"],
        ),
    ],
)
def test_a_rows_target_says_what_its_variables_say(words, asked):
    command = ["make", "-n", "imagenet-vit", *words]
    shown = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    said = shown.replace("\\\n", " ").split()
    for word in asked:
        assert word in said


def test_the_reduced_coco_row_draws_its_data_first():
    def said(*words):
        command = ["make", "-n", "coco-xcit", *words]
        return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout

    reduced = said("SCALE=reduced", "ARGS=dataset.shapes.train=9")
    assert re.search(r"-m scripts\.make_shapes dataset\.shapes\.train=9 && .*experiment=reduced/coco_xcit", reduced)
    assert "make_shapes" not in said()
    assert "experiment=paper/coco_xcit" in said()
    for target in (("coco-xcit",), ("test",), ("check-data", "ROW=coco-xcit")):
        command = ["make", "-n", "-W", "openmmlab.txt", *target]
        shown = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
        assert re.search(r"pip install .*--no-deps -r openmmlab\.txt", shown), target


def test_the_readmes_library_code_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    [code] = re.findall(r"```python\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.S)
    exec(compile(code, "README.md", "exec"), {})
    assert (tmp_path / "plain.safetensors").stat().st_size > 20e6


def test_nothing_tracked_names_a_machines_path():
    tracked = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=False).stdout
    for name in tracked.split():
        path = REPOSITORY / name
        if path.is_file() and path.suffix in (".py", ".md", ".yaml", ".yml", ".toml", ".json", ".jsonl", ""):
            text = path.read_text(errors="replace")
            assert not re.search(r"/(home|root|Users)/\w", text), name
