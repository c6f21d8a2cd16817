"""The drawn set: in COCO's format, the same for everyone, whole or going on, and never two kinds in one folder."""

import json
import subprocess
import sys

import numpy
import pytest
from conftest import REPOSITORY
from PIL import Image

pytest.importorskip("shapely", reason="needs shapely: make test installs it (the extra coco)")

from shapely import Polygon

from scripts import make_shapes
from train.compose import resolve
from train.errors import UserError

SHAPES = {"train": 60, "val": 8, "side": 64, "seed": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("drawn") / "shapes"
    assert make_shapes.draw(place, SHAPES)
    return place


def content(folder, split="train"):
    return json.loads((folder / "annotations" / f"instances_{split}2017.json").read_text())


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_it_holds_what_coco_holds(folder):
    from pycocotools import mask as rle

    for split, count in (("train", 60), ("val", 8)):
        held = content(folder, split)
        assert [image["id"] for image in held["images"]] == list(range(1, count + 1))
        for image in held["images"]:
            with Image.open(folder / f"{split}2017" / image["file_name"]) as picture:
                assert (picture.size, picture.mode) == ((64, 64), "RGB")
        assert {entry["id"] for entry in held["annotations"]} == set(range(1, len(held["annotations"]) + 1))
        for entry in held["annotations"]:
            mask = entry["segmentation"]
            code = rle.frPyObjects(mask, 64, 64)
            pixels = rle.decode(rle.merge(code) if isinstance(code, list) else code)
            assert isinstance(mask, dict) == bool(entry["iscrowd"])
            x, y, width, height = entry["bbox"]
            # pycocotools counts pixels that a polygon's edge runs through: about half of its outline too many.
            edge = sum(Polygon(numpy.reshape(p, (-1, 2))).length for p in mask) if isinstance(mask, list) else 0
            assert pixels.sum() == pytest.approx(entry["area"], abs=6 + 0.6 * edge)
            rows, columns = numpy.argwhere(pixels).T
            assert (columns.min(), rows.min()) == pytest.approx((x, y), abs=1.5)
            assert (columns.max() + 1, rows.max() + 1) == pytest.approx((x + width, y + height), abs=1.5)


def test_there_are_all_kinds_overlaps_crowds_and_empty_pictures(folder):
    held = content(folder)
    counts = {image["id"]: 0 for image in held["images"]}
    for entry in held["annotations"]:
        counts[entry["image_id"]] += 1
    assert {entry["category_id"] for entry in held["annotations"]} == {1, 2, 3}
    assert [category["name"] for category in held["categories"]] == ["disc", "box", "triangle"]
    assert 0 in counts.values()
    assert max(counts.values()) >= 4
    assert any(entry["iscrowd"] for entry in held["annotations"])
    boxes = [entry["bbox"] for entry in held["annotations"] if entry["image_id"] == max(counts, key=counts.get)]
    assert any(
        a[0] < b[0] + b[2] and b[0] < a[0] + a[2] and a[1] < b[1] + b[3] and b[1] < a[1] + a[3]
        for i, a in enumerate(boxes)
        for b in boxes[:i]
    )


def test_it_is_the_same_again_and_after_a_stop(folder, tmp_path):
    again = tmp_path / "shapes"
    stopped = make_shapes.draw_split

    def stop_early(place, shapes, split):
        stopped(place, {**shapes, split: 7}, split)
        raise KeyboardInterrupt

    make_shapes.draw_split = stop_early
    try:
        with pytest.raises(KeyboardInterrupt):
            make_shapes.draw(again, SHAPES)
    finally:
        make_shapes.draw_split = stopped
    assert not json.loads((again / "manifest.json").read_text())["complete"]
    kept = (again / "train2017" / "000000000003.png").stat().st_mtime_ns
    assert make_shapes.draw(again, SHAPES)
    assert files(again) == files(folder)
    assert (again / "train2017" / "000000000003.png").stat().st_mtime_ns == kept
    assert not make_shapes.draw(again, SHAPES)  # there already


def test_another_seed_is_another_set():
    one, two = (make_shapes.example({**SHAPES, "seed": seed}, "train", 0)[1] for seed in (3, 4))
    assert numpy.asarray(one).tobytes() != numpy.asarray(two).tobytes()
    train, val = (make_shapes.example(SHAPES, split, 0)[1] for split in ("train", "val"))
    assert numpy.asarray(train).tobytes() != numpy.asarray(val).tobytes()


def test_a_folder_of_something_else_is_left_alone(folder, tmp_path):
    with pytest.raises(UserError, match="drawn with other settings"):
        make_shapes.draw(folder, {**SHAPES, "seed": 4})
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("...")
    with pytest.raises(UserError, match="holds something that was not drawn here"):
        make_shapes.draw(tmp_path / "letters", SHAPES)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "manifest.json").write_text("{")
    with pytest.raises(UserError, match=r"manifest\.json is damaged"):
        make_shapes.draw(tmp_path / "bad", SHAPES)


def test_training_refuses_a_set_that_is_not_the_configs(folder):
    pytest.importorskip("mmdet", reason="needs mmdet: make test installs it (openmmlab.txt)")
    from train.tasks.detection.operators import load_mmdet

    load_mmdet()
    from train.tasks.detection.data import check_manifest

    check_manifest(folder, SHAPES)
    with pytest.raises(UserError, match="drawn with other settings \\(side: 64 there, 96 asked\\)"):
        check_manifest(folder, {**SHAPES, "side": 96})
    with pytest.raises(UserError, match="make_shapes --into"):
        check_manifest(folder / "nothing", SHAPES)


def test_where_the_reduced_row_looks_for_it(tmp_path):
    words = ["experiment=reduced/coco_xcit", f"output_root={tmp_path / 'out'}"]
    assert resolve(words).data_root == str(tmp_path / "out" / "data")
    (tmp_path / "root" / "shapes").mkdir(parents=True)
    assert resolve([*words, f"data_root={tmp_path / 'root'}"]).data_root == str(tmp_path / "root")
    assert resolve([*words, f"data_root={tmp_path}"]).data_root == str(tmp_path / "out" / "data")
    photos = resolve([*words, "dataset=coco", f"data_root={tmp_path}"])
    assert (photos.data_root, photos.dataset.shapes) == (str(tmp_path), None)


def test_the_command_draws_once_and_says_so(tmp_path):
    asked = ["dataset.shapes.train=3", "dataset.shapes.val=2", f"output_root={tmp_path}", "optimizer.lr=1e-3,2e-3"]
    command = [sys.executable, "-m", "scripts.make_shapes", *asked]
    shown = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.splitlines()
    place = tmp_path / "data" / "shapes"
    assert shown == [f"shapes: {place}", f"shapes: {place}, there already"]
    command = [sys.executable, "-m", "scripts.make_shapes", "dataset=coco"]
    shown = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    assert shown == "dataset coco is not drawn: nothing to do\n"
