"""`mode=evaluate`: checkpoints, exports and timm's own weights give the same numbers; per class and per image."""

import csv
import json

import numpy
import pytest
import timm
import torch
from omegaconf import OmegaConf
from PIL import Image
from safetensors.torch import save_file

import specattn
from train import checkpoint
from train.command import main
from train.compose import distinguishing, resolve
from train.dry import memory, table
from train.errors import USAGE, UserError
from train.folder import run_folder
from train.tasks import build_model, vision_models


def found(capsys):
    return json.loads(capsys.readouterr().out.strip().splitlines()[-1])


def test_an_export_gives_what_its_checkpoint_gives(tiny, tmp_path, capsys):
    words = [*tiny, "conditioning=svd", "ema.decay=0.5"]
    assert main(words) == 0
    folder = run_folder(resolve(words), distinguishing(words))
    newest = checkpoint.checkpoints(folder)[-1]
    capsys.readouterr()
    assert main([*words, "mode=evaluate", f"checkpoint={newest}"]) == 0
    held = found(capsys)
    model = build_model(resolve(words))
    model.load_state_dict(checkpoint.load(newest)["ema"])
    specattn.fold(model, tmp_path / "plain.safetensors")
    predictions = tmp_path / "predictions.csv"
    more = [f"checkpoint={tmp_path / 'plain.safetensors'}", "per_class=true", f"predictions={predictions}"]
    assert main([*words, "mode=evaluate", *more]) == 0
    exported = found(capsys)
    assert exported["plain"]
    assert exported["correct"] == held["correct"]
    assert exported["loss"] == pytest.approx(held["loss"], rel=1e-5)
    assert sum(entry["count"] for entry in exported["per_class"].values()) == exported["count"]
    rows = list(csv.DictReader(predictions.read_text().splitlines()))
    assert len(rows) == exported["count"]
    right = [row["label"] for row in rows if row["label"] == row["prediction"]]
    assert len(right) == exported["correct"]
    for name, entry in exported["per_class"].items():
        assert entry["top1"] == pytest.approx(100 * right.count(name) / entry["count"])


def test_timms_own_weights_from_a_file(tiny, tmp_path, capsys):
    model = vision_models.build(resolve(tiny))
    torch.save(model.state_dict(), tmp_path / "weights.pth")
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    results = []
    for name in ("weights.pth", "weights.safetensors"):
        assert main([*tiny, "mode=evaluate", f"checkpoint={tmp_path / name}"]) == 0
        results.append(found(capsys)["loss"])
    assert results[0] == results[1]


def test_the_authors_own_names_are_converted(tmp_path, capsys):
    """XCiT's published files call the position encoding pos_embeder; timm knows how to read them."""
    words = ["experiment=reduced/imagenet_xcit", "model.args.embed_dim=32", "model.args.depth=1"]
    config = resolve(words)
    state = vision_models.build(config).state_dict()
    published = {}
    for key, tensor in state.items():
        if ".attn_block" in key or ("cls_attn_blocks" in key and ".attn." in key and key.split(".")[3] in "qkv"):
            continue
        published[key.replace("pos_embed.", "pos_embeder.")] = tensor
    for block in range(2):
        for kind in ("weight", "bias"):
            parts = [state[f"cls_attn_blocks.{block}.attn.{part}.{kind}"] for part in "qkv"]
            published[f"cls_attn_blocks.{block}.attn.qkv.{kind}"] = torch.cat(parts)
    torch.save({"model": published}, tmp_path / "published.pth")
    from train.evaluation import from_file

    loaded = from_file(config, tmp_path / "published.pth").state_dict()
    assert all(torch.equal(loaded[key], state[key]) for key in state)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [("a.safetensors", b"nonsense", "no weights that can be read"), ("a.pth", b"", "no weights that can be read")],
)
def test_weights_that_cannot_be_read_are_one_line(tiny, tmp_path, capsys, name, content, said):
    (tmp_path / name).write_bytes(content)
    assert main([*tiny, "mode=evaluate", f"checkpoint={tmp_path / name}"]) == USAGE
    assert said in capsys.readouterr().err


def test_weights_of_another_model_are_refused(tiny, tmp_path, capsys):
    save_file({"head.weight": torch.zeros(3, 3)}, tmp_path / "other.safetensors")
    assert main([*tiny, "mode=evaluate", f"checkpoint={tmp_path / 'other.safetensors'}"]) == USAGE
    assert "does not fit this config" in capsys.readouterr().err


