"""Photographs: the layouts give the same images, broken ones are replaced or refused, and what is missing is named."""

import io
import tarfile
from pathlib import Path

import numpy
import pyarrow.parquet
import pytest
import scipy.io
import torch
from PIL import Image
from torchvision.datasets import imagenet as official

from train.command import main
from train.compose import resolve
from train.data.imagenet import FolderImages
from train.data.photographs import photographs
from train.data.plan import BatchPlan
from train.data.presence import missing
from train.distributed import Place, join
from train.errors import UserError
from train.record_files import read_metrics

CLASSES = ("n01440764", "n02102040")


@pytest.fixture
def folder(tmp_path):
    """Two classes of twelve and five random photographs in ImageNet's layout."""
    draw = numpy.random.default_rng(0)
    for split, count in (("train", 12), ("val", 5)):
        for name in CLASSES:
            path = tmp_path / "imagenet" / split / name
            path.mkdir(parents=True)
            for index in range(count):
                size = draw.integers(40, 80, 2)
                Image.fromarray(draw.integers(0, 255, (*size, 3), dtype=numpy.uint8)).save(
                    path / f"{name}_{index}.JPEG"
                )
    return tmp_path


def chosen(root, *words):
    fixed = ("dataset.classes=2", "dataset.image_size=32", "batch_size=8", "runtime.workers=0", "runtime.device=cpu")
    return resolve(["experiment=paper/imagenet_vit", f"data_root={root}", *fixed, *words])


def content(images):
    return [(images.label(i), numpy.asarray(images.read(i)).tobytes()) for i in range(len(images))]


