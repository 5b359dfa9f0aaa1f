"""Products of the prefix in 8-bit floats, scaled by the largest value of each operand.

On a GPU they are ``_scaled_mm``; elsewhere the operands are rounded the same way and multiplied in
float32, which shows the error and saves nothing. A policy only gets them through ``fp8_gate``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from reflex_ros.core.errors import ConfigError
from reflex_ros.infer.weights import Linear, Weights

FP8 = torch.float8_e4m3fn
MOST = float(torch.finfo(FP8).max)
LEAST = 1e-12
UNIT = 16
"""Both sides of a weight are multiples of this on a GPU."""


@dataclass(frozen=True, slots=True)
class Fp8Linear:
    """``x W^T + b`` with both factors rounded to 8 bits.

    Attributes:
        weight: ``float8[out, in]``.
        scale: ``float32[]`` that the weight is to be multiplied by.
        bias: ``[out]`` or None.
        dtype: Type of input and output.
    """

    weight: Tensor
    scale: Tensor
    bias: Tensor | None
    dtype: torch.dtype

    @classmethod
    def of(cls, linear: Linear) -> Fp8Linear:
        """Return a rounded linear map.

        Raises:
            ConfigError: Its sizes cannot be multiplied on the GPU.
        """
        if linear.weight.is_cuda and any(side % UNIT for side in linear.weight.shape):
            raise ConfigError(
                f'fp8 prefix: got a weight of {list(linear.weight.shape)}, expected multiples of '
                f'{UNIT} for this GPU. Set policy.prefix_dtype to auto.'
            )
        rounded, scale = rounded_fp8(linear.weight)
        return cls(rounded, scale, linear.bias, linear.weight.dtype)

    def __call__(self, x: Tensor) -> Tensor:
        """Return ``[..., out]`` of ``x[..., in]``."""
        rows, scale = rounded_fp8(x.reshape(-1, x.shape[-1]))
        if x.is_cuda:
            made = torch._scaled_mm(rows, self.weight.t(), scale_a=scale, scale_b=self.scale,
                                    out_dtype=torch.bfloat16, use_fast_accum=True)
        else:
            made = F.linear(rows.float(), self.weight.float()) * (scale * self.scale)
        made = made.to(self.dtype) if self.bias is None else (made + self.bias).to(self.dtype)
        return made.view(*x.shape[:-1], -1)


def rounded_fp8(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``x`` over its scale in 8 bits, and the scale ``float32[]``."""
    scale = (x.abs().amax().float() / MOST).clamp_min(LEAST)
    return (x.float() / scale).clamp(-MOST, MOST).to(FP8), scale


class Fp8Weights(Weights):
    """Weights whose linear maps are rounded; everything else is as it was."""

    def at(self, name: str) -> Fp8Weights:
        """Return the tensors below ``name``."""
        return Fp8Weights(self._tensors, f'{self._prefix}{name}.')

    def linear(self, name: str) -> Fp8Linear:
        """Return the rounded linear map of that name."""
        return Fp8Linear.of(super().linear(name))

    def packed(self, *names: str) -> Fp8Linear:
        """Return several linear maps as one, rounded together."""
        maps = [Weights.linear(self, name) for name in names]
        biases = [m.bias for m in maps if m.bias is not None]
        return Fp8Linear.of(Linear(torch.cat([m.weight for m in maps]),
                                   torch.cat(biases) if biases else None))


def prefix_weights(weights: Weights, *, is_fp8: bool) -> Weights:
    """Return the weights of a language model as its prefix is to be computed."""
    return weights.read_by(Fp8Weights) if is_fp8 else weights
