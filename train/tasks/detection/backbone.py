"""XCiT as a detection backbone: timm's patch embedding, position encoding and blocks, tapped at four places.

After the authors' detection code (facebookresearch/xcit at 82f5291, detection/): class attention, class token and final
norm are left out, features are the blocks' raw outputs, and one stride becomes four by deconvolution and pooling.

Shape suffixes: B photos, N tokens = H·W, C width, H, W the token map.
"""

import timm
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from train.errors import UserError

STRIDES = (4, 8, 16, 32)


class XCiT(nn.Module):
    """Four feature maps of width C at strides 4, 8, 16 and 32, for photos of any size.

    Args:
        whole: timm's model; its blocks up to the last tap are taken over, not copied.
        taps: the blocks, from 0, whose outputs become the four maps, in order.
    """

    def __init__(self, whole: nn.Module, taps: list[int]) -> None:
        super().__init__()
        self.taps = tuple(taps)
        self.patch_embed, self.pos_embed, self.pos_drop = whole.patch_embed, whole.pos_embed, whole.pos_drop
        self.blocks = whole.blocks[: taps[-1] + 1]
        self.to_strides = nn.ModuleList(to_strides(whole.patch_embed.patch_size, whole.embed_dim))

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Photos [B, 3, height, width] → four maps [B, C, height/s, width/s] for the strides s."""
        return tuple(scale(map) for scale, map in zip(self.to_strides, self.token_maps(images), strict=True))

    def token_maps(self, images: Tensor) -> list[Tensor]:
        """The tapped blocks' outputs as maps [B, C, H, W], all of one stride."""
        tokens_BNC, (height, width) = self.patch_embed(images)
        if self.pos_embed is not None:
            encoding_BCHW = self.pos_embed(len(images), height, width)  # made anew for each size
            tokens_BNC = tokens_BNC + encoding_BCHW.flatten(2).transpose(1, 2)
        tokens_BNC = self.pos_drop(tokens_BNC)
        maps = []
        for index, block in enumerate(self.blocks):
            tokens_BNC = block(tokens_BNC, height, width)
            if index in self.taps:
                maps.append(tokens_BNC.transpose(1, 2).unflatten(2, (height, width)).contiguous())
        return maps


def to_strides(patch: int, width: int) -> list[nn.Module]:
    """What brings a map of the patches' stride to each of the four strides; every one keeps the width."""

    def up() -> nn.Module:
        return nn.ConvTranspose2d(width, width, kernel_size=2, stride=2)

    fourfold = nn.Sequential(up(), nn.BatchNorm2d(width), nn.GELU(), up())
    if patch == 16:
        return [fourfold, up(), nn.Identity(), nn.MaxPool2d(2)]
    return [up(), nn.Identity(), nn.MaxPool2d(2), nn.MaxPool2d(4)]


def build(options: DictConfig) -> XCiT:
    """The backbone of `config.model`: timm's model of that name with `args`, tapped at `taps`.

    Raises:
        UserError: timm has no such XCiT, or it has no such blocks.
    """
    arguments = OmegaConf.to_container(options.args, resolve=True)
    try:
        whole = timm.create_model(options.name, num_classes=0, **arguments)
    except (TypeError, RuntimeError, AssertionError, ValueError, ZeroDivisionError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"model {options.name!r} with {arguments}: {reason}") from None
    if type(whole).__name__ != "Xcit":
        raise UserError(f"model.name={options.name!r}: detection has a backbone for timm's xcit_* models only")
    taps = list(options.taps)
    if len(taps) != len(STRIDES) or sorted(set(taps)) != taps or not 0 <= taps[0] <= taps[-1] < len(whole.blocks):
        raise UserError(f"model.taps={taps}: four of the blocks 0..{len(whole.blocks) - 1}, in rising order")
    return XCiT(whole, taps)
