"""Mask R-CNN on XCiT-S12/16, 3x: each number of the authors' detection recipe, written out independently."""

import copy
import functools

import numpy
import pytest
import torch
from torch import nn

from train.compose import resolve
from train.errors import UserError
from train.optimizer import Length, Schedule, parameter_groups, scaled_lr

pytest.importorskip("mmdet", reason="needs mmdet: make test installs it (openmmlab.txt)")

from timm.layers import DropPath

from train.tasks.detection import operators

operators.load_mmdet()

from mmdet.models import SingleRoIExtractor

from train.tasks.detection import model, pipeline

PER_EPOCH = 7328


@functools.cache
def config(*words):
    return resolve(["experiment=paper/coco_xcit", *words])


@functools.cache
def detector():
    with torch.device("meta"):
        return model.build(config())


def test_the_backbone_is_s12_16():
    body = detector().backbone
    assert (body.blocks[0].norm1.normalized_shape, len(body.blocks), body.taps) == ((384,), 12, (3, 5, 7, 11))
    assert body.patch_embed.patch_size == 16
    first = body.blocks[0]
    assert (first.attn.num_heads, first.mlp.fc1.out_features) == (8, 4 * 384)
    assert first.attn.qkv.bias is not None
    rates = {module.drop_prob for module in body.modules() if isinstance(module, DropPath)}
    assert rates == {0.05}  # the same in every block
    assert sum(isinstance(module, DropPath) for module in body.modules()) == 3 * 12
    built = model.backbone.build(config().model)
    assert torch.equal(built.blocks[11].gamma1, torch.ones(384))  # eta 1.0
    assert built.pos_embed.token_projection.weight.shape == (384, 64, 1, 1)
    assert config().model.pretrained == "timm:fb_dist_in1k"


def test_pyramid_regions_and_heads():
    chosen = model.settings(config())
    assert detector().neck.in_channels == [384] * 4
    assert (detector().neck.out_channels, detector().neck.num_outs) == (256, 5)
    anchors = chosen["rpn_head"]["anchor_generator"]
    assert (anchors["scales"], anchors["ratios"], anchors["strides"]) == ([8], [0.5, 1.0, 2.0], [4, 8, 16, 32, 64])
    for part, size in (("bbox", 7), ("mask", 14)):
        extractor = chosen["roi_head"][f"{part}_roi_extractor"]
        assert (extractor["featmap_strides"], extractor["roi_layer"]["output_size"]) == ([4, 8, 16, 32], size)
        assert chosen["roi_head"][f"{part}_head"]["num_classes"] == 80
    assert chosen["rpn_head"]["loss_bbox"]["type"] == chosen["roi_head"]["bbox_head"]["loss_bbox"]["type"] == "L1Loss"
    parameters = sum(parameter.numel() for parameter in detector().parameters())
    assert parameters / 1e6 == pytest.approx(44.4, abs=0.1)  # 44.3 M in the XCiT paper's table


def test_training_and_test_settings():
    chosen = model.settings(config())
    rpn, rcnn = chosen["train_cfg"]["rpn"], chosen["train_cfg"]["rcnn"]
    assert (rpn["assigner"]["pos_iou_thr"], rpn["assigner"]["neg_iou_thr"]) == (0.7, 0.3)
    assert (rpn["sampler"]["num"], rpn["sampler"]["pos_fraction"]) == (256, 0.5)
    proposals = chosen["train_cfg"]["rpn_proposal"]
    assert (proposals["nms_pre"], proposals["max_per_img"], proposals["nms"]["iou_threshold"]) == (2000, 1000, 0.7)
    assert (rcnn["assigner"]["pos_iou_thr"], rcnn["sampler"]["num"], rcnn["sampler"]["pos_fraction"]) == (
        0.5,
        512,
        0.25,
    )
    assert rcnn["mask_size"] == 28
    test = chosen["test_cfg"]
    assert (test["rpn"]["nms_pre"], test["rpn"]["max_per_img"]) == (1000, 1000)
    assert test["rcnn"] == {
        "score_thr": 0.05,
        "nms": {"type": "nms", "iou_threshold": 0.5},
        "max_per_img": 100,
        "mask_thr_binary": 0.5,
    }


