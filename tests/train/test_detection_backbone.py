"""The backbone is timm's XCiT, tapped; an ImageNet checkpoint's every tensor is accounted for."""

import copy

import pytest
import timm
import torch
from detection_sets import small
from omegaconf import OmegaConf
from safetensors.torch import save_file

import specattn
from train import checkpoint
from train.errors import UserError

pytest.importorskip("mmdet", reason="needs mmdet: make test installs it (openmmlab.txt)")

from train.tasks.detection import operators

operators.load_mmdet()

from train.tasks.detection import backbone, model, weights

SMALL = {"embed_dim": 32, "depth": 3, "num_heads": 2, "eta": 1.0}
FOUR = {**SMALL, "depth": 5}


def options(**changed):
    given = {
        "name": "xcit_nano_12_p16_224",
        "args": FOUR,
        "taps": [0, 1, 2, 3],
        "pretrained": None,
        "correction": "carry",
    }
    return OmegaConf.create({**given, **changed})


def config(path, *words):
    width = ("model.args.embed_dim=32", "model.args.depth=5", "model.args.num_heads=2")
    return small("unused", *width, f"model.pretrained={path}", *words)


def classifier(seed=0, **args):
    torch.manual_seed(seed)
    return timm.create_model("xcit_nano_12_p16_224", num_classes=7, **{**FOUR, **args}).eval()


