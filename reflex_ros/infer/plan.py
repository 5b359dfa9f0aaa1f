"""Which type each weight is kept in (float32, bfloat16, and float64 for tests)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from reflex_ros.core.errors import ConfigError

DTYPES = MappingProxyType(
    {'float32': torch.float32, 'bfloat16': torch.bfloat16, 'float64': torch.float64}
)
SMALL_TYPE_ROOTS = (
    'paligemma_with_expert.paligemma.model.language_model.',
    'paligemma_with_expert.gemma_expert.',
    'vlm_with_expert.vlm.model.text_model.',
    'vlm_with_expert.lm_expert.',
)
"""Language models and experts; towers, projectors and what surrounds them stay in float32."""


def dtype_of(name: str, dtype: torch.dtype) -> torch.dtype:
    """Return the type of one weight when the language model computes in ``dtype``.

    In bfloat16 the matrices and tables of language model and expert are bfloat16; norms (with
    their conditioning), image tower, projector and the projections of state, time and actions
    stay float32.
    """
    if dtype is not torch.bfloat16:
        return dtype
    is_norm = 'layernorm' in name or '.norm.' in name
    is_small = name.startswith(SMALL_TYPE_ROOTS) and not is_norm
    return torch.bfloat16 if is_small else torch.float32


class CastWeights(Mapping[str, Tensor]):
    """Weights in the types of the plan, converted when they are asked for.

    One that has its type already is shared with the file it is mapped from; what is never asked
    for, as the image tower in a process that only denoises, is never converted.

    Args:
        tensors: Weights by canonical name. dtype: Type that the language model computes in.
        device: Where they are wanted.
    """

    def __init__(
        self, tensors: Mapping[str, Tensor], dtype: torch.dtype, *, device: str = 'cpu'
    ) -> None:
        self._tensors, self._dtype, self._device = tensors, dtype, device

    def __getitem__(self, name: str) -> Tensor:
        """Return one weight."""
        return self._tensors[name].to(self._device, dtype_of(name, self._dtype))

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._tensors)

    def __len__(self) -> int:
        """Return the number of weights."""
        return len(self._tensors)

    def __contains__(self, name: object) -> bool:
        """Return whether there is such a weight, without converting it."""
        return name in self._tensors


def dtype_named(name: str) -> torch.dtype:
    """Return the type of that name.

    Raises:
        ConfigError: There is no plan for it.
    """
    if name not in DTYPES:
        raise ConfigError(
            f'dtype cannot be used: got {name!r}, expected one of {", ".join(DTYPES)}. Correct it.'
        )
    return DTYPES[name]
