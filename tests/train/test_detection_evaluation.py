"""The COCO numbers are pycocotools' own on the written detections, to the last digit."""

import contextlib
import io
import json
import random
import tracemalloc

import numpy
import pytest
import torch
from detection_sets import mixed_set, small

from train.compose import resolve
from train.distributed import Place, join

pytest.importorskip("mmdet", reason="needs mmdet: make test installs it (openmmlab.txt)")

from train.tasks.detection import operators

operators.load_mmdet()

from mmdet.structures import DetDataSample
from mmengine.structures import InstanceData
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from train.tasks.detection import evaluation
from train.tasks.detection.task import Detection

NAMES = ("", "_50", "_75", "_small", "_medium", "_large")


class Guesser(torch.nn.Module):
    """In place of a detector: the objects, moved a little, and some that are not there; the same for each photo."""

    def __init__(self, truth, labels, sizes):
        super().__init__()
        self.truth, self.labels, self.sizes = truth, labels, sizes

    def forward(self, inputs, data_samples, mode):
        for sample in data_samples:
            draw = numpy.random.default_rng(sample.img_id)
            height, width = sample.ori_shape
            boxes, labels = [], []
            for entry in self.truth.loadAnns(self.truth.getAnnIds(imgIds=[sample.img_id])):
                x, y, w, h = entry["bbox"]
                shift = draw.normal(0, 0.08 * min(w, h), 4)
                boxes += [numpy.array([x, y, x + w, y + h]) + shift] * draw.integers(0, 3)
                labels += [self.labels[entry["category_id"]]] * (len(boxes) - len(labels))
            corners = draw.uniform(0, 0.5, (3, 2)) * (width, height)
            boxes += list(numpy.concatenate([corners, corners + draw.uniform(4, 30, (3, 2))], 1))
            labels += draw.integers(0, len(self.labels), 3).tolist()
            masks = numpy.zeros((len(boxes), height, width), dtype=bool)
            for mask, (x1, y1, x2, y2) in zip(masks, boxes, strict=True):
                mask[max(0, round(y1)) : round(y2), max(0, round(x1)) : round(x2)] = True
            sample.pred_instances = InstanceData(
                bboxes=torch.tensor(numpy.array(boxes), dtype=torch.float32),
                scores=torch.tensor(draw.uniform(0.05, 1, len(boxes)), dtype=torch.float32),
                labels=torch.tensor(labels),
                masks=torch.tensor(masks),
            )
        return data_samples


def guesser(task):
    return Guesser(task.truth, {number: i for i, number in enumerate(task.data.test.cat_ids)}, None)


def by_pycocotools(annotations, file, kind):
    """pycocotools alone, as its demo has it."""
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(str(annotations))
        found = COCOeval(truth, truth.loadRes(str(file)), kind)
        found.evaluate()
        found.accumulate()
        found.summarize()
    return found.stats


@pytest.mark.parametrize("real", [False, True])
def test_the_numbers_are_pycocotools_on_the_written_detections(tmp_path, real, request):
    if real:
        root = request.getfixturevalue("data_root")
        config = resolve(["experiment=paper/coco_xcit", f"data_root={root}", "mode=evaluate", "runtime.workers=0"])
    else:
        root = mixed_set(tmp_path, val=12)
        config = small(root, "mode=evaluate")
    task = Detection(config, join("cpu"))
    details = []
    found = task.evaluate(guesser(task), details)
    task.write_predictions(tmp_path / "found.json", details)
    for name, kind in (("box", "bbox"), ("mask", "segm")):
        path = root / "coco" / "annotations" / "instances_val2017.json"
        stats = by_pycocotools(path, tmp_path / f"found.{kind}.json", kind)
        for place, ending in enumerate(NAMES):
            expected = 100 * stats[place] if stats[place] >= 0 else -1.0
            assert found[f"ap_{name}{ending}"] == expected
        assert 5 < found[f"ap_{name}_50"] < 100
        assert len(json.loads((tmp_path / f"found.{kind}.json").read_text())) == found["detections"]
    assert found["photos"] == len(task.data.test)
    assert task.primary in found


