"""Photos and batches: mmdet's own grouping, a pure function of the step, and what odd sets lead to."""

import json
import shutil

import numpy
import pytest
import torch
from detection_sets import CATEGORIES, box, mixed_set, small, write_annotations, write_split

from train.compose import resolve
from train.distributed import Place, join
from train.errors import UserError

pytest.importorskip("mmdet", reason="needs mmdet: make test installs it (openmmlab.txt)")

from train.tasks.detection import operators

operators.load_mmdet()

from mmdet.datasets import AspectRatioBatchSampler

from train.tasks.detection.data import CocoPhotos
from train.tasks.detection.plan import AspectPlan
from train.tasks.detection.task import Detection


def data(root, *more, place=None):
    return CocoPhotos(small(root, *more), place or join("cpu"))


def plan(tall, batch, group, place=None, **more):
    return AspectPlan(len(tall), batch, 5, place or Place(0, 1, torch.device("cpu")), tall=tall, group=group, **more)


# ---- which photos make up a batch


@pytest.mark.parametrize("group", [1, 2, 3])
def test_groups_are_mmdets(group):
    """The same order of photos through mmdet's AspectRatioBatchSampler gives the same groups in the same order."""
    tall = torch.rand(101, generator=torch.Generator().manual_seed(0)) < 0.3
    chosen = plan(tall, group, group)

    class Order(torch.utils.data.Sampler):
        dataset = type(
            "Infos", (), {"get_data_info": lambda self, i: {"width": 2 - int(tall[i]), "height": 1 + int(tall[i])}}
        )()

        def __init__(self, epoch):
            from train.randomness import ORDER, permutation

            self.order = permutation(101, 5, ORDER, epoch).tolist()

        def __iter__(self):
            return iter(self.order)

        def __len__(self):
            return len(self.order)

    for epoch in range(3):
        theirs = list(AspectRatioBatchSampler(Order(epoch), group, drop_last=False))
        whole = [photos for photos in theirs if len(photos) == group and len({bool(tall[i]) for i in photos}) == 1]
        ours = chosen.stream(epoch).view(-1, group).tolist()
        assert ours == whole[: len(ours)]
        assert len(whole) - len(ours) <= 1  # what mmdet makes of the rest


def test_an_epoch_is_the_same_on_any_number_of_devices_and_no_photo_comes_twice():
    tall = torch.arange(50) % 3 == 0
    alone = plan(tall, 8, 2)
    assert alone.steps_per_epoch == (16 + 32) // 8
    seen = []
    for step, (_, _, [(_, indices)]) in enumerate(alone.micro_batches(0, 6)):
        parts = []
        for rank in range(4):
            one = plan(tall, 8, 2, Place(rank, 4, torch.device("cpu")))
            [(_, _, [(_, own)])] = one.micro_batches(step, step + 1)
            assert len(set(tall[own].tolist())) == 1  # the two photos of a device are of like aspect
            parts += own.tolist()
        assert parts == indices.tolist()
        seen += parts
    assert len(set(seen)) == 48


def digest(batch):
    """What a batch is made of, bit for bit."""
    samples = batch["data_samples"]
    masks = [sample.gt_instances.masks.masks for sample in samples]
    return (
        batch["inputs"].numpy().tobytes(),
        [sample.img_id for sample in samples],
        [sample.gt_instances.bboxes.numpy().tobytes() for sample in samples],
        [sample.gt_instances.labels.tolist() for sample in samples],
        [mask.tobytes() for mask in masks],
    )


CROP = ("dataset.crop_sides=[48,80]", "dataset.crop=[32,56]", "dataset.short_sides=[48,64,80]")


def test_batches_are_a_function_of_seed_and_step(tmp_path):
    root = mixed_set(tmp_path)
    whole = [digest(batch) for [batch] in data(root, *CROP).batches(0, 8)]
    later = [digest(batch) for [batch] in data(root, *CROP).batches(5, 8)]
    assert later == whole[5:]
    workers = [digest(batch) for [batch] in data(root, *CROP, "runtime.workers=1").batches(4, 8)]
    assert workers == whole[4:]
    assert data(root, *CROP, "seed=1").plan.stream(0).tolist() != data(root, *CROP).plan.stream(0).tolist()
    halves = [[digest(batch) for batch in step] for step in data(root, *CROP, "runtime.micro_batch=2").batches(0, 2)]
    assert [one[1] + two[1] for one, two in halves] == [step[1] for step in whole[:2]]


