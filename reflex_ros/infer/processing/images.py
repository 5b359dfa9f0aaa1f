"""Camera images as the networks want them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from reflex_ros.core.errors import ConfigError


def resize_pad(image: Tensor, wh: tuple[int, int] | None, *, centre: bool) -> Tensor:
    """Return images scaled into a frame, the rest of it black.

    Bilinear, keeps the aspect, no antialiasing. An image that already has the size is only
    brought to the range of the network.

    Args:
        image: uint8[B, 3, H, W], or float[B, 3, H, W] in [0, 1].
        wh: Width and height of the frame, pixels; None: as the images are.
        centre: Whether the image is centred (odd remainders go right and down) and clamped;
            otherwise it is at the right and the bottom.

    Returns:
        float32[B, 3, h, w] in [-1, 1], a copy.

    Raises:
        ConfigError: Not a batch of images with three channels, channels first, or so narrow that
            nothing is left of it.
    """
    if image.ndim != 4 or image.shape[1] != 3:
        raise ConfigError(
            f'image cannot be used: got shape {list(image.shape)}, expected [B, 3, H, W]. '
            'Convert it to RGB with the channels first.'
        )
    x = image.to(torch.float32) / 255.0 if image.dtype == torch.uint8 else image.float()
    if wh is None or (x.shape[-1], x.shape[-2]) == tuple(wh):
        return x * 2.0 - 1.0
    width, height = wh
    ratio = max(x.shape[-1] / width, x.shape[-2] / height)
    size = int(x.shape[-2] / ratio), int(x.shape[-1] / ratio)
    if 0 in size:
        raise ConfigError(
            f'image cannot be used: got {x.shape[-1]} x {x.shape[-2]}, expected a side ratio that '
            f'leaves a pixel in {width} x {height} (pixels). Crop it.'
        )
    x = F.interpolate(x, size=size, mode='bilinear', align_corners=False)
    across, down = max(0, width - size[1]), max(0, height - size[0])
    if centre:
        left, top = across // 2, down // 2
        x = F.pad(x.clamp(0.0, 1.0), (left, across - left, top, down - top))
    else:
        x = F.pad(x, (across, 0, down, 0))
    return x * 2.0 - 1.0