def test_optimizer_and_what_does_not_decay():
    optimizer = config().optimizer
    assert (optimizer.name, optimizer.lr, list(optimizer.betas), optimizer.weight_decay) == (
        "adamw",
        1e-4,
        [0.9, 0.999],
        0.05,
    )
    assert optimizer.clip_grad is None
    spared, decayed = parameter_groups(config(), detector())
    assert (spared["weight_decay"], decayed["weight_decay"]) == (0.0, 0.05)
    names = {id(parameter): name for name, parameter in detector().named_parameters()}
    without = {names[id(parameter)] for parameter in spared["params"]}
    assert without == {name for name in names.values() if "norm" in name}
    # Three layer norms in each block and nothing else; so these do decay:
    assert len(without) == 12 * 3 * 2
    kept = {names[id(parameter)] for parameter in decayed["params"]}
    for name in (
        "blocks.0.gamma1",
        "blocks.0.attn.temperature",
        "blocks.0.local_mp.bn.weight",
        "blocks.0.attn.qkv.bias",
    ):
        assert f"backbone.{name}" in kept
    assert "backbone.patch_embed.proj.0.1.weight" in kept  # a batch norm
    assert "backbone.to_strides.0.1.weight" in kept
    assert "backbone.pos_embed.token_projection.weight" in kept
    assert len(without) + len(kept) == len(names)


def rates(chosen, steps):
    optimizer = torch.optim.AdamW([nn.Parameter(torch.zeros(1))], lr=scaled_lr(chosen))
    schedule = Schedule(chosen, optimizer, Length.of(chosen.schedule, PER_EPOCH))
    return [schedule.set(step) for step in steps]


def test_schedule():
    """Linear warm-up over 500 steps from a thousandth; a tenth from epoch 27 and again from epoch 33; 36 epochs."""
    assert Length.of(config().schedule, PER_EPOCH).steps == 36 * PER_EPOCH
    steps = [
        0,
        1,
        250,
        499,
        500,
        27 * PER_EPOCH - 1,
        27 * PER_EPOCH,
        33 * PER_EPOCH - 1,
        33 * PER_EPOCH,
        36 * PER_EPOCH - 1,
    ]
    ramp = [1e-4 * (0.001 + 0.999 * step / 500) for step in (0, 1, 250, 499)]
    assert rates(config(), steps) == pytest.approx([*ramp, 1e-4, 1e-4, 1e-5, 1e-5, 1e-6, 1e-6], rel=1e-12)


def test_batch_and_precision():
    assert (config().batch_size, config().task.group, config().task.evaluation_batch) == (16, 2, 1)
    assert config().runtime.precision == "fp16"
    assert config().evaluate.epochs == 1
    assert config().ema.decay == 0


def applied(seed, width=640, height=480):
    """A photo through the training pipeline, with its transforms' choices seeded."""
    from mmcv.transforms import Compose

    steps = Compose(pipeline.training(config().dataset)[2:])
    numpy.random.seed(seed)  # noqa: NPY002 - mmdet draws from this generator
    from mmdet.structures.bbox import HorizontalBoxes
    from mmdet.structures.mask import BitmapMasks

    found = steps(
        {
            "img": numpy.zeros((height, width, 3), dtype=numpy.uint8),
            "img_shape": (height, width),
            "ori_shape": (height, width),
            "img_id": 1,
            "img_path": "",
            "gt_bboxes": HorizontalBoxes(torch.tensor([[100.0, 100, 200, 200]])),
            "gt_bboxes_labels": numpy.array([0]),
            "gt_ignore_flags": numpy.array([False]),
            "gt_masks": BitmapMasks(numpy.ones((1, height, width), dtype=numpy.uint8), height, width),
        }
    )
    return found["data_samples"]