def test_parquet_shards_hold_what_the_folders_hold(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    target = tmp_path / "shards" / "imagenet" / "data"
    target.mkdir(parents=True)
    for split, name in (("train", "train"), ("val", "validation")):
        files = sorted((folder / "imagenet" / split).rglob("*.JPEG"), key=lambda path: (path.parent.name, path.name))
        for part in range(2):
            half = files[part::2] if split == "train" else files[part * 5 : part * 5 + 5]
            rows = {
                "image": [{"bytes": path.read_bytes(), "path": path.name} for path in half],
                "label": [CLASSES.index(path.parent.name) for path in half],
            }
            pyarrow.parquet.write_table(pyarrow.table(rows), target / f"{name}-0000{part}-of-00002.parquet")
    for split in ("train", "val"):
        one = photographs(chosen(folder).dataset, str(folder), split)
        shard = photographs(chosen(folder, "dataset.layout=parquet").dataset, str(tmp_path / "shards"), split)
        assert shard.identifiers == one.identifiers == list(CLASSES)
        assert sorted(content(shard)) == sorted(content(one))
    config = chosen(tmp_path / "shards", "dataset.layout=parquet")
    [(images, labels)] = next(FolderImages(config, join("cpu")).batches(0, 1))
    assert images.shape == (8, 3, 32, 32)
    assert labels.dtype == torch.int64


def test_the_official_archives_are_unpacked_and_sorted(folder, tmp_path):
    """Archives as image-net.org gives them, made from the folders; torchvision unpacks and sorts them."""
    root = tmp_path / "archives" / "imagenet"
    root.mkdir(parents=True)
    devkit = "ILSVRC2012_devkit_t12"
    kind = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("gloss", "O"), ("num_children", "O")]
    rows = numpy.array([(i + 1, name, f"class {i}", "", 0) for i, name in enumerate(CLASSES)], dtype=kind)
    described = io.BytesIO()
    scipy.io.savemat(described, {"synsets": rows.reshape(-1, 1)})
    validation = sorted((folder / "imagenet" / "val").rglob("*.JPEG"))[::-1]  # not in the order of the classes
    truth = "".join(f"{CLASSES.index(path.parent.name) + 1}\n" for path in validation)

    def add(archive, name, data):
        entry = tarfile.TarInfo(name)
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))

    with tarfile.open(root / f"{devkit}.tar.gz", "w:gz") as archive:
        add(archive, f"{devkit}/data/meta.mat", described.getvalue())
        add(archive, f"{devkit}/data/ILSVRC2012_validation_ground_truth.txt", truth.encode())
    with tarfile.open(root / "ILSVRC2012_img_train.tar", "w") as archive:
        for name in CLASSES:
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as part:
                for path in sorted((folder / "imagenet" / "train" / name).iterdir()):
                    add(part, path.name, path.read_bytes())
            add(archive, f"{name}.tar", inner.getvalue())
    with tarfile.open(root / "ILSVRC2012_img_val.tar", "w") as archive:
        for number, path in enumerate(validation):
            add(archive, f"ILSVRC2012_val_{number:08}.JPEG", path.read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        # The real archives' checksums cannot match those of two classes of noise.
        patch.setattr(official, "check_integrity", lambda path, md5=None: Path(path).is_file())
        for split in ("train", "val"):
            unpacked = photographs(chosen(folder, "dataset.layout=archives").dataset, str(tmp_path / "archives"), split)
            assert unpacked.identifiers == list(CLASSES)
            assert sorted(content(unpacked)) == sorted(content(photographs(chosen(folder).dataset, str(folder), split)))


def test_wrong_archives_are_one_line(tmp_path):
    (tmp_path / "imagenet").mkdir()
    with pytest.raises(UserError, match="devkit"):
        photographs(chosen(tmp_path, "dataset.layout=archives").dataset, str(tmp_path), "train")


def test_a_broken_training_image_is_named_and_replaced(folder, capsys, monkeypatch):
    monkeypatch.setattr("train.data.broken.BROKEN_LIMIT", 0.1)
    whole = chosen(folder, "dataset.repeats=1")
    reference = [labels for [(_, labels)] in FolderImages(whole, join("cpu")).batches(0, 6)]
    bad = folder / "imagenet" / "train" / CLASSES[0] / f"{CLASSES[0]}_3.JPEG"
    for harm in (b"", bad.read_bytes()[:500], b"no image"):
        bad.write_bytes(harm)
        for workers in (0, 2):
            data = FolderImages(chosen(folder, "dataset.repeats=1", f"runtime.workers={workers}"), join("cpu"))
            for [(images, labels)], expected in zip(data.batches(0, 6), reference, strict=True):
                assert images.shape == (8, 3, 32, 32)
                assert torch.equal(labels, expected)  # its neighbour is of the same class
            said = capsys.readouterr().err
            assert said.count("cannot be read and is replaced") == 1
            assert f"train/{CLASSES[0]}/{CLASSES[0]}_3.JPEG" in said
            assert len(data.broken.found) == 1


def test_a_broken_training_image_is_in_the_record(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("train.data.broken.BROKEN_LIMIT", 0.1)
    bad = f"{CLASSES[0]}/{CLASSES[0]}_3.JPEG"
    (folder / "imagenet" / "train" / bad).write_bytes(b"")
    small = ("embed_dim=16", "depth=1", "num_heads=2", "patch_size=8", "img_size=32")
    words = ["experiment=paper/imagenet_vit", f"data_root={folder}", f"output_root={tmp_path / 'outputs'}"]
    words += [f"++model.args.{word}" for word in small] + ["dataset.classes=2", "dataset.image_size=32"]
    words += ["runtime.workers=0", "runtime.device=cpu", "runtime.wandb=off", "batch_size=8", "dataset.repeats=1"]
    words += ["schedule.epochs=null", "schedule.steps=6", "schedule.warmup_epochs=null", "schedule.warmup_steps=1"]
    words += ["evaluate.epochs=null", "evaluate.steps=3"]
    assert main(words) == 0
    [record] = (tmp_path / "outputs").rglob("metrics.jsonl")
    noticed = [event for event in read_metrics(record) if event["event"] == "notice"]
    assert [event["broken_image"] for event in noticed] == [f"train/{bad}"]  # twice met, said once
    assert "cannot identify" in noticed[0]["reason"]


def test_too_many_broken_images_stop_the_run(folder):
    (folder / "imagenet" / "train" / CLASSES[0] / f"{CLASSES[0]}_3.JPEG").write_bytes(b"")
    with pytest.raises(UserError, match=r"1 of 24 training images cannot be read, more than 0\.1%"):
        list(FolderImages(chosen(folder, "dataset.repeats=1"), join("cpu")).batches(0, 3))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_broken_image_in_evaluation_is_an_error(folder, workers):
    (folder / "imagenet" / "val" / CLASSES[1] / f"{CLASSES[1]}_4.JPEG").write_bytes(b"")
    with pytest.raises(UserError, match=f"val/{CLASSES[1]}/{CLASSES[1]}_4.JPEG cannot be read"):
        list(FolderImages(chosen(folder, f"runtime.workers={workers}"), join("cpu")).evaluation_batches(4))


def test_an_evaluation_needs_no_training_images(folder):
    (folder / "imagenet" / "train").rename(folder / "elsewhere")
    data = FolderImages(chosen(folder, "mode=evaluate"), join("cpu"))
    assert sum(len(labels) for _, labels in data.evaluation_batches(4)) == 10


def test_workers_stay_between_evaluations(folder):
    data = FolderImages(chosen(folder, "runtime.workers=1"), join("cpu"))
    first, second = ([labels.tolist() for _, labels in data.evaluation_batches(4)] for _ in range(2))
    assert first == second
    assert len(data._evaluation) == 1


@pytest.mark.parametrize("world", [1, 2, 4])
def test_repeated_augmentation_is_the_official_samplers(world):
    """timm's copy of DeiT's RASampler, given our permutation for its own."""
    from timm.data.distributed_sampler import RepeatAugSampler

    from train.randomness import ORDER, mixed

    size, batch = 1000, 32
    for epoch in (0, 3):
        for rank in range(world):
            official_sampler = RepeatAugSampler(range(size), num_replicas=world, rank=rank, num_repeats=3)
            official_sampler.set_epoch(mixed(5, ORDER, epoch))  # it seeds its permutation with the epoch alone
            plan = BatchPlan(size, batch, 5, Place(rank, world, torch.device("cpu")), repeats=3)
            assert plan.steps_per_epoch == 768 // batch
            start = epoch * plan.steps_per_epoch
            ours = [i for _, _, [(_, part)] in plan.micro_batches(start, start + 768 // batch) for i in part.tolist()]
            assert ours == list(official_sampler)


def test_repeated_augmentation_against_a_plain_description():
    """Every global batch is the next positions of: permute, each sample three times, the first floor(N/256)·256."""
    size, batch, world = 700, 64, 4
    parts = [BatchPlan(size, batch, 1, Place(rank, world, torch.device("cpu")), 8, 3) for rank in range(world)]
    alone = BatchPlan(size, batch, 1, Place(0, 1, torch.device("cpu")), repeats=3)
    stream, order = [], alone.stream(2).tolist()[::3]
    assert len(set(order)) == len(order) == -(-512 // 3)
    for sample in order:
        stream += [sample] * 3
    stream = stream[:512]
    for step in range(8):
        rows = [next(plan.micro_batches(16 + step, 17 + step)) for plan in parts]
        for rank, (epoch, position, found) in enumerate(rows):
            assert (epoch, position) == (2, step * batch)
            assert len(found) == 2
            mine = [i for _, part in found for i in part.tolist()]
            assert mine == stream[position : position + batch][rank::world]
        [(_, whole)] = next(alone.micro_batches(16 + step, 17 + step))[2]
        assert whole.tolist() == stream[step * batch : (step + 1) * batch]


def test_what_is_missing_of_each_layout_is_named(folder, tmp_path):
    root = folder / "imagenet"
    assert missing("imagenet", str(folder)) is None
    assert "train-*.parquet" in missing("imagenet", str(folder), "parquet")
    assert "ILSVRC2012_img_val.tar" in missing("imagenet", str(folder), "archives")
    assert missing("imagenet", str(folder), "hub") is None
    for path in list((root / "val").iterdir()):
        for image in path.iterdir():
            image.rename(root / "val" / image.name)
        path.rmdir()
    assert "--sort-val" in missing("imagenet", str(folder))
    (root / "train").rename(tmp_path / "moved")
    (root / "ILSVRC2012_img_train.tar").touch()
    assert "dataset.layout=archives" in missing("imagenet", str(folder))
    for split in ("train", "validation"):
        (root / f"{split}-00000-of-00001.parquet").touch()
    assert "dataset.layout=parquet" in missing("imagenet", str(folder))
