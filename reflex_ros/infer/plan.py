"""Which type each weight is kept in (float32, bfloat16, and float64 for tests)."""

from __future__ import annotations

from collections.abc import Mapping
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


def cast(tensors: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """Return the weights in the types of the plan; one that has its type already is shared."""
    return {name: value.to(dtype_of(name, dtype)) for name, value in tensors.items()}


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