@pytest.mark.parametrize(("patch", "name"), [(16, "xcit_nano_12_p16_224"), (8, "xcit_nano_12_p8_224")])
@pytest.mark.parametrize("size", [(64, 96), (32, 160)])
def test_the_maps_are_timms_block_outputs_on_the_same_weights(patch, name, size):
    whole = timm.create_model(name, num_classes=7, **FOUR).eval()
    taken = backbone.XCiT(copy.deepcopy(whole), [0, 1, 3, 4]).eval()
    images = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = whole.forward_intermediates(images, indices=[0, 1, 3, 4], intermediates_only=True)
        maps = taken.token_maps(images)
        pyramid = taken(images)
    assert all(torch.equal(map, other) for map, other in zip(maps, expected, strict=True))
    assert [tuple(map.shape) for map in pyramid] == [(2, 32, size[0] // s, size[1] // s) for s in (4, 8, 16, 32)]
    unchanged = {16: 2, 8: 1}[patch]
    assert torch.equal(pyramid[unchanged], maps[unchanged])
    last = torch.nn.functional.max_pool2d(maps[3], 32 // patch)
    assert torch.equal(pyramid[3], last)


def test_the_layers_between_strides_are_the_authors():
    layers = backbone.to_strides(16, 32)
    assert [type(layer).__name__ for layer in layers[0]] == [
        "ConvTranspose2d",
        "BatchNorm2d",
        "GELU",
        "ConvTranspose2d",
    ]
    assert [type(layer).__name__ for layer in layers[1:]] == ["ConvTranspose2d", "Identity", "MaxPool2d"]
    assert all(layer.kernel_size == layer.stride == (2, 2) for layer in (layers[0][0], layers[0][3], layers[1]))


def test_blocks_after_the_last_tap_and_class_attention_are_not_built():
    taken = backbone.build(options(taps=[0, 1, 2, 3]))
    assert len(taken.blocks) == 4
    assert not any("cls" in name or name.startswith(("norm", "head")) for name, _ in taken.named_parameters())


@pytest.mark.parametrize("taps", [[0, 1, 2], [0, 1, 1, 2], [3, 2, 1, 0], [1, 2, 3, 5], [-1, 0, 1, 2]])
def test_taps_that_are_not_four_rising_blocks_are_refused(taps):
    with pytest.raises(UserError, match=r"four of the blocks 0\.\.4, in rising order"):
        backbone.build(options(taps=taps))


def test_other_models_are_refused():
    with pytest.raises(UserError, match=r"xcit_\* models only"):
        backbone.build(options(name="vit_tiny_patch16_224", args={}))
    with pytest.raises(UserError, match="nonsense"):
        backbone.build(options(args={"nonsense": 1}))


def saved(path, classifier, average=None):
    """A checkpoint of ours of a classifier."""
    state = {
        "step": 3,
        "model": classifier.state_dict(),
        "ema": average and average.state_dict(),
        "config": {"ema": {"evaluate": True}},
    }
    checkpoint._write(path, checkpoint._encoded(state))
    return path


def images():
    return torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(1))


def outputs(whole, taps=(0, 1, 2, 3)):
    """The blocks' outputs of a classifier, in evaluation."""
    with torch.no_grad():
        return whole.forward_intermediates(images(), indices=list(taps), intermediates_only=True)


def maps(detector):
    with torch.no_grad():
        return detector.backbone.eval().token_maps(images())


def alike(one, two):
    return all(torch.allclose(a, b, atol=1e-5) for a, b in zip(one, two, strict=True))


def test_a_baseline_checkpoint_of_ours_and_the_line_that_accounts_for_it(tmp_path, capsys):
    whole = classifier()
    path = saved(tmp_path / "checkpoint.pt", whole)
    detector = model.build_conditioned(config(path))
    assert alike(maps(detector), outputs(whole))
    line = capsys.readouterr().err
    classes = sum(name.startswith("cls_attn_blocks.") for name in whole.state_dict())
    unused = sum(name.startswith("blocks.4.") for name in whole.state_dict())
    used = sum(name.startswith(("blocks.", "patch_embed.", "pos_embed.")) for name in whole.state_dict()) - unused
    new = len(detector.backbone.to_strides.state_dict())
    assert (
        f"{used} tensors; not used: blocks ({unused}), cls_attn_blocks ({classes}), cls_token (1), head (2), norm (2); "
        in line
    )
    assert line.rstrip().endswith(f"new: to_strides ({new})")
    assert used + new == len(detector.backbone.state_dict())
    assert used + classes + unused + 5 == len(whole.state_dict())


def test_the_average_is_taken_where_the_checkpoint_reports_it(tmp_path):
    raw, average = classifier(0), classifier(1)
    path = saved(tmp_path / "checkpoint.pt", raw, average)
    assert alike(maps(model.build_conditioned(config(path))), outputs(average))


def test_timms_file_and_the_authors_names(tmp_path):
    whole = classifier()
    save_file(whole.state_dict(), tmp_path / "timm.safetensors")
    assert alike(maps(model.build_conditioned(config(tmp_path / "timm.safetensors"))), outputs(whole))
    theirs = {name.replace("pos_embed.", "pos_embeder."): value for name, value in whole.state_dict().items()}
    for index in range(len(whole.cls_attn_blocks)):
        for kind in ("weight", "bias"):
            parts = [theirs.pop(f"cls_attn_blocks.{index}.attn.{which}.{kind}") for which in "qkv"]
            theirs[f"cls_attn_blocks.{index}.attn.qkv.{kind}"] = torch.cat(parts)
    torch.save({"model": theirs}, tmp_path / "authors.pth")
    assert alike(maps(model.build_conditioned(config(tmp_path / "authors.pth"))), outputs(whole))


@pytest.mark.parametrize("method", ["identity", "svd", "relative"])
def test_a_conditioned_checkpoints_correction_is_carried_over(tmp_path, method):
    whole = specattn.condition(classifier(), method=method)
    with torch.no_grad():
        for parameter in whole.parameters():
            parameter.add_(0.01)  # trained: C is no longer what the present weights would give
    path = saved(tmp_path / "checkpoint.pt", whole)
    detector = model.build_conditioned(
        config(path, f"conditioning.method={method}", f"conditioning.lam={10 if method == 'identity' else 1}")
    )
    assert alike(maps(detector), outputs(whole))
    found, given = specattn.corrections(detector), specattn.corrections(whole)
    assert set(found) == {f"backbone.blocks.{i}.attn.{which}" for i in range(4) for which in "qkv"}
    for name, correction in found.items():
        assert torch.equal(correction.dense(), given[name.removeprefix("backbone.")].dense())
    weight = detector.backbone.blocks[0].attn.qkv._parameters["weight"]
    assert torch.equal(weight, whole.blocks[0].attn.qkv._parameters["weight"])  # W itself: decay acts on it alone


def test_a_conditioned_checkpoint_is_refused_elsewhere_or_folded(tmp_path):
    whole = specattn.condition(classifier(), method="svd")
    path = saved(tmp_path / "checkpoint.pt", whole)
    with pytest.raises(UserError, match=r"is conditioned .* model\.correction=fold"):
        model.build_conditioned(config(path))
    with pytest.raises(UserError, match=r"does not fit this config: .*another conditioning"):
        model.build_conditioned(config(path, "conditioning.method=svd", "conditioning.lam=2"))
    plain = model.build_conditioned(config(path, "model.correction=fold"))
    assert not specattn.corrections(plain)
    assert alike(maps(plain), outputs(whole))
    again = model.build_conditioned(config(path, "model.correction=fold", "conditioning.lam=3"))
    folded = specattn.fold(copy.deepcopy(whole))
    weight = again.backbone.blocks[2].attn.qkv._parameters["weight"]
    assert torch.allclose(weight, folded.blocks[2].attn.qkv.weight, atol=1e-6)
    assert torch.equal(specattn.corrections(again)["backbone.blocks.2.attn.q"].dense(), 3 * torch.eye(32))


def test_a_plain_checkpoint_is_conditioned_from_its_own_weights(tmp_path):
    whole = classifier()
    detector = model.build_conditioned(
        config(saved(tmp_path / "checkpoint.pt", whole), "conditioning.method=svd", "conditioning.lam=1")
    )
    expected = specattn.corrections(specattn.condition(whole, method="svd"))
    for name, correction in specattn.corrections(detector).items():
        assert torch.allclose(correction.dense(), expected[name.removeprefix("backbone.")].dense(), atol=1e-6)


def test_what_does_not_fit_is_one_line(tmp_path):
    with pytest.raises(UserError, match="is not there: name a checkpoint"):
        model.build_conditioned(config(tmp_path / "nothing.pt"))
    (tmp_path / "text.pth").write_text("no weights")
    with pytest.raises(UserError, match="holds no weights that can be read"):
        model.build_conditioned(config(tmp_path / "text.pth"))
    wide = saved(tmp_path / "wide.pt", classifier(embed_dim=48))
    with pytest.raises(UserError, match="size mismatch"):
        model.build_conditioned(config(wide))
    shallow = saved(tmp_path / "shallow.pt", classifier(depth=3))
    with pytest.raises(UserError, match=r"does not fit model .*: it lacks \d+, blocks\.3\."):
        model.build_conditioned(config(shallow))
    other = {**classifier().state_dict(), "decoder.weight": torch.zeros(1)}
    save_file(other, tmp_path / "more.safetensors")
    with pytest.raises(UserError, match=r"1 more, decoder\.weight"):
        model.build_conditioned(config(tmp_path / "more.safetensors"))


def test_an_evaluation_and_a_dry_run_ask_for_no_file(tmp_path):
    chosen = config(tmp_path / "nothing.pt", "mode=evaluate")
    assert weights.start(model.build(chosen), chosen) is None
    chosen = config(tmp_path / "nothing.pt", "runtime.dry=true")
    assert weights.start(model.build(chosen), chosen) is None
