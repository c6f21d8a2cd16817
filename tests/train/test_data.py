"""Batches: the same whatever the number of workers or devices; augmentation against a plain description."""

import io
from pathlib import Path

import numpy
import pyarrow
import pyarrow.parquet
import pytest
import torch
from PIL import Image

from train.compose import resolve
from train.data.imagenet import FolderImages
from train.data.plan import BatchPlan, shard
from train.data.presence import missing
from train.data.small import SmallImages, augment
from train.data.transforms import evaluation_transform, train_transform
from train.distributed import Place, join
from train.errors import UserError

IMAGE = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
DIGITS = ["experiment=reduced/digits_vit", "runtime.device=cpu"]


def place(rank=0, world=1):
    return Place(rank, world, torch.device("cpu"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes of twelve random photographs in ImageNet's layout."""
    draw = numpy.random.default_rng(0)
    for split, count in (("train", 12), ("val", 5)):
        for name in ("n01", "n02"):
            path = tmp_path / "imagenet" / split / name
            path.mkdir(parents=True)
            for index in range(count):
                size = draw.integers(40, 80, 2)
                Image.fromarray(draw.integers(0, 255, (*size, 3), dtype=numpy.uint8)).save(path / f"{index}.JPEG")
    return tmp_path


def folder_words(root: Path, *words: str) -> list[str]:
    return [
        "experiment=paper/imagenet_vit",
        f"data_root={root}",
        "dataset.classes=2",
        "dataset.image_size=32",
        "batch_size=8",
        *words,
    ]


@pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker processes")  # more than two cores: asked for
@pytest.mark.parametrize("augmentation", ["ra", "rand-m9-mstd0.5-inc1"])
def test_loader_workers_do_not_change_the_batches(folder, augmentation):
    """Two epochs' batches, and those of a loader that starts in the middle, with none, one and four workers."""
    words = [f"dataset.auto_augment={augmentation}", "dataset.random_erasing=0.5", "runtime.micro_batch=4"]
    streams = []
    for workers, start in ((0, 0), (1, 0), (4, 0), (4, 4)):
        config = resolve(folder_words(folder, *words, f"runtime.workers={workers}"))
        streams.append((start, list(FolderImages(config, join("cpu")).batches(start, 6))))
    reference = streams[0][1]
    assert len(reference) == 6
    assert len(reference[0]) == 2
    for start, batches in streams[1:]:
        for one, two in zip(reference[start:], batches, strict=True):
            for (images, labels), (others, other_labels) in zip(one, two, strict=True):
                assert torch.equal(images, others)
                assert torch.equal(labels, other_labels)
    assert not torch.equal(reference[0][0][0], reference[3][0][0])


def test_repeated_samples_are_augmented_differently(folder):
    config = resolve(folder_words(folder, "runtime.workers=0", "batch_size=6"))
    [(images, labels)] = next(FolderImages(config, join("cpu")).batches(0, 1))
    assert labels.tolist() == sorted(labels.tolist(), key=labels.tolist().index)  # three in a row each
    assert len({image.numpy().tobytes() for image in images}) == 6


def test_folder_evaluation_sees_every_image_once(folder):
    config = resolve(folder_words(folder, "runtime.workers=2"))
    counts = [
        sum(len(labels) for _, labels in FolderImages(config, place(rank, 4)).evaluation_batches(2))
        for rank in range(4)
    ]
    assert counts == [3, 3, 2, 2]


def test_a_folder_with_other_classes_is_refused(folder):
    with pytest.raises(UserError, match="holds 2 classes, the config says 1000"):
        FolderImages(resolve(folder_words(folder, "dataset.classes=1000")), place())
    (folder / "imagenet" / "val" / "n02").rename(folder / "imagenet" / "val" / "n03")
    with pytest.raises(UserError, match="different classes: n02, n03"):
        FolderImages(resolve(folder_words(folder)), place())


def test_the_recipe_transforms():
    options = resolve(["experiment=paper/imagenet_vit"]).dataset
    names = [type(step).__name__ for step in train_transform(options).transforms]
    assert names == ["RandomResizedCrop", "RandomHorizontalFlip", "RandAugment", "ToTensor", "Normalize"]
    assert "size=256" in str(evaluation_transform(options))
    assert "CenterCrop(size=(224, 224))" in str(evaluation_transform(options))


@pytest.mark.parametrize("world", [2, 4])
def test_devices_share_out_one_global_batch(world):
    """With augmentation on, the rows of all devices together are the rows of one."""
    config = resolve([*DIGITS, "dataset.pad=1", "dataset.flip=0.5", "batch_size=64"])
    [whole] = next(SmallImages(config, place()).batches(5, 6))
    parts = [next(SmallImages(config, place(rank, world)).batches(5, 6))[0] for rank in range(world)]
    for index in range(2):
        assert torch.equal(whole[index], torch.cat([part[index] for part in parts]))


def test_a_later_start_gives_the_same_batches():
    data = SmallImages(resolve([*DIGITS, "dataset.pad=1"]), place())
    straight = list(data.batches(0, 50))
    assert data.plan.steps_per_epoch == 22  # so that 20..49 crosses an epoch
    for one, two in zip(straight[20:], data.batches(20, 50), strict=True):
        assert torch.equal(one[0][0], two[0][0])


def test_an_epoch_holds_each_sample_at_most_once_and_orders_differ():
    plan = BatchPlan(103, 10, seed=3, place=place())
    epochs = [
        torch.cat([indices for _, _, [(_, indices)] in plan.micro_batches(10 * epoch, 10 * epoch + 10)])
        for epoch in range(2)
    ]
    for epoch in epochs:
        assert len(set(epoch.tolist())) == 100
    assert not torch.equal(*epochs)


def test_repeated_augmentation_repeats_consecutively():
    plan = BatchPlan(12, 6, seed=0, place=place(), repeats=3)
    stream = plan.stream(0).tolist()
    assert len(stream) == 12
    assert len(set(stream)) == 4
    assert all(stream[i] == stream[i + 1] == stream[i + 2] for i in range(0, 12, 3))


@pytest.mark.parametrize(("batch", "world"), [(10, 3), (200, 1)])
def test_batches_that_cannot_be_made_are_refused(batch, world):
    with pytest.raises(UserError, match="batch_size"):
        BatchPlan(100, batch, 0, place(0, world))


@pytest.mark.parametrize(("micro", "parts"), [(None, 1), (16, 1), (15, 2), (6, 4), (1, 16)])
def test_accumulation_takes_the_fewest_equal_parts(micro, parts):
    assert BatchPlan(100, 16, 0, place(), micro).accumulation == parts


def test_shards_are_a_partition():
    for world in (1, 2, 3, 7):
        indices = sorted(i for rank in range(world) for i in shard(23, place(rank, world)))
        assert indices == list(range(23))


def test_augmentation_against_a_plain_description():
    images = torch.randint(0, 255, (5, 2, 6, 7), dtype=torch.uint8)
    window = torch.tensor([[0, 0], [2, 4], [4, 1], [3, 3], [1, 2]])
    mirrored = torch.tensor([False, True, False, True, True])
    result = augment(images, 2, window, mirrored)
    for index in range(5):
        expected = torch.zeros(2, 6, 7, dtype=torch.uint8)
        for row in range(6):
            for column in range(7):
                y, x = row + int(window[index, 0]) - 2, column + int(window[index, 1]) - 2
                if 0 <= y < 6 and 0 <= x < 7:
                    expected[:, row, column] = images[index, :, y, x]
        assert torch.equal(result[index], expected.flip(-1) if mirrored[index] else expected)


def test_digits_are_split_once_for_all_seeds():
    one, two = (SmallImages(resolve([*DIGITS, f"seed={seed}"]), place()) for seed in (0, 1))
    assert (len(one.train[1]), len(one.test[1])) == (1438, 359)
    assert torch.equal(one.train[0], two.train[0])
    assert torch.equal(one.test[1], two.test[1])


def test_cifar10_from_the_hubs_parquet(data_root):
    data = SmallImages(resolve(["experiment=reduced/imagenet_vit", f"data_root={data_root}"]), place())
    assert data.train[0].shape == (50000, 3, 32, 32)
    assert data.test[0].shape == (10000, 3, 32, 32)
    assert data.test[1].bincount().tolist() == [1000] * 10


def test_a_damaged_parquet_is_named(tmp_path):
    (tmp_path / "cifar10").mkdir()
    for split in ("train", "test"):
        (tmp_path / "cifar10" / f"{split}-0.parquet").write_bytes(b"no parquet")
    with pytest.raises(UserError, match=r"train-0\.parquet cannot be read as parquet"):
        SmallImages(resolve(["experiment=reduced/imagenet_vit", f"data_root={tmp_path}"]), place())


def test_what_is_missing_is_named(tmp_path, folder):
    assert missing("digits", None) is None
    assert "DATA_ROOT" in missing("cifar10", None)
    assert "is not there" in missing("cifar10", str(tmp_path / "nowhere"))
    (tmp_path / "cifar10").mkdir()
    assert "train-*.parquet and test-*.parquet" in missing("cifar10", str(tmp_path))
    assert missing("imagenet", str(folder)) is None
    for path in (folder / "imagenet" / "val").iterdir():
        path.rename(folder / path.name)
    assert "holds no class folders" in missing("imagenet", str(folder))


def png(size=32):
    buffer = io.BytesIO()
    Image.new("RGB", (size, size)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("cells", "labels", "names"),
    [
        ([png(), b"no image"], [0, 1], "image 1 or a label cannot be read"),
        ([png(), None], [0, 1], "cannot be read"),
        ([png(), png(8)], [0, 1], "must be 32 x 32"),
        ([png(), png()], [0, 99], "labels 0..99"),
        ([png(), png()], [0, None], "cannot be read"),
        ([], [], "there must be some"),
    ],
)
def test_damaged_rows_are_named(tmp_path, cells, labels, names):
    (tmp_path / "cifar10").mkdir()
    images = pyarrow.array([{"bytes": cell, "path": None} for cell in cells], IMAGE)
    table = pyarrow.table({"img": images, "label": pyarrow.array(labels, pyarrow.int64())})
    for split in ("train", "test"):
        pyarrow.parquet.write_table(table, tmp_path / "cifar10" / f"{split}-0.parquet")
    with pytest.raises(UserError, match=names) as caught:
        SmallImages(resolve(["experiment=reduced/imagenet_vit", f"data_root={tmp_path}"]), place())
    assert "\n" not in str(caught.value)
