"""The two compiled operators of mmcv that Mask R-CNN needs, from torchvision: mmcv-lite has none.

mmcv's own do not build against this torch (it asks for C++17, ATen needs C++20). `load_mmdet` puts a module in the
place of `mmcv._ext` where no compiled one is found; there `nms` and `roi_align` compute what mmcv's compute, and every
other operator says, when it is called, that it is not here.

Shape suffixes: N photos, C channels, H, W a feature map, R regions, P, Q bins, G, K samples in a bin (down, across).
"""

import importlib.util
import sys
import warnings
from importlib.machinery import ModuleSpec
from types import ModuleType

import torch
from torch import Tensor
from torch.nn import functional as F
from torchvision import ops

from train.errors import UserError

NAME = "mmcv._ext"
INSTALL = "make coco-xcit installs it: pip install -e '.[train,coco]', then pip install --no-deps -r openmmlab.txt"


def load_mmdet() -> None:
    """Make `import mmdet` and what it needs of mmcv possible in this process; a second call does nothing.

    Raises:
        UserError: one of the packages is not installed.
    """
    for package in ("mmengine", "mmcv", "mmdet", "pycocotools"):
        if importlib.util.find_spec(package) is None:
            raise UserError(f"detection needs {package}: {INSTALL}")
    if NAME not in sys.modules and importlib.util.find_spec(NAME) is None:
        sys.modules[NAME] = Operators()
    # mmengine registers transformers' Adafactor beside torch's where it can import it: seven seconds for nothing here,
    # and a clash of names in some of its versions. It takes an ImportError for a no.
    hidden = "transformers" not in sys.modules
    if hidden:
        sys.modules["transformers"] = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about their own imports
            import mmdet.datasets.transforms
            import mmdet.evaluation
            import mmdet.models  # noqa: F401 - registers the models
        from mmengine.registry import DefaultScope
    finally:
        if hidden:
            del sys.modules["transformers"]
    if not DefaultScope.check_instance_created("specattn"):
        DefaultScope.get_instance(
            "specattn", scope_name="mmdet"
        )  # where mmengine looks up the names in mmdet's configs


class Operators(ModuleType):
    """Stands in for mmcv's compiled extension."""

    def __init__(self) -> None:
        super().__init__(NAME, "mmcv's operators from torchvision")
        self.__spec__ = ModuleSpec(NAME, loader=None)
        self.nms, self.roi_align_forward, self.roi_align_backward = nms, roi_align_forward, roi_align_backward

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)

        def absent(*_: object, **__: object) -> None:
            raise NotImplementedError(
                f"mmcv's operator {name!r} is not in mmcv-lite, and only nms and roi_align have a stand-in here: "
                "a model that needs it needs a compiled mmcv"
            )

        return absent


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int = 0) -> Tensor:
    """The indices of the boxes that stay, best score first, int64.

    Args:
        boxes: [R, 4] as x1, y1, x2, y2; scores: [R].
        iou_threshold: a box goes where its IoU with a better one that stays is above.
        offset: 1 where x2 and y2 are the last pixels, so that a width is x2 - x1 + 1.
    """
    if offset:
        boxes = boxes + boxes.new_tensor([0, 0, offset, offset])
    return ops.nms(_real(boxes), _real(scores), iou_threshold)


def roi_align_forward(
    input: Tensor,
    rois: Tensor,
    output: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    aligned_height: int,
    aligned_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    pool_mode: int,
    aligned: bool,
) -> None:
    """Write the average (pool_mode 1) or largest (0) bilinear sample of each region's bins into `output`.

    Args:
        input: [N, C, H, W].
        rois: [R, 5] as photo, x1, y1, x2, y2.
        output: [R, C, P, Q], written.
        argmax_y: [R, C, P, Q] for pool_mode 0, written: which sample of the region was the largest.
        argmax_x: not used: one number says it.
        spatial_scale: of the map to the photo.
        sampling_ratio: samples along a bin's side; 0: as many as the bin has pixels, rounded up.
        aligned: half-pixel centres; False: regions are at least one pixel wide.
    """
    size = aligned_height, aligned_width

    def sampled(regions: Tensor, size: tuple[int, int], samples: int) -> Tensor:
        # The operator itself: its Python wrapper takes another way, slow and large, under deterministic algorithms.
        kernel = torch.ops.torchvision.roi_align
        return kernel(_real(input), _real(regions), spatial_scale, *size, samples, aligned)

    if pool_mode == 1:
        output.copy_(sampled(rois, size, sampling_ratio))
        return
    for chosen, fine in _grids(rois, size, spatial_scale, sampling_ratio, aligned):
        samples = sampled(rois[chosen], fine, 1)
        largest, where = F.max_pool2d(samples, (fine[0] // size[0], fine[1] // size[1]), return_indices=True)
        output[chosen] = largest.to(output.dtype)
        argmax_y[chosen] = where.to(argmax_y.dtype)


def roi_align_backward(
    grad_output: Tensor,
    rois: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    grad_input: Tensor,
    aligned_height: int,
    aligned_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    pool_mode: int,
    aligned: bool,
) -> None:
    """Write the gradient in the map, [N, C, H, W], into `grad_input`; arguments as in `roi_align_forward`."""
    size = aligned_height, aligned_width

    def spread(grad: Tensor, regions: Tensor, size: tuple[int, int], samples: int) -> Tensor:
        back = torch.ops.torchvision._roi_align_backward
        return back(_real(grad), _real(regions), spatial_scale, *size, *grad_input.shape, samples, aligned)

    if pool_mode == 1:
        grad_input.copy_(spread(grad_output, rois, size, sampling_ratio))
        return
    for chosen, fine in _grids(rois, size, spatial_scale, sampling_ratio, aligned):
        kernel = fine[0] // size[0], fine[1] // size[1]
        samples = F.max_unpool2d(grad_output[chosen], argmax_y[chosen].long(), kernel, output_size=fine)
        grad_input += spread(samples, rois[chosen], fine, 1).to(grad_input.dtype)


def _grids(
    rois: Tensor, size: tuple[int, int], scale: float, sampling_ratio: int, aligned: bool
) -> list[tuple[Tensor, tuple[int, int]]]:
    """Regions that are sampled alike, int64 indices, with the size (P·G, Q·K) of all their samples.

    A sample of a bin is the one sample of a bin G or K times smaller, so that torchvision gives each by itself.
    """
    offset = 0.5 if aligned else 0.0
    rois = _real(rois)
    extent_R2 = (rois[:, [4, 3]] * scale - offset) - (rois[:, [2, 1]] * scale - offset)  # rounded as the kernels do
    if not aligned:
        extent_R2 = extent_R2.clamp(min=1)
    samples_R2 = (extent_R2 / extent_R2.new_tensor(size)).ceil().long()
    if sampling_ratio > 0:
        samples_R2 = torch.full_like(samples_R2, sampling_ratio)
    kinds, kind_R = samples_R2.unique(dim=0, return_inverse=True)
    return [
        ((kind_R == i).nonzero()[:, 0], (size[0] * down, size[1] * across))
        for i, (down, across) in enumerate(kinds.tolist())
        if down and across  # a region without extent has no samples: what was zero stays zero
    ]


def _real(tensor: Tensor) -> Tensor:
    """In float32 where it is a half: torchvision's kernels do not know bfloat16, and halves misplace regions."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()
