"""mmcv's operators from torchvision, against references written out in loops; every other says that it is not here."""

import math
import subprocess
import sys
from importlib.machinery import ModuleSpec

import numpy
import pytest
import torch

pytest.importorskip("mmdet", reason="needs mmdet: make test installs it (openmmlab.txt)")

from train.tasks.detection import operators

operators.load_mmdet()

from mmcv.ops import RoIAlign, batched_nms
from mmcv.ops import nms as mmcv_nms

# ---- references


def overlap(a, b, offset):
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]) + offset)
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]) + offset)
    area = [(box[2] - box[0] + offset) * (box[3] - box[1] + offset) for box in (a, b)]
    return width * height / (area[0] + area[1] - width * height)


def nms_in_loops(boxes, scores, threshold, offset):
    kept = []
    for index in sorted(range(len(boxes)), key=lambda i: -scores[i]):
        if all(overlap(boxes[index], boxes[other], offset) <= threshold for other in kept):
            kept.append(index)
    return kept


def weights_at(y, x, height, width):
    """(row, column, weight) of the up to four pixels that a bilinear sample at y, x is made of."""
    if y < -1 or y > height or x < -1 or x > width:
        return []
    y, x = max(y, 0.0), max(x, 0.0)
    top, left = min(int(y), height - 1), min(int(x), width - 1)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    dy = 0.0 if top == height - 1 else y - top
    dx = 0.0 if left == width - 1 else x - left
    return [
        (top, left, (1 - dy) * (1 - dx)),
        (top, right, (1 - dy) * dx),
        (bottom, left, dy * (1 - dx)),
        (bottom, right, dy * dx),
    ]


def roi_align_in_loops(maps, rois, size, scale, ratio, mode, aligned, grad=None):
    """The output, or where `grad` (of the output) is given the gradient in the maps; float64."""
    _, channels, height, width = maps.shape
    output, back = numpy.zeros((len(rois), channels, *size)), numpy.zeros(maps.shape)
    for r, (photo, *corners) in enumerate(rois.tolist()):
        x1, y1, x2, y2 = (corner * scale - (0.5 if aligned else 0) for corner in corners)
        roi_height, roi_width = y2 - y1, x2 - x1
        if not aligned:
            roi_height, roi_width = max(roi_height, 1.0), max(roi_width, 1.0)
        bin_height, bin_width = roi_height / size[0], roi_width / size[1]
        down = ratio if ratio > 0 else math.ceil(bin_height)
        across = ratio if ratio > 0 else math.ceil(bin_width)
        for c in range(channels):
            for p in range(size[0]):
                for q in range(size[1]):
                    samples = []
                    for i in range(down):
                        for j in range(across):
                            y = y1 + (p + (i + 0.5) / down) * bin_height
                            x = x1 + (q + (j + 0.5) / across) * bin_width
                            samples.append(weights_at(y, x, height, width))
                    values = [sum(w * maps[int(photo), c, a, b] for a, b, w in sample) for sample in samples]
                    if not values:
                        continue
                    best = int(numpy.argmax(values))
                    output[r, c, p, q] = max(values) if mode == "max" else sum(values) / len(values)
                    if grad is not None:
                        chosen = [samples[best]] if mode == "max" else samples
                        for sample in chosen:
                            for a, b, w in sample:
                                back[int(photo), c, a, b] += w * grad[r, c, p, q] / len(chosen)
    return output if grad is None else back


# ---- nms


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.7])
def test_nms_keeps_what_loops_keep(offset, threshold):
    draw = numpy.random.default_rng(offset)
    corners = draw.integers(0, 12, (60, 2))
    boxes = numpy.concatenate([corners, corners + draw.integers(1, 9, (60, 2))], 1).astype(numpy.float64)
    scores = draw.permutation(60) / 60
    _, kept = mmcv_nms(torch.tensor(boxes), torch.tensor(scores), threshold, offset=offset)
    assert kept.tolist() == nms_in_loops(boxes, scores, threshold, offset)
    assert kept.dtype == torch.int64


def test_the_offset_makes_a_difference():
    boxes, scores = torch.tensor([[0.0, 0, 1, 1], [1, 0, 2, 1]]), torch.tensor([0.9, 0.8])
    assert mmcv_nms(boxes, scores, 0.2, offset=0)[1].tolist() == [0, 1]
    assert mmcv_nms(boxes, scores, 0.2, offset=1)[1].tolist() == [0]