def test_predictions_are_for_evaluations(tiny):
    with pytest.raises(UserError, match="mode=evaluate"):
        resolve([*tiny, "per_class=true"])


@pytest.mark.parametrize("row", ["vit", "deit", "swin", "xcit", "davit"])
def test_each_rows_export_loads_into_plain_timm(row, tmp_path):
    """At the reduced size; scripts/full_size_proof.py does it at the paper's."""
    config = resolve([f"experiment=reduced/imagenet_{row}", "conditioning=svd"])
    torch.manual_seed(0)
    model = build_model(config).eval()
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        before = model(images)
    specattn.fold(model, tmp_path / "plain.safetensors")
    plain = timm.create_model(config.model.name, num_classes=10, **OmegaConf.to_container(config.model.args)).eval()
    from safetensors.torch import load_file

    plain.load_state_dict(load_file(tmp_path / "plain.safetensors"), strict=True)
    with torch.no_grad():
        torch.testing.assert_close(plain(images), before, rtol=1e-4, atol=1e-5)


def test_the_dry_table_names_what_each_run_would_be(tmp_path):
    configs = [resolve([f"experiment=reduced/imagenet_{row}", f"data_root={tmp_path}"]) for row in ("xcit", "davit")]
    head, *lines, _ = table(configs).splitlines()
    assert head.split() == "experiment conditioning seed parameters steps batch lr memory data".split()  # noqa: SIM905
    assert "0.74 M" in lines[0]
    assert " 703 " in lines[0]
    assert " 937 " in lines[1]
    assert all("is not there" in line for line in lines)


def test_the_memory_estimate_counts_weights_and_activations():
    config = resolve(["experiment=reduced/digits_vit", "runtime.precision=fp32"])
    with torch.device("meta"):
        model = vision_models.build(config)
    parameters = sum(p.numel() for p in model.parameters())
    whole = memory(config, model)
    config.runtime.micro_batch = 32
    half = memory(config, model)
    fixed = 16 * parameters
    assert whole - fixed == 2 * (half - fixed)
    config.runtime.precision = "bf16"
    assert memory(config, model) - fixed == (half - fixed) // 2


def test_data_is_checked_before_a_long_run(tmp_path, capsys, monkeypatch):
    from scripts import check_data

    draw = numpy.random.default_rng(0)
    for split in ("train", "val"):
        for name in ("n01440764", "n01443537"):
            (tmp_path / "imagenet" / split / name).mkdir(parents=True)
            for index in range(3):
                picture = Image.fromarray(draw.integers(0, 255, (8, 8, 3), dtype=numpy.uint8))
                picture.save(tmp_path / "imagenet" / split / name / f"{index}.JPEG")

    def check(*words):
        fixed = (f"data_root={tmp_path}", "dataset.classes=2", "dataset.images=[6,6]")
        monkeypatch.setattr("sys.argv", ["check_data", "imagenet-vit", *fixed, *words])
        return check_data.main(), capsys.readouterr()

    assert check("dataset.synsets=null")[0] == 0
    code, said = check()
    assert code == 1
    assert "train: 998 classes are missing" in said.out
    (tmp_path / "imagenet" / "train" / "n01440764" / "1.JPEG").write_bytes(b"")
    code, said = check("dataset.synsets=null", "dataset.images=[7,6]", "--all")
    assert code == 1
    assert "train/n01440764/1.JPEG: cannot identify" in said.out
    assert "train: 6 images, not 7" in said.out


def test_a_flat_validation_folder_is_sorted_by_the_ground_truth(tmp_path, capsys, monkeypatch):
    from scripts import check_data

    root = tmp_path / "imagenet" / "val"
    root.mkdir(parents=True)
    for number in range(4):
        (root / f"ILSVRC2012_val_{number:08}.JPEG").write_bytes(bytes([number]))
    truth = ["n02", "n01", "n02", "n01"]
    torch.save(({}, truth), tmp_path / "imagenet" / "meta.bin")
    config = resolve(["experiment=paper/imagenet_vit", f"data_root={tmp_path}"])
    check_data.sort_validation(config)
    for number, name in enumerate(truth):
        assert (root / name / f"ILSVRC2012_val_{number:08}.JPEG").read_bytes() == bytes([number])
    with pytest.raises(UserError, match="holds 0 files, the ground truth is for 4"):
        check_data.sort_validation(config)
