"""Compiles every kernel for real GPUs on a machine that has none; the assembler is in the wheel.

    python -m reflex_ros.kernels.aot [--targets 87 89 90 110] [--brief] [--json]

Finds what the interpreter lets pass: types, tile sizes, too much shared memory. Says nothing about
speed. Exit code 1 if a kernel does not compile or does not fit.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from reflex_ros.core.errors import ConfigError
from reflex_ros.kernels import fused
from reflex_ros.kernels.choice import is_interpreted
from reflex_ros.kernels.launch import ROWS_OF_BLOCK, keys_of_block, warps_of

SHARED_KIB = MappingProxyType({87: 163, 89: 99, 90: 227, 110: 227})
"""Shared memory that one program may have, by compute capability: Orin, RTX 40, H100, Thor."""

BF16, F32, I32 = '*bf16', '*fp32', '*i32'


@dataclass(frozen=True, slots=True)
class Job:
    """One kernel with the types and constants of one model.

    Attributes:
        name: Kernel and model.
        kernel: Function of ``fused``.
        types: Of the arguments that are not constants, in their order.
        constants: By name.
        warps: Of a program.
    """

    name: str
    kernel: Any
    types: tuple[str, ...]
    constants: dict[str, Any]
    warps: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """What came out.

    Attributes:
        kernel, target: What was compiled for which compute capability.
        shared_bytes: Shared memory of one program; 0 if it failed.
        cubin_bytes: Size of the machine code; 0 if it failed.
        matrix: Instruction of the tensor cores that it uses, or ''.
        error: Why it is of no use, '' if it is.
    """

    kernel: str
    target: int
    shared_bytes: int
    cubin_bytes: int
    matrix: str
    error: str


def jobs(*, is_brief: bool = False) -> tuple[Job, ...]:
    """Return every kernel in bfloat16 with the sizes of Pi0.5, and, unless brief, its variants."""
    numbers = ('i32', 'i32', 'i32', 'i32', 'fp32')
    variants = () if is_brief else (
        Job('gate_norm first', fused.gate_norm, (*(BF16,) * 5, I32, BF16, BF16, *numbers),
            {'HAS_BRANCH': False, 'BLOCK': 1024}, 4),
        Job('glu silu', fused.glu, (BF16, BF16, 'i32'), {'IS_SILU': True, 'BLOCK': 1024}, 4),
        *split_and_attend('smolvla', heads=15, kv_heads=5, head_dim=64),
    )
    return (
        Job('gate_norm', fused.gate_norm, (*(BF16,) * 5, I32, BF16, BF16, *numbers),
            {'HAS_BRANCH': True, 'BLOCK': 1024}, 4),
        Job('glu gelu', fused.glu, (BF16, BF16, 'i32'), {'IS_SILU': False, 'BLOCK': 1024}, 4),
        *split_and_attend('pi05', heads=8, kv_heads=1, head_dim=256),
        *variants,
    )


def split_and_attend(model: str, *, heads: int, kv_heads: int, head_dim: int) -> Iterator[Job]:
    """Yield the kernels whose tiles depend on the heads of a model."""
    yield Job(f'split_rotate {model}', fused.split_rotate,
              (BF16, F32, F32, BF16, BF16, BF16, I32, 'i32'),
              {'HEADS': heads, 'KV_HEADS': kv_heads, 'HEAD_DIM': head_dim}, 1)
    yield Job(f'attend_part {model}', fused.attend_part,
              (*(BF16,) * 3, I32, BF16, BF16, F32, F32, 'i32', 'i32', 'fp32'),
              {'PARTS': 8, 'CHUNK': 128, 'KV_HEADS': kv_heads, 'HEAD_DIM': head_dim,
               'BLOCK_M': ROWS_OF_BLOCK, 'BLOCK_N': keys_of_block(torch.bfloat16, head_dim),
               'UPCAST': False}, warps_of(head_dim))
    yield Job(f'attend_merge {model}', fused.attend_merge, (F32, F32, BF16, 'i32', 'i32'),
              {'HEADS': heads, 'PARTS': 9, 'BLOCK': 16, 'HEAD_DIM': head_dim}, 2)


def compile_job(job: Job, target: int) -> Compiled:
    """Return what a kernel becomes for a compute capability; a failure is in the result."""
    names = [name for name in job.kernel.arg_names if name not in job.constants]
    types = dict(zip(names, job.types, strict=True))
    source = ASTSource(
        fn=job.kernel,
        signature={name: types.get(name, 'constexpr') for name in job.kernel.arg_names},
        constexprs={(job.kernel.arg_names.index(name),): value
                    for name, value in job.constants.items()},
        attrs={(index,): [['tt.divisibility', 16]]
               for index, name in enumerate(job.kernel.arg_names)
               if types.get(name, '').startswith('*')},
    )
    try:
        made = triton.compile(source, target=GPUTarget('cuda', target, 32),
                              options={'num_warps': job.warps, 'num_stages': 2})
    except Exception as error:  # whatever the compiler raises is the finding
        return Compiled(job.name, target, 0, 0, '', f'{type(error).__name__}: {error}'[:2000])
    shared, limit = made.metadata.shared, SHARED_KIB[target] * 1024
    fault = '' if shared <= limit else f'shared memory: got {shared}, expected <= {limit} (bytes)'
    ptx = made.asm['ptx']
    matrix = next((word for word in ('tcgen05.mma', 'wgmma', 'mma.sync') if word in ptx), '')
    return Compiled(job.name, target, shared, len(made.asm['cubin']), matrix, fault)


def main(arguments: list[str] | None = None) -> int:
    """Print what was compiled and return the exit code."""
    parser = argparse.ArgumentParser(description='Compile the kernels without a GPU.')
    parser.add_argument('--targets', nargs='+', type=int, default=list(SHARED_KIB),
                        choices=list(SHARED_KIB), help='compute capabilities')
    parser.add_argument('--brief', action='store_true', help='one variant of each kernel')
    parser.add_argument('--json', action='store_true', help='one object for each kernel')
    given = parser.parse_args(arguments)
    if is_interpreted():
        raise ConfigError('kernels: got TRITON_INTERPRET, expected none. Unset it to compile.')
    failed = 0
    for target in given.targets:
        for made in (compile_job(job, target) for job in jobs(is_brief=given.brief)):
            failed += bool(made.error)
            if given.json:
                print(json.dumps(asdict(made)), flush=True)
            else:
                print(f'sm_{target} {made.kernel:22} {made.shared_bytes:7} B shared '
                      f'{made.cubin_bytes:7} B {made.matrix:10} {made.error}', flush=True)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
