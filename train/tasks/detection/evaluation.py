"""COCO's average precision of boxes and masks, by pycocotools itself on the written detections.

mmdet's own metric rounds to three decimals. Detections are written in COCO's result format, boxes and masks in lists of
their own: where an entry has both, pycocotools takes an object's size from its box.
"""

import contextlib
import io
import json
import zlib

import numpy
import torch
import torch.distributed as dist
from mmdet.structures import DetDataSample
from pycocotools import mask as rle
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from train.distributed import Place

KINDS = {"box": "bbox", "mask": "segm"}  # our name, pycocotools' name
NUMBERS = {"": 0, "_50": 1, "_75": 2, "_small": 3, "_medium": 4, "_large": 5}  # our ending, place in COCOeval.stats
Detections = dict[str, list[dict]]  # bbox and segm: entries of COCO's result format


def entries(sample: DetDataSample, category_ids: list[int]) -> Detections:
    """What was detected in one photo, in the photo's own pixels.

    Args:
        sample: mmdet's, with pred_instances: bboxes [R, 4] as x1, y1, x2, y2, scores [R], labels [R], and masks
            [R, height, width] where there is any.
        category_ids: label → the annotation file's number.
    """
    found = sample.pred_instances
    boxes, scores = found.bboxes.double().tolist(), found.scores.double().tolist()
    labels = found.labels.tolist()
    lists: Detections = {"bbox": [], "segm": []}
    for index, ((x1, y1, x2, y2), score, label) in enumerate(zip(boxes, scores, labels, strict=True)):
        common = {"image_id": int(sample.img_id), "category_id": category_ids[label], "score": score}
        lists["bbox"].append({**common, "bbox": [x1, y1, x2 - x1, y2 - y1]})
        mask = numpy.asfortranarray(found.masks[index].cpu().numpy().astype(numpy.uint8))
        encoded = rle.encode(mask)
        lists["segm"].append({**common, "segmentation": {**encoded, "counts": encoded["counts"].decode()}})
    return lists


def gathered(detections: Detections, photos: list[int], place: Place) -> Detections | None:
    """All ranks' detections on rank 0, in the order of the photos (their numbers); None on the others."""
    if place.world == 1:
        return detections
    packed = zlib.compress(json.dumps(detections).encode(), 1)  # JSON keeps every bit of a float
    parts = [None] * place.world if place.first else None
    dist.gather_object(packed, parts, dst=0)
    if not place.first:
        return None
    lists = [json.loads(zlib.decompress(part)) for part in parts]
    whole = {kind: [entry for part in lists for entry in part[kind]] for kind in detections}
    order = {photo: place for place, photo in enumerate(photos)}
    return {kind: sorted(listed, key=lambda entry: order[entry["image_id"]]) for kind, listed in whole.items()}


def evaluated(truth: COCO, entries: list[dict], kind: str) -> COCOeval:
    """COCO's evaluation of detections.

    Args:
        truth: the annotations.
        entries: as `detections[kind]`; left as they are.
        kind: bbox or segm.
    """
    with contextlib.redirect_stdout(io.StringIO()):  # pycocotools prints what it does
        if entries:
            detected = truth.loadRes([dict(entry) for entry in entries])
        else:  # loadRes cannot read an empty list
            detected = COCO()
            detected.dataset = {"images": truth.dataset["images"], "annotations": [], "categories": []}
            detected.createIndex()
        evaluation = COCOeval(truth, detected, kind)
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation


def metrics(truth: COCO, detections: Detections) -> dict[str, float]:
    """ap_box, ap_box_50, ap_box_75, ap_box_small, ..., ap_mask, ...: in percent; -1 where there is no such object."""
    found = {}
    for name, kind in KINDS.items():
        stats = evaluated(truth, detections[kind], kind).stats
        for ending, place in NUMBERS.items():
            value = float(stats[place])
            found[f"ap_{name}{ending}"] = 100 * value if value >= 0 else -1.0
    return found


def per_category(truth: COCO, detections: Detections) -> dict[str, dict[str, float | None]]:
    """Category → AP of boxes and of masks in percent, None where there is no such object."""
    names = {category["id"]: category["name"] for category in truth.dataset["categories"]}
    found: dict[str, dict[str, float | None]] = {name: {} for name in names.values()}
    for ours, kind in KINDS.items():
        evaluation = evaluated(truth, detections[kind], kind)
        for place, category in enumerate(evaluation.params.catIds):
            precision = evaluation.eval["precision"][:, :, place, 0, -1]
            known = precision[precision > -1]
            found[names[category]][f"ap_{ours}"] = 100 * float(known.mean()) if known.size else None
    return found


def shared(numbers: dict[str, float] | None, place: Place) -> dict[str, float]:
    """Rank 0's numbers on every rank."""
    names = [f"ap_{name}{ending}" for name in KINDS for ending in NUMBERS] + ["photos", "detections"]
    if place.world == 1:
        return numbers
    values = [numbers[name] for name in names] if place.first else [0.0] * len(names)
    tensor = torch.tensor(values, dtype=torch.float64, device=place.device)
    dist.broadcast(tensor, src=0)
    return dict(zip(names, tensor.tolist(), strict=True))