def test_each_validation_photo_is_evaluated_once_by_any_number_of_workers(tmp_path):
    root = mixed_set(tmp_path)
    for world in (1, 2, 3):
        seen = []
        for rank in range(world):
            share = data(root, "mode=evaluate", place=Place(rank, world, torch.device("cpu")))
            seen += [sample.img_id for batch in share.evaluation_batches(1) for sample in batch["data_samples"]]
        assert sorted(seen) == [1, 2, 3, 4, 5]


# ---- what is left out, and what is refused


def task(root, *more):
    from train.tasks import build_model

    config = small(root, *more)
    torch.manual_seed(0)
    return Detection(config, join("cpu")), build_model(config)


def test_photos_without_objects_and_small_ones_are_left_out_of_training_alone(tmp_path):
    photos = [(1, 64, 64), (2, 64, 64), (3, 64, 31), (4, 64, 64)]
    objects = [box(1, 1, 4, 4, 20, 20), box(2, 3, 4, 4, 20, 20), box(3, 4, 4, 4, 20, 20, crowd=True)]
    for split in ("train", "val"):
        write_split(tmp_path, split, photos, objects)
    found = data(tmp_path, "batch_size=1", "task.group=1")
    assert found.train.image_ids() == [1, 4]
    assert found.test.image_ids() == [1, 2, 3, 4]
    seen = [sample.img_id for batch in found.evaluation_batches(2) for sample in batch["data_samples"]]
    assert seen == [1, 2, 3, 4]


def test_odd_photos_and_objects_train_and_evaluate(tmp_path):
    """Grey photos, one-pixel boxes, crowds alone, windows without objects: the loss is finite and has a gradient."""
    photos = [(1, 64, 64, "L"), (2, 64, 64), (3, 64, 64), (4, 64, 64)]
    objects = [
        box(1, 1, 4, 4, 20, 20),
        box(2, 2, 63, 63, 1, 1),  # one pixel, in the corner
        box(3, 3, 10, 10, 30, 30, crowd=True),
        box(4, 4, 0, 0, 0.5, 20),  # less than a pixel wide: mmdet leaves it out
    ]
    for split in ("train", "val"):
        write_split(tmp_path, split, photos, objects)
    found, model = task(tmp_path)
    [batch] = next(found.batches(0, 1))
    by_id = {sample.img_id: sample for sample in batch["data_samples"]}
    assert sorted(by_id) == [1, 2, 3, 4]
    place = [sample.img_id for sample in batch["data_samples"]].index(1)
    plain = batch["inputs"][place] * found.data.preprocess.std + found.data.preprocess.mean
    assert torch.allclose(plain[0], plain[1], atol=1e-3)  # grey becomes three equal channels
    assert by_id[2].gt_instances.bboxes.tolist() in ([[63, 63, 64, 64]], [[0, 63, 1, 64]])  # mirrored or not
    assert int(by_id[2].gt_instances.masks.masks.sum()) >= 1
    assert [len(by_id[i].gt_instances) for i in (1, 2, 3, 4)] == [1, 1, 0, 0]
    assert len(by_id[3].ignored_instances) == 1  # crowds are neither object nor ground
    loss = found.loss(model.train(), batch)
    loss.backward()
    assert torch.isfinite(loss)
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())
    metrics = found.evaluate(model.eval())
    assert metrics["photos"] == 4
    assert all(numpy.isfinite(value) for value in metrics.values())


def test_a_missing_photo_is_said_at_the_start(tmp_path):
    root = mixed_set(tmp_path)
    (root / "coco" / "train2017" / "000000000007.png").unlink()
    with pytest.raises(UserError, match=r"train2017 lacks 1 of 24 photos, the first: 000000000007\.png"):
        data(root)


