"""Bytes that a checkpoint takes: weights by type, key/value slots, the ring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from reflex_ros.infer import plan
from reflex_ros.infer.checkpoint.config import SMOLVLA, PretrainedConfig
from reflex_ros.infer.checkpoint.sizes import Sizes
from reflex_ros.infer.families.registry import NETWORKS
from reflex_ros.ring.layout import RingLayout

DTYPES = ('float32', 'bfloat16')
"""Types that a node computes in."""


@dataclass(frozen=True, slots=True)
class Ring:
    """Readers of a ring and slots that each may hold."""

    readers: int = 1
    leases: int = 1


def camera_tokens(sizes: Sizes) -> int:
    """Return the tokens of one camera."""
    return (sizes.image // sizes.patch // sizes.scale_factor) ** 2


def stored(weights: Mapping[str, Tensor]) -> dict[str, dict[str, int]]:
    """Return tensors, parameters and bytes by the type that they are stored in."""
    found: dict[str, dict[str, int]] = {}
    for tensor in weights.values():
        name = str(tensor.dtype).removeprefix('torch.')
        entry = found.setdefault(name, {'tensors': 0, 'parameters': 0, 'bytes': 0})
        entry['tensors'] += 1
        entry['parameters'] += tensor.numel()
        entry['bytes'] += tensor.numel() * tensor.element_size()
    return found


def planned(weights: Mapping[str, Tensor], dtype: str) -> dict[str, int]:
    """Return the bytes that stay mapped from the file and those converted when they are used."""
    wanted = plan.dtype_named(dtype)
    parts = {'mapped_bytes': 0, 'converted_bytes': 0}
    for name, tensor in weights.items():
        kept = plan.dtype_of(name, wanted)
        key = 'mapped_bytes' if tensor.dtype == kept else 'converted_bytes'
        parts[key] += tensor.numel() * kept.itemsize
    return parts


def snapshot_memory(
    weights: Mapping[str, Tensor], config: PretrainedConfig, sizes: Sizes, *, words: int,
    ring: Ring,
) -> dict[str, Any]:  # fmt: skip
    """Return the memory of a checkpoint of the ``snapshot`` layout, by the type computed in.

    Args:
        weights: As stored. config, sizes: Of the checkpoint.
        words: Most tokens of a prompt.
        ring: Readers and leases.
    """
    rows = len(config.cameras) * camera_tokens(sizes) + words
    behind = config.chunk_size + NETWORKS[config.family].state_rows
    shape = (sizes.depth, 2, rows, sizes.kv_heads, sizes.head_dim)
    by_dtype = {}
    for dtype in DTYPES:
        layout = RingLayout.snapshot(
            shape, dtype, model_id='', readers=ring.readers, leases=ring.leases
        )
        row_bytes = layout.payload_bytes // rows
        by_dtype[dtype] = {
            **planned(weights, dtype), 'slot_bytes': layout.payload_bytes,
            'ring_bytes': layout.store_bytes, 'policy_copy_bytes': (rows + behind) * row_bytes,
        }  # fmt: skip
    return {
        'stored': stored(weights),
        'slot': {
            'shape': list(shape), 'axes': 'layers, key/value, rows, kv_heads, head_dim',
            'rows': {'camera': camera_tokens(sizes), 'cameras': len(config.cameras),
                     'prompt_at_most': words, 'all': rows,
                     'state_and_actions_behind': behind},
        },
        'ring': {'slots': layout.slots, 'readers': ring.readers, 'leases': ring.leases},
        'by_dtype': by_dtype,
    }  # fmt: skip


def parameter_groups(weights: Mapping[str, Tensor], family: str) -> dict[str, int]:
    """Return the number of parameters of each part of a network, and of all of it."""
    towers = (('vision_model' if family == SMOLVLA else 'vision_tower', 'image encoder'),
              ('connector', 'connector'), ('multi_modal_projector', 'connector'),
              ('lm_expert' if family == SMOLVLA else 'gemma_expert', 'action expert'),
              ('text_model' if family == SMOLVLA else 'language_model', 'language model'))
    counts: dict[str, int] = {}
    for name, tensor in weights.items():
        group = next((group for part, group in towers if part in name), 'state, time, actions')
        counts[group] = counts.get(group, 0) + tensor.numel()
    return {**counts, 'all': sum(counts.values())}
