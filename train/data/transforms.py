"""Transforms of photographs, for training and for evaluation."""

from omegaconf import DictConfig
from timm.data import create_transform
from timm.data.transforms import str_to_interp_mode
from torchvision import transforms


def train_transform(options: DictConfig) -> transforms.Compose:
    """The recipe's training transform: torchvision's for 'ra' or none, timm's for a timm auto-augment string."""
    if options.auto_augment not in (None, "ra"):
        return create_transform(
            options.image_size,
            is_training=True,
            scale=tuple(options.scale),
            ratio=tuple(options.ratio),
            hflip=options.flip,
            auto_augment=options.auto_augment,
            interpolation=options.interpolation,
            mean=tuple(options.mean),
            std=tuple(options.std),
            re_prob=options.random_erasing,
            re_mode="pixel",
        )
    mode = str_to_interp_mode(options.interpolation)
    steps = [
        transforms.RandomResizedCrop(options.image_size, tuple(options.scale), tuple(options.ratio), mode),
        transforms.RandomHorizontalFlip(options.flip),
    ]
    if options.auto_augment == "ra":
        steps.append(transforms.RandAugment(interpolation=mode))
    steps += [transforms.ToTensor(), transforms.Normalize(options.mean, options.std)]
    if options.random_erasing:
        steps.append(transforms.RandomErasing(options.random_erasing))
    return transforms.Compose(steps)


def evaluation_transform(options: DictConfig) -> transforms.Compose:
    """Resize so that the centre crop of `image_size` is `crop_ratio` of the short side, and normalise."""
    return create_transform(
        options.image_size,
        crop_pct=options.crop_ratio,
        interpolation=options.interpolation,
        mean=tuple(options.mean),
        std=tuple(options.std),
    )