def test_a_photo_that_cannot_be_read_is_replaced_in_training_and_refused_in_evaluation(tmp_path, capsys, monkeypatch):
    root = mixed_set(tmp_path)
    (root / "coco" / "train2017" / "000000000007.png").write_bytes(b"no photo")
    monkeypatch.setattr("train.data.broken.BROKEN_LIMIT", 0.5)
    photos = data(root)
    seen = [sample.img_id for [batch] in photos.batches(0, 6) for sample in batch["data_samples"]]
    assert 7 not in seen
    assert [notice["broken_image"] for notice in photos.broken.notices()] == ["train2017/000000000007.png"]
    assert photos.broken.notices() == []
    assert seen.count(8) == 2
    assert capsys.readouterr().err.count("train2017/000000000007.png cannot be read and is replaced by the next") == 1
    monkeypatch.setattr("train.data.broken.BROKEN_LIMIT", 1e-3)
    with pytest.raises(UserError, match=r"1 of 24 training images cannot be read, more than 0\.1%"):
        list(data(root).batches(0, 6))
    (root / "coco" / "val2017" / "000000000002.png").write_bytes(b"")
    with pytest.raises(UserError, match=r"val2017/000000000002\.png cannot be read.*every photo"):
        list(data(root).evaluation_batches(1))


def broken(root, change):
    """A sound set whose training annotations are changed."""
    mixed_set(root, train=6, val=3)
    path = root / "coco" / "annotations" / "instances_train2017.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return root


ODD = {
    "category": (
        lambda content: content["annotations"][1].update(category_id=99),
        "object 2 has category 99, which the file does not list",
    ),
    "photo": (
        lambda content: content["annotations"][1].update(image_id=99),
        "object 2 is in photo 99, which is not there",
    ),
    "same": (lambda content: content["annotations"][1].update(id=1), "not unique"),
    "twice": (lambda content: content["images"][1].update(id=1), "share a number"),
    "other": (lambda content: content.pop("categories"), "not in the format|has no categories"),
    "box": (lambda content: content["annotations"][1].pop("bbox"), "not in the format"),
    "count": (
        lambda content: content["categories"].append({"id": 9, "name": "more"}),
        "3 categories, the config says 2",
    ),
    "names": (lambda content: content["categories"][0].update(name="up"), "list different categories"),
    "empty": (lambda content: content["annotations"].clear(), "no photo is left to use"),
}


@pytest.mark.parametrize("kind", ODD)
def test_annotations_that_cannot_be_trained_on_are_one_line(tmp_path, kind):
    change, said = ODD[kind]
    with pytest.raises(UserError, match=said) as error:
        data(broken(tmp_path, change), "batch_size=2", "task.group=1")
    assert "\n" not in str(error.value)


def test_a_file_that_is_no_json_and_one_that_is_not_there(tmp_path):
    root = mixed_set(tmp_path)
    path = root / "coco" / "annotations" / "instances_val2017.json"
    path.write_text("{")
    with pytest.raises(UserError, match="not in the format of COCO's instances"):
        data(root)
    from train.data.presence import missing

    path.unlink()
    assert "lacks annotations/instances_val2017.json" in missing("coco", str(root), "coco")
    shutil.rmtree(root / "coco" / "train2017")
    assert "train2017" in missing("coco", str(root), "coco")
    assert "make_shapes --into" in missing("shapes", str(root), "coco")
    assert "set DATA_ROOT" in missing("coco", None, "coco")


# ---- make check-data


def check(root, *more):
    from scripts.check_coco import coco_problems

    return coco_problems(small(root, *more), True)


@pytest.mark.parametrize(
    ("what", "key"), [("images", "width"), ("images", "id"), ("categories", "name"), ("annotations", "id")]
)
def test_check_data_names_an_entry_without_its_keys(tmp_path, what, key):
    root = mixed_set(tmp_path)
    path = root / "coco" / "annotations" / "instances_train2017.json"
    content = json.loads(path.read_text())
    del content[what][1][key]
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=f"instances_train2017.json: entry 1 of its {what} has no {key}"):
        check(root)


