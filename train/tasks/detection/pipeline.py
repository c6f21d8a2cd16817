"""mmdet's transforms as the recipe has them: which sides a photo is resized to, the crop branch, mirroring."""

from omegaconf import DictConfig


def training(options: DictConfig) -> list[dict]:
    """Mirror, then either resize, or (half of the time) resize, take a window, and resize again.

    mmdet rasterises polygons and crowds when it loads them, and crops what it has rasterised.

    Args:
        options: the config's dataset.
    """
    resize = resized(options.short_sides, options.longest)
    steps = [*LOAD, {"type": "RandomFlip", "prob": options.flip}]
    if options.crop_sides is None:
        steps.append(resize)
    else:
        crop = {
            "type": "RandomCrop",
            "crop_type": "absolute_range",
            "crop_size": tuple(options.crop),
            "allow_negative_crop": True,  # also windows without an object
        }
        branch = [resized(options.crop_sides, options.longest), crop, resize]
        steps.append({"type": "RandomChoice", "transforms": [[resize], branch]})
    return [*steps, {"type": "PackDetInputs"}]


def evaluation(options: DictConfig) -> list[dict]:
    """Resize; the objects are not looked at."""
    scale = (options.longest, options.test_side)
    kept = ("img_id", "img_path", "ori_shape", "img_shape", "scale_factor")
    return [
        LOAD[0],
        {"type": "Resize", "scale": scale, "keep_ratio": True},
        {"type": "PackDetInputs", "meta_keys": kept},
    ]


# cv2 turns grey photos into three equal channels, and photos upright where their file says so.
LOAD = [{"type": "LoadImageFromFile"}, {"type": "LoadAnnotations", "with_bbox": True, "with_mask": True}]


def resized(short_sides: list[int], longest: int) -> dict:
    """To one of the short sides, at random, its shape kept and no side above `longest`."""
    return {
        "type": "RandomChoiceResize",
        "scales": [(side, longest) for side in short_sides],
        "keep_ratio": True,
    }
