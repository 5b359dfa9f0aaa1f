"""What a network must at least compute and move, and how fast this device can do either.

The ceilings are measured on the device: the best of some large products and of a large copy. The
least time of a part is the longer one of the two, as if both overlapped perfectly.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from reflex_ros.infer.checkpoint.sizes import Sizes
from reflex_ros.study.gpu_measure import Meter

BYTES = 2
"""Of a bfloat16."""
VISION_BYTES = 4
"""Of a weight of the image tower, which is kept in float32."""
PRODUCTS = (4096, 8192)
COPIED = 1 << 30


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What the device reached.

    Attributes:
        bf16_tflops, fp32_tflops: In a square product of that type.
        bandwidth_gb_s: Read and written together, in a copy.
    """

    bf16_tflops: float
    fp32_tflops: float
    bandwidth_gb_s: float


@dataclass(frozen=True, slots=True)
class Need:
    """Least work of one part of a call.

    Attributes:
        gflop: Floating-point operations, 1e9.
        megabytes: Weights, keys and values that are read at least once, 1e6 bytes.
        is_wide: Computed in float32.
    """

    gflop: float
    megabytes: float
    is_wide: bool = False

    def least_ms(self, ceilings: Ceilings) -> float:
        """Return the least time on a device, ms."""
        peak = ceilings.fp32_tflops if self.is_wide else ceilings.bf16_tflops
        return max(self.gflop / peak, self.megabytes / ceilings.bandwidth_gb_s)


def measure_ceilings(meter: Meter, *, is_small: bool = False) -> Ceilings:
    """Return what the device of a meter reaches."""
    sides = (256,) if is_small else PRODUCTS
    bf16, fp32 = (max(_product_tflops(meter, side, dtype) for side in sides)
                  for dtype in (torch.bfloat16, torch.float32))
    size = 1 << 20 if is_small else COPIED
    source = torch.zeros(size, dtype=torch.uint8, device=meter.device)
    target = torch.empty_like(source)
    spent = meter.device_ms(lambda: target.copy_(source), calls=10)
    return Ceilings(bf16, fp32, 2 * size / min(spent) / 1e6)


def _product_tflops(meter: Meter, side: int, dtype: torch.dtype) -> float:
    a, b = (torch.randn(side, side, device=meter.device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    spent = meter.device_ms(lambda: torch.mm(a, b, out=out), calls=10)
    return 2 * side**3 / min(spent) / 1e9


def layer_weights(width: int, mlp: int, sizes: Sizes) -> int:
    """Return the weights of the products of one decoder layer."""
    heads = (2 * sizes.heads + 2 * sizes.kv_heads) * sizes.head_dim
    return width * heads + 3 * width * mlp


def needs(sizes: Sizes, *, views: int, words: int, chunk: int, steps: int) -> dict[str, Need]:
    """Return the least work of vision, prefix and denoise loop.

    Args:
        sizes: Of the network.
        views: Cameras.
        words: Tokens of the text.
        chunk: Rows of the actions.
        steps: Euler steps.
    """
    patches = (sizes.image // sizes.patch) ** 2
    tower = sizes.vision_depth * (
        4 * sizes.vision_width**2 + 2 * sizes.vision_width * sizes.vision_mlp)
    seen = sizes.vision_depth * 4 * patches**2 * sizes.vision_width
    vision = Need(views * (2 * tower * patches + seen) / 1e9, VISION_BYTES * tower / 1e6,
                  is_wide=True)
    tokens = views * patches // sizes.scale_factor**2 + words
    across = sizes.heads * sizes.head_dim
    trunk = sizes.depth * layer_weights(sizes.vlm_width, sizes.vlm_mlp, sizes)
    prefix = Need((2 * trunk * tokens + sizes.depth * 4 * tokens**2 * across) / 1e9,
                  BYTES * trunk / 1e6)
    expert = sizes.expert_depth * layer_weights(sizes.expert_width, sizes.expert_mlp, sizes)
    kept = sizes.expert_depth * 2 * tokens * sizes.kv_heads * sizes.head_dim
    once = 2 * expert * chunk + sizes.expert_depth * 4 * chunk * (tokens + chunk) * across
    loop = Need(steps * once / 1e9, steps * BYTES * (expert + kept) / 1e6)
    return {'vision': vision, 'prefix': prefix, 'denoise': loop}