def test_check_data_finds_each_kind_of_damage(tmp_path, monkeypatch):
    monkeypatch.setattr("scripts.check_coco.category_problems", lambda *_: [])  # the set is not COCO's own
    root = mixed_set(tmp_path / "sound")
    assert check(root) == []
    images = [{"id": n, "file_name": f"{n:012d}.png", "width": 64, "height": 64} for n in range(1, 6)]
    photos = [(n, 64, 64) for n in range(1, 6)]
    objects = [
        {**box(1, 1, 4, 4, 20, 20), "category_id": 4},
        box(2, 9, 4, 4, 20, 20),
        {**box(3, 1, 4, 4, 20, 20), "segmentation": [[1, 2, 3, 4, 5]]},
        {**box(4, 1, 4, 4, 20, 20), "segmentation": []},
        {**box(5, 2, 4, 4, 20, 20, crowd=True), "segmentation": {"counts": [5, 6], "size": [64, 64]}},
        {**box(6, 2, 4, 4, 20, 20, crowd=True), "segmentation": {"counts": [64 * 32], "size": [64, 32]}},
        {**box(7, 2, 4, 4, 20, 20, crowd=True), "segmentation": [[1, 2, 3, 4, 5, 6]]},
        box(8, 3, 50, 50, 40, 4),
        {**box(9, 3, 4, 4, 20, 20), "bbox": [1, 2, None, 4]},
        {**box(10, 3, 4, 4, 20, 20), "iscrowd": 2},
        box(10, 4, 4, 4, 20, 20),
        box(11, 4, 4, 4, 0.5, 20),
    ]
    other = tmp_path / "odd"
    for split in ("train", "val"):
        write_split(other, split, photos, objects)
    write_annotations(other, "val", [*images[:4], {**images[4], "width": 65}, images[0]], objects, CATEGORIES[:1])
    (other / "coco" / "val2017" / "000000000002.png").unlink()
    (other / "coco" / "val2017" / "000000000003.png").write_bytes(b"no photo")
    found = check(other, "dataset.photos=[5,5]")
    expected = [
        "train: 2 objects have the number 10",
        "train: object 1 has category 4, which is not listed",
        "train: object 2 is in photo 9, which is not listed",
        "train: object 3: a polygon is not three or more pairs of numbers",
        "train: object 4: it has no polygon",
        "train: object 5: its run lengths cover 11 pixels of 4096",
        "train: object 6: its run lengths are for [64, 32], the photo is [64, 64] (height, width)",
        "train: object 7: its mask is a list, a crowd has run lengths",
        "train: object 8: its box [50, 50, 40, 4] leaves photo 3 of 64 x 64",
        "train: object 9: its box [1, 2, None, 4] is not x, y, width, height",
        "train: object 10: iscrowd is 2",
        "val: 6 photos, not 5",
        "val: 2 photos have the number 1",
        "val: val2017/000000000002.png is not there",
        "val: val2017/000000000005.png is 64 x 64, the annotations say 65 x 64",
        "train and val list different categories",
    ]
    assert [line for line in expected if line not in found] == []
    assert any(line.startswith("val: val2017/000000000003.png cannot be decoded") for line in found)


def test_check_data_knows_cocos_categories(data_root):
    from scripts.check_coco import category_problems

    config = resolve(["experiment=paper/coco_xcit", f"data_root={data_root}"])
    path = data_root / "coco" / "annotations" / "instances_val2017.json"
    listed = json.loads(path.read_text())["categories"]
    assert list(category_problems(config, listed)) == []
    assert "80 should be" not in "".join(category_problems(config, listed[::-1]))
    assert any("in COCO's order" in problem for problem in category_problems(config, listed[::-1]))
    assert any("79 categories, not 80" in problem for problem in category_problems(config, listed[1:]))
    shifted = [{**category, "id": category["id"] + 1} for category in listed]
    assert any("not its numbers" in problem for problem in category_problems(config, shifted))


def test_real_photos_of_coco_are_sound(data_root, capsys):
    config = resolve(["experiment=paper/coco_xcit", f"data_root={data_root}"])
    from scripts.check_coco import coco_problems

    problems = coco_problems(config, False)
    assert problems == ["train: 90 photos, not 118287", "val: 70 photos, not 5000"]
