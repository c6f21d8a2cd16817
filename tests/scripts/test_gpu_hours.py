"""The hours in docs/reproduce.md are those that the script derives from the configs."""

import pytest
from conftest import REPOSITORY

from scripts import gpu_hours
from train.compose import resolve

CHEAP = ("paper/imagenet_vit", "paper/lra_listops", "paper/lra_pathfinder", "paper/glue_pretrain_legacy")


def test_the_document_has_a_line_for_each_row_and_they_are_current():
    text = (REPOSITORY / "docs" / "reproduce.md").read_text()
    lines = text.partition(gpu_hours.BEGIN)[2].partition(gpu_hours.END)[0].strip().splitlines()
    assert len(lines) == 2 + len(gpu_hours.ROWS)
    for name in CHEAP:
        assert lines[2 + gpu_hours.ROWS.index(name)] == gpu_hours.estimate(resolve([f"experiment={name}"])).line()


def test_a_forward_pass_has_the_published_products():
    """ViT-B: 17.58 GMACs, two FLOPs each."""
    flops = gpu_hours.image_flops(resolve(["experiment=paper/imagenet_vit"]))
    assert flops == pytest.approx(2 * 17.58e9, rel=0.01)


def test_figures_have_two_digits():
    assert [gpu_hours.figure(hours) for hours in (103.2, 0.1389, 24, 5.55)] == ["100", "0.14", "24", "5.5"]