def test_augmentation_is_the_recipes():
    sides = list(range(480, 801, 32))
    loads, notes, flip, choice, pack = pipeline.training(config().dataset)
    assert [loads["type"], notes, pack["type"]] == [
        "LoadImageFromFile",
        {"type": "LoadAnnotations", "with_bbox": True, "with_mask": True},
        "PackDetInputs",
    ]
    assert flip == {"type": "RandomFlip", "prob": 0.5}
    whole = {"type": "RandomChoiceResize", "scales": [(side, 1333) for side in sides], "keep_ratio": True}
    first = {**whole, "scales": [(side, 1333) for side in (400, 500, 600)]}
    crop = {"type": "RandomCrop", "crop_type": "absolute_range", "crop_size": (384, 600), "allow_negative_crop": True}
    assert choice == {"type": "RandomChoice", "transforms": [[whole], [first, crop, whole]]}
    samples = [applied(seed) for seed in range(150)]
    kept = [sample for sample in samples if abs(sample.img_shape[1] / sample.img_shape[0] - 4 / 3) < 0.01]
    assert 0.35 < len(kept) / 150 < 0.65  # the branch without a window
    assert {min(sample.img_shape) for sample in kept} == set(sides)
    assert 0.4 < sum(sample.flip for sample in samples) / 150 < 0.6
    assert all(max(sample.img_shape) <= 1333 for sample in samples)
    assert any(len(sample.gt_instances) == 0 for sample in samples)  # a window without objects
    assert max(max(applied(seed, 2000, 500).img_shape) for seed in range(6)) == 1333


def test_evaluation_resizes_to_800_and_1333_without_mirroring():
    load, resize, pack = pipeline.evaluation(config().dataset)
    assert load["type"] == "LoadImageFromFile"
    assert resize == {"type": "Resize", "scale": (1333, 800), "keep_ratio": True}
    assert pack["type"] == "PackDetInputs"


def test_normalisation_and_padding():
    data = config().dataset
    assert list(data.mean) == [123.675, 116.28, 103.53]
    assert list(data.std) == [58.395, 57.12, 57.375]
    assert (data.pad, data.min_side) == (32, 32)


def test_corrections_go_to_the_backbones_attention_alone():
    import specattn

    chosen = config("conditioning=identity", "runtime.dry=true")
    assert chosen.conditioning.lam == 10
    found = specattn.corrections(model.build_conditioned(chosen))
    assert set(found) == {f"backbone.blocks.{i}.attn.{which}" for i in range(12) for which in "qkv"}


def test_a_misspelt_key_of_mmdets_config_names_the_nearest():
    with pytest.raises(
        UserError, match=r"unknown key 'model\.detector\.neck\.out_chanels'.*did you mean 'out_channels'"
    ):
        model.settings(config("model.detector.neck.out_chanels=3"))
    with pytest.raises(UserError, match="give both or neither"):
        config("schedule.milestones=null")
    with pytest.raises(UserError, match=r"needs optimizer\.no_decay_names"):
        config("optimizer.no_decay_names=null")


def test_region_features_are_taken_in_float32():
    """A region at 1,000 pixels keeps its place where the maps are bfloat16, which would round it by 4."""
    extractor = model.RegionFeatures({"type": "RoIAlign", "output_size": 2, "sampling_ratio": 0}, 1, [4])
    maps = (torch.arange(300.0)[None, None, None].expand(1, 1, 8, 300).bfloat16(),)
    rois = torch.tensor([[0, 1001.0, 2, 1009.0, 10]])
    assert extractor(maps, rois)[0, 0, 0].tolist() == pytest.approx([250.25, 251.25], abs=1e-3)
    assert extractor(maps, rois).dtype == torch.float32
    plain = SingleRoIExtractor({"type": "RoIAlign", "output_size": 2, "sampling_ratio": 0}, 1, [4])
    assert plain(maps, rois)[0, 0, 0].tolist() == pytest.approx([250.0, 251.0], abs=1e-3)  # mmdet's own


def test_batch_norms_are_synchronised_between_gpus_and_left_alone_on_the_cpu(monkeypatch):
    plain = detector()
    count = sum(type(module) is nn.BatchNorm2d for module in plain.modules())
    assert count == 4 + 12 + 1  # patch embedding, local patch interaction, the step to stride 4
    assert model.synchronised(plain) is plain
    assert sum(type(module) is nn.BatchNorm2d for module in plain.modules()) == count
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_backend", lambda: "nccl")
    together = model.synchronised(copy.deepcopy(plain))
    assert sum(type(module) is nn.SyncBatchNorm for module in together.modules()) == count
    assert not any(type(module) is nn.BatchNorm2d for module in together.modules())
    assert together.state_dict().keys() == plain.state_dict().keys()
