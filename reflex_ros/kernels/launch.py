"""Calls of the Triton kernels; signatures, shapes and meaning are those of ``plain``."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from reflex_ros.core.errors import ConfigError
from reflex_ros.kernels import fused

ROWS_OF_BLOCK = 64


def gate_norm(
    x: Tensor,
    branch: Tensor | None,
    gate: Tensor | None,
    scale: Tensor,
    shift: Tensor,
    step: Tensor,
    *,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """Return residual and norm; see ``plain.gate_norm``."""
    require_contiguous(x=x, branch=branch)
    tokens, width = x.shape
    has_branch = branch is not None
    out = torch.empty_like(x)
    total = torch.empty_like(x) if has_branch else x
    fused.gate_norm[(tokens,)](
        x, branch if has_branch else x, gate if has_branch else scale, scale, shift, step, total,
        out, gate.stride(0) if has_branch else 0, scale.stride(0), shift.stride(0), width, eps,
        HAS_BRANCH=has_branch, BLOCK=triton.next_power_of_2(width), num_warps=4,
    )
    return total, out


def glu(packed: Tensor, activation: str) -> Tensor:
    """Return the gated activation; see ``plain.glu``."""
    require_contiguous(packed=packed)
    tokens, width = packed.shape[0], packed.shape[1] // 2
    out = packed.new_empty(tokens, width)
    block = min(1024, triton.next_power_of_2(width))
    fused.glu[(tokens, triton.cdiv(width, block))](
        packed, out, width, IS_SILU=activation == 'silu', BLOCK=block, num_warps=4,
    )
    return out


def split_rotate(
    packed: Tensor,
    cos: Tensor,
    sin: Tensor,
    key: Tensor,
    value: Tensor,
    at: Tensor,
    *,
    heads: int,
) -> Tensor:
    """Return the rotated queries; see ``plain.split_rotate``."""
    require_contiguous(packed=packed, cos=cos, sin=sin, key=key, value=value)
    kv_heads, head_dim = key.shape[1:]
    require_power(head_dim)
    query = packed.new_empty(heads, len(packed), head_dim)
    fused.split_rotate[(len(packed), heads + 2 * kv_heads)](
        packed, cos, sin, query, key, value, at, len(packed), HEADS=heads, KV_HEADS=kv_heads,
        HEAD_DIM=head_dim, num_warps=1,
    )
    return query


def attend(
    query: Tensor,
    prefix_key: Tensor,
    prefix_value: Tensor,
    length: Tensor,
    own_key: Tensor,
    own_value: Tensor,
    *,
    splits: int = 8,
) -> Tensor:
    """Return the attention output; see ``plain.attend``.

    The prefix is cut into at most ``splits`` parts, each read by its own programs.
    """
    require_contiguous(query=query, prefix_key=prefix_key, prefix_value=prefix_value,
                       own_key=own_key, own_value=own_value)
    heads, tokens, head_dim = query.shape
    require_power(head_dim)
    kv_heads = own_key.shape[1]
    rows = heads // kv_heads * tokens
    block = keys_of_block(query.dtype, head_dim)
    chunk = max(1, triton.cdiv(triton.cdiv(len(prefix_key), splits), block)) * block
    parts = triton.cdiv(len(prefix_key), chunk) + 1
    mixed = query.new_empty(parts, heads * tokens, head_dim, dtype=torch.float32)
    weight = query.new_empty(parts, heads * tokens, dtype=torch.float32)
    fused.attend_part[(triton.cdiv(rows, ROWS_OF_BLOCK), parts, kv_heads)](
        query, prefix_key, prefix_value, length, own_key, own_value, mixed, weight, rows,
        len(own_key), head_dim**-0.5, PARTS=parts - 1, CHUNK=chunk, KV_HEADS=kv_heads,
        HEAD_DIM=head_dim, BLOCK_M=ROWS_OF_BLOCK, BLOCK_N=block,
        UPCAST=query.device.type == 'cpu', num_warps=warps_of(head_dim), num_stages=2,
    )
    out = query.new_empty(tokens, heads * head_dim)
    fused.attend_merge[(heads * tokens,)](
        mixed, weight, out, heads * tokens, tokens, HEADS=heads, PARTS=parts,
        BLOCK=triton.next_power_of_2(parts), HEAD_DIM=head_dim, num_warps=2,
    )
    return out


def keys_of_block(dtype: torch.dtype, head_dim: int) -> int:
    """Return how many keys a tile of the attention has, at most 64.

    Two tiles of keys and two of values beside one of queries must fit into the 99 KiB of the
    smallest GPU that is compiled for, so one has at most 16 KiB.
    """
    return max(16, min(64, 16 * 1024 // (head_dim * dtype.itemsize)))


def warps_of(head_dim: int) -> int:
    """Return the warps of an attention program."""
    return 8 if head_dim >= 256 else 4


def require_contiguous(**tensors: Tensor | None) -> None:
    """Refuse strides that the kernels do not know.

    Raises:
        ConfigError: A tensor is not contiguous.
    """
    for name, tensor in tensors.items():
        if tensor is not None and not tensor.is_contiguous():
            raise ConfigError(
                f'kernel input {name}: got strides {tuple(tensor.stride())} for shape '
                f'{tuple(tensor.shape)}, expected contiguous. Copy it once, before the loop.'
            )


def require_power(head_dim: int) -> None:
    """Refuse heads that do not fill a tile.

    Raises:
        ConfigError: Not a power of two, or below 16.
    """
    if head_dim < 16 or head_dim & (head_dim - 1):
        raise ConfigError(
            f'kernel head_dim: got {head_dim}, expected a power of two from 16 on. '
            'Choose the plain functions for this model.'
        )
