"""The kernels, in Triton. ``launch`` calls them, ``plain`` says in PyTorch what each computes.

Everything is loaded into float32 at once: the interpreter keeps bfloat16 as plain bits. Products
of tiles stay in the type of the data, which tensor cores want, unless ``UPCAST`` (interpreter).
Whether these are compiled or interpreted is decided when triton is imported, by
``TRITON_INTERPRET``.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def gate_norm(x_ptr, branch_ptr, gate_ptr, scale_ptr, shift_ptr, step_ptr, sum_ptr, out_ptr,
              gate_stride, scale_stride, shift_stride, width, eps,
              HAS_BRANCH: tl.constexpr, BLOCK: tl.constexpr):
    """One program for each token; the row of the tables is picked on the device."""
    row = tl.program_id(0) * width
    step = tl.load(step_ptr)
    column = tl.arange(0, BLOCK)
    inside = column < width
    x = tl.load(x_ptr + row + column, mask=inside, other=0.0).to(tl.float32)
    if HAS_BRANCH:
        branch = tl.load(branch_ptr + row + column, mask=inside, other=0.0).to(tl.float32)
        gate = tl.load(gate_ptr + step * gate_stride + column, mask=inside, other=0.0)
        rounded = (x + branch * gate.to(tl.float32)).to(sum_ptr.dtype.element_ty)
        tl.store(sum_ptr + row + column, rounded, mask=inside)
        # the norm sees what was stored, as without fusion
        x = rounded.to(tl.float32)
    normed = x / tl.sqrt(tl.sum(x * x, 0) / width + eps)
    scale = tl.load(scale_ptr + step * scale_stride + column, mask=inside, other=0.0)
    shift = tl.load(shift_ptr + step * shift_stride + column, mask=inside, other=0.0)
    out = normed * (1.0 + scale.to(tl.float32)) + shift.to(tl.float32)
    tl.store(out_ptr + row + column, out.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def glu(packed_ptr, out_ptr, width, IS_SILU: tl.constexpr, BLOCK: tl.constexpr):
    """One program for each token and block of columns."""
    row = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    start = packed_ptr + row * 2 * width + column
    gate = tl.load(start, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(start + width, mask=inside, other=0.0).to(tl.float32)
    if IS_SILU:
        active = gate / (1.0 + tl.exp(-gate))
    else:
        # 0.5 * (1 + tanh(z)) = 1 / (1 + exp(-2 z)), z = sqrt(2 / pi) * (g + 0.044715 g^3)
        z = 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate)
        active = gate / (1.0 + tl.exp(-2.0 * z))
    out = (active * up).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * width + column, out, mask=inside)


@triton.jit
def split_rotate(packed_ptr, cos_ptr, sin_ptr, query_ptr, key_ptr, value_ptr, at_ptr, tokens,
                 HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr):
    """One program for each token and head; keys and values go straight to their rows."""
    token = tl.program_id(0)
    head = tl.program_id(1)
    HALF: tl.constexpr = HEAD_DIM // 2
    column = tl.arange(0, HALF)
    start = packed_ptr + (token * (HEADS + 2 * KV_HEADS) + head) * HEAD_DIM + column
    first = tl.load(start)
    second = tl.load(start + HALF)
    at = tl.load(at_ptr)
    if head < HEADS + KV_HEADS:
        cos = tl.load(cos_ptr + token * HEAD_DIM + column)
        sin = tl.load(sin_ptr + token * HEAD_DIM + HALF + column)
        a = first.to(tl.float32)
        b = second.to(tl.float32)
        first = (a * cos - b * sin).to(query_ptr.dtype.element_ty)
        second = (b * cos + a * sin).to(query_ptr.dtype.element_ty)
    if head < HEADS:
        out = query_ptr + (head * tokens + token) * HEAD_DIM + column
        tl.store(out, first)
        tl.store(out + HALF, second)
    elif head < HEADS + KV_HEADS:
        out = key_ptr + ((at + token) * KV_HEADS + head - HEADS) * HEAD_DIM + column
        tl.store(out, first)
        tl.store(out + HALF, second)
    else:
        out = value_ptr + ((at + token) * KV_HEADS + head - HEADS - KV_HEADS) * HEAD_DIM + column
        tl.store(out, first)
        tl.store(out + HALF, second)


@triton.jit
def attend_part(query_ptr, key_ptr, value_ptr, length_ptr, own_key_ptr, own_value_ptr, part_ptr,
                weight_ptr, rows, own, scale, PARTS: tl.constexpr, CHUNK: tl.constexpr,
                KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr,
                BLOCK_N: tl.constexpr, UPCAST: tl.constexpr):
    """One program for each block of query rows, part of the keys and head of keys.

    The query heads of one key head lie one below the other and are one tall matrix. Parts below
    ``PARTS`` are chunks of the prefix, the last one is the own keys. Writes the softmax over its
    part, and the logarithm of its sum.
    """
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    part = tl.program_id(1)
    head = tl.program_id(2)
    column = tl.arange(0, HEAD_DIM)
    is_row = row < rows
    at = (head * rows + row)[:, None] * HEAD_DIM + column[None, :]
    query = tl.load(query_ptr + at, mask=is_row[:, None], other=0.0)
    if part < PARTS:
        keys = key_ptr
        values = value_ptr
        low = part * CHUNK
        high = tl.minimum(low + CHUNK, tl.load(length_ptr))
    else:
        keys = own_key_ptr
        values = own_value_ptr
        low = 0
        high = own
    peak = tl.full([BLOCK_M], -1e30, tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    mixed = tl.zeros([BLOCK_M, HEAD_DIM], tl.float32)
    for start in range(low, high, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        is_key = n < high
        where = (n * KV_HEADS + head)[:, None] * HEAD_DIM + column[None, :]
        key = tl.load(keys + where, mask=is_key[:, None], other=0.0)
        value = tl.load(values + where, mask=is_key[:, None], other=0.0)
        if UPCAST:
            logits = tl.dot(query.to(tl.float32), tl.trans(key.to(tl.float32)),
                            input_precision='ieee')
        else:
            logits = tl.dot(query, tl.trans(key), input_precision='ieee')
        logits = tl.where(is_key[None, :], logits * scale, -1e30)
        higher = tl.maximum(peak, tl.max(logits, 1))
        weight = tl.where(is_key[None, :], tl.exp(logits - higher[:, None]), 0.0)
        shrink = tl.exp(peak - higher)
        total = total * shrink + tl.sum(weight, 1)
        if UPCAST:
            more = tl.dot(weight, value.to(tl.float32), input_precision='ieee')
        else:
            more = tl.dot(weight.to(value.dtype), value, input_precision='ieee')
        mixed = mixed * shrink[:, None] + more
        peak = higher
    safe = tl.where(total > 0.0, total, 1.0)
    out = (part * KV_HEADS + head) * rows + row
    tl.store(part_ptr + out[:, None] * HEAD_DIM + column[None, :], mixed / safe[:, None],
             mask=is_row[:, None])
    tl.store(weight_ptr + out, tl.where(total > 0.0, peak + tl.log(safe), -1e30), mask=is_row)


@triton.jit
def attend_merge(part_ptr, weight_ptr, out_ptr, rows, tokens, HEADS: tl.constexpr,
                 PARTS: tl.constexpr, BLOCK: tl.constexpr, HEAD_DIM: tl.constexpr):
    """One program for each query row: parts joined by the logarithms of their sums."""
    row = tl.program_id(0)
    part = tl.arange(0, BLOCK)
    column = tl.arange(0, HEAD_DIM)
    is_part = part < PARTS
    weight = tl.load(weight_ptr + part * rows + row, mask=is_part, other=-1e30)
    weight = tl.exp(weight - tl.max(weight, 0))
    weight = weight / tl.sum(weight, 0)
    mixed = tl.load(part_ptr + (part * rows + row)[:, None] * HEAD_DIM + column[None, :],
                    mask=is_part[:, None], other=0.0)
    out = tl.sum(mixed * weight[:, None], 0)
    head = row // tokens
    token = row % tokens
    tl.store(out_ptr + (token * HEADS + head) * HEAD_DIM + column,
             out.to(out_ptr.dtype.element_ty))