def test_any_number_of_workers_finds_the_same(tmp_path, monkeypatch):
    """Each rank's share, put together as rank 0 does it: the same file and numbers as from one process."""
    config = small(mixed_set(tmp_path, val=11), "mode=evaluate")
    alone = Detection(config, join("cpu"))
    details = []
    expected = alone.evaluate(guesser(alone), details)
    packed = []

    def exchange(own, parts, dst):
        packed.append(own)
        if parts is not None:
            parts[:] = packed[1:] + packed[:1] if len(packed) == 3 else packed

    monkeypatch.setattr("train.tasks.detection.evaluation.dist.gather_object", exchange)
    monkeypatch.setattr("train.tasks.detection.task.summed", lambda value, place: torch.tensor(11))
    monkeypatch.setattr("train.tasks.detection.evaluation.dist.broadcast", lambda tensor, src: None)
    whole = []
    for rank in (1, 2, 0):
        task = Detection(config, Place(rank, 3, torch.device("cpu")))
        found = task.evaluate(guesser(alone), whole)
    assert found == expected
    assert whole == details


def test_nothing_detected_is_zero_and_sizes_that_do_not_occur_are_minus_one(tmp_path):
    config = small(mixed_set(tmp_path), "mode=evaluate")
    task = Detection(config, join("cpu"))
    found = evaluation.metrics(task.truth, {"bbox": [], "segm": []})
    assert {name: found[name] for name in ("ap_box", "ap_box_50", "ap_mask_75", "ap_mask_small")} == {
        "ap_box": 0.0,
        "ap_box_50": 0.0,
        "ap_mask_75": 0.0,
        "ap_mask_small": 0.0,
    }
    assert found["ap_box_medium"] == found["ap_box_large"] == -1.0


def test_perfect_detections_are_a_hundred_and_each_category_has_its_own(tmp_path):
    config = small(mixed_set(tmp_path), "mode=evaluate")
    task = Detection(config, join("cpu"))
    entries = []
    for entry in task.truth.dataset["annotations"]:
        if entry["category_id"] == 3 or entry["id"] % 2:
            common = {key: entry[key] for key in ("image_id", "category_id", "bbox")}
            mask = task.truth.annToRLE(entry)
            entries.append({**common, "score": 0.9, "segmentation": {**mask, "counts": mask["counts"].decode()}})
    boxes = [{key: value for key, value in entry.items() if key != "segmentation"} for entry in entries]
    masks = [{key: value for key, value in entry.items() if key != "bbox"} for entry in entries]
    found = evaluation.per_category(task.truth, {"bbox": boxes, "segm": masks})
    assert found["left"] == {"ap_box": 100.0, "ap_mask": 100.0}
    assert 0 < found["right"]["ap_box"] < 100


def test_memory_does_not_grow_with_the_photos(tmp_path):
    """Four times as many photos, one detection in each: the peak stays, where masks kept would be 4 x 1 MB a photo."""

    def peak(photos):
        random.seed(0)
        config = small(mixed_set(tmp_path / str(photos), val=photos), "mode=evaluate")
        task = Detection(config, join("cpu"))
        task.truth  # noqa: B018 - read before, it is not what is measured

        def large(inputs, data_samples, mode):
            for sample in data_samples:
                sample.pred_instances = InstanceData(
                    bboxes=torch.tensor([[8.0, 8, 28, 24]]),
                    scores=torch.tensor([0.5]),
                    labels=torch.tensor([0]),
                    masks=torch.from_numpy(numpy.ones((1, 1024, 1024), dtype=bool)),
                )
            return data_samples

        tracemalloc.start()
        monkey = evaluation.metrics
        evaluation.metrics = lambda truth, found: {
            f"ap_{name}{ending}": 0.0 for name in ("box", "mask") for ending in NAMES
        }
        try:
            assert task.evaluate(large)["detections"] == photos
            return tracemalloc.get_traced_memory()[1]
        finally:
            evaluation.metrics = monkey
            tracemalloc.stop()

    few, many = peak(10), peak(40)
    assert many - few < 1e6  # thirty masks would be 30 MB


def test_entries_are_in_cocos_result_format():
    mask = torch.zeros(1, 6, 8, dtype=torch.bool)
    mask[0, 1:3, 2:6] = True
    sample = DetDataSample(metainfo={"img_id": 17})
    sample.pred_instances = InstanceData(
        bboxes=torch.tensor([[2.0, 1, 6, 3]]), scores=torch.tensor([0.25]), labels=torch.tensor([1]), masks=mask
    )
    found = evaluation.entries(sample, [3, 7])
    assert found["bbox"] == [{"image_id": 17, "category_id": 7, "score": 0.25, "bbox": [2.0, 1.0, 4.0, 2.0]}]
    [entry] = found["segm"]
    assert entry["segmentation"]["size"] == [6, 8]
    decoded = evaluation.rle.decode({**entry["segmentation"], "counts": entry["segmentation"]["counts"].encode()})
    assert (decoded.astype(bool) == mask[0].numpy()).all()
