"""Weights by name, and the two things that are made of them: linear maps and packed ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True, slots=True)
class Linear:
    """``x W^T + b``; the input is cast to the type of the weight, as the checkpoints expect.

    Attributes:
        weight: ``[out, in]``.
        bias: ``[out]`` or None.
    """

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Return ``[..., out]`` of ``x[..., in]`` in the type of the weight."""
        return F.linear(x.to(self.weight.dtype), self.weight, self.bias)


class Weights:
    """Tensors below a prefix.

    Args:
        tensors: All tensors of a checkpoint by canonical name; never modified.
        prefix: Where to look, '' or ending with a dot.
    """

    def __init__(self, tensors: Mapping[str, Tensor], prefix: str = '') -> None:
        self._tensors, self._prefix = tensors, prefix

    def at(self, name: str) -> Weights:
        """Return the tensors below ``name``."""
        return Weights(self._tensors, f'{self._prefix}{name}.')

    def read_by(self, kind: type[Weights]) -> Weights:
        """Return the same tensors, whose linear maps are of another kind."""
        return kind(self._tensors, self._prefix)

    def __contains__(self, name: str) -> bool:
        """Return whether there is such a tensor."""
        return self._prefix + name in self._tensors

    def __getitem__(self, name: str) -> Tensor:
        """Return one tensor."""
        return self._tensors[self._prefix + name]

    def get(self, name: str) -> Tensor | None:
        """Return one tensor, None if there is none."""
        return self._tensors.get(self._prefix + name)

    def linear(self, name: str) -> Linear:
        """Return the linear map ``name.weight`` with ``name.bias`` where there is one."""
        return Linear(self[f'{name}.weight'], self.get(f'{name}.bias'))

    def packed(self, *names: str) -> Linear:
        """Return one linear map whose outputs are those of several, side by side.

        One product of a large matrix is faster than several of small ones; each output is the
        same sum as before.
        """
        maps = [self.linear(name) for name in names]
        biases = [m.bias for m in maps if m.bias is not None]
        return Linear(torch.cat([m.weight for m in maps]), torch.cat(biases) if biases else None)