def test_nms_of_nothing_of_halves_and_of_classes():
    assert mmcv_nms(torch.zeros(0, 4), torch.zeros(0), 0.5)[1].tolist() == []
    boxes = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 9]])
    for dtype in (torch.float16, torch.bfloat16):
        kept, index = mmcv_nms(boxes.to(dtype), torch.tensor([0.5, 0.75]).to(dtype), 0.5)
        assert index.tolist() == [1]
        assert kept.dtype == dtype
    _, kept = batched_nms(boxes, torch.tensor([0.5, 0.75]), torch.tensor([0, 1]), {"type": "nms", "iou_threshold": 0.5})
    assert kept.tolist() == [1, 0]


# ---- roi_align

ROIS = [[0, 1.3, 2.1, 9.7, 14.2], [1, 0, 0, 30, 22], [0, -3, -4, 5, 6.5], [1, 20.2, 10.1, 20.9, 10.6], [0, 9, 9, 9, 9]]


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("ratio", [0, 1, 3])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align_and_its_gradient_are_the_loops(aligned, ratio, mode):
    draw = numpy.random.default_rng(0)
    maps, size, scale = draw.normal(size=(2, 2, 7, 9)), (2, 3), 0.3
    layer = RoIAlign(size, scale, ratio, mode, aligned)
    input = torch.tensor(maps, requires_grad=True)
    rois = torch.tensor(ROIS, dtype=torch.float64)
    output = layer(input, rois)
    expected = roi_align_in_loops(maps, rois, size, scale, ratio, mode, aligned)
    empty = 4 if aligned and ratio == 0 else None  # a region without extent has no samples
    assert output.detach().numpy() == pytest.approx(expected, abs=1e-12)
    assert empty is None or not expected[empty].any()
    grad = draw.normal(size=output.shape)
    output.backward(torch.tensor(grad))
    back = roi_align_in_loops(maps, rois, size, scale, ratio, mode, aligned, grad)
    assert input.grad.numpy() == pytest.approx(back, abs=1e-12)


def test_roi_align_of_no_regions_and_in_halves():
    maps = torch.randn(1, 2, 8, 8, generator=torch.Generator().manual_seed(0))
    assert RoIAlign(2, 0.5)(maps, torch.zeros(0, 5)).shape == (0, 2, 2, 2)
    rois = torch.tensor([[0, 1.0, 2, 9, 12]])
    exact = RoIAlign(2, 0.5)(maps.bfloat16().float(), rois)
    half = RoIAlign(2, 0.5)(maps.bfloat16(), rois.bfloat16())
    assert half.dtype == torch.bfloat16
    assert torch.equal(half, exact.bfloat16())


def test_roi_align_is_the_same_under_deterministic_algorithms():
    maps = torch.randn(1, 2, 8, 8, generator=torch.Generator().manual_seed(0))
    rois = torch.tensor([[0, 1.0, 2, 9, 12]])
    expected = RoIAlign(2, 0.5)(maps, rois)
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(RoIAlign(2, 0.5)(maps, rois), expected)
    finally:
        torch.use_deterministic_algorithms(False)


# ---- the stand-in


def test_every_other_operator_says_when_it_is_called_that_it_is_not_here():
    from mmcv.ops import DeformConv2d, soft_nms

    layer = DeformConv2d(2, 2, 3, padding=1)
    with pytest.raises(NotImplementedError, match="'deform_conv_forward' is not in mmcv-lite"):
        layer(torch.zeros(1, 2, 4, 4), torch.zeros(1, 18, 4, 4))
    with pytest.raises(NotImplementedError, match="'softnms' is not in mmcv-lite"):
        soft_nms(torch.zeros(1, 4), torch.zeros(1))


def test_a_compiled_extension_is_left_alone(monkeypatch):
    """Where mmcv's own extension is found, nothing is put in its place."""
    find = operators.importlib.util.find_spec
    monkeypatch.delitem(sys.modules, operators.NAME)
    compiled = ModuleSpec(operators.NAME, None)
    monkeypatch.setattr(
        operators.importlib.util, "find_spec", lambda name: compiled if name == operators.NAME else find(name)
    )
    operators.load_mmdet()
    assert operators.NAME not in sys.modules


def test_a_missing_package_is_one_line(monkeypatch):
    from train.errors import UserError

    find = operators.importlib.util.find_spec
    monkeypatch.setattr(
        operators.importlib.util, "find_spec", lambda name: None if name == "pycocotools" else find(name)
    )
    with pytest.raises(UserError, match="detection needs pycocotools: make coco-xcit installs it"):
        operators.load_mmdet()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_opencv_needs_no_display_library():
    code = "import cv2; print('libGL' in open('/proc/self/maps').read(), 'libX11' in open('/proc/self/maps').read())"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["False", "False"]
