"""Compares the Triton kernels with the plain functions in float32: on a GPU, or interpreted.

    TRITON_INTERPRET=1 python -m reflex_ros.kernels.check     # without a GPU
    python -m reflex_ros.kernels.check                        # on one

Exit code 1 if any result is further off than rounding explains.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from reflex_ros.kernels import plain
from reflex_ros.kernels.choice import Kernels, choose

BOUNDS = MappingProxyType({torch.float32: 2e-5, torch.bfloat16: 1.6e-2})
"""Largest difference by type, relative to max(1, largest value). The interpreter cuts bfloat16 off
instead of rounding it, so a whole last digit, and two of them in what is rounded twice."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the problems; heads, tokens and rows are no multiples of any block."""

    tokens: int = 13
    width: int = 120
    mlp: int = 200
    heads: int = 6
    kv_heads: int = 2
    head_dim: int = 32
    rows: int = 150
    steps: int = 3


@dataclass(frozen=True, slots=True)
class Case:
    """One call, as a function of the implementation and of whether it computes in float32."""

    kernel: str
    name: str
    run: Callable[[Kernels, bool], tuple[Tensor, ...]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How far one call was off.

    Attributes:
        kernel, case, dtype: What was called.
        error: Largest difference relative to max(1, largest value); inf where not finite.
        bound: Largest that rounding explains.
    """

    kernel: str
    case: str
    dtype: str
    error: float
    bound: float

    @property
    def is_right(self) -> bool:
        """Whether rounding explains the difference."""
        return self.error <= self.bound


class Inputs:
    """Seeded tensors on one device, made in one type."""

    def __init__(self, device: str, dtype: torch.dtype, sizes: Sizes) -> None:
        self.sizes = sizes
        self._device, self._dtype = device, dtype
        self._generator = torch.Generator().manual_seed(7)

    def normal(self, *shape: int) -> Tensor:
        """Return normal numbers, rounded to the type."""
        made = torch.randn(*shape, generator=self._generator)
        return made.to(self._device, self._dtype)

    def index(self, number: int) -> Tensor:
        """Return what a kernel reads an index from."""
        return torch.tensor([number], dtype=torch.int32, device=self._device)

    def phases(self) -> tuple[Tensor, Tensor]:
        """Return cosine and signed sine, as ``infer.rope.phases`` does."""
        shape = (self.sizes.tokens, self.sizes.head_dim // 2)
        angles = 100 * torch.rand(*shape, generator=self._generator)
        cos, sin = angles.cos(), angles.sin()
        return (torch.cat((cos, cos), -1).to(self._device),
                torch.cat((-sin, sin), -1).to(self._device))


def of(tensors: tuple[Tensor | None, ...], is_wide: bool) -> list[Tensor | None]:
    """Return tensors as they are, or in float32."""
    return [x.float() if is_wide and x is not None and x.is_floating_point() else x
            for x in tensors]


def norm_cases(inputs: Inputs) -> Iterator[Case]:
    """Yield the residual with its norm, the first norm, and inputs below eps."""
    s = inputs.sizes
    x, branch = inputs.normal(s.tokens, s.width), inputs.normal(s.tokens, s.width)
    # tables of several norms lie side by side, so rows are further apart than they are wide
    table = inputs.normal(s.steps, 3, s.width)
    scale, shift, gate = table[:, 0], table[:, 1], table[:, 2]
    small = x * 1e-3
    for name, call in (
        ('residual', (x, branch, gate, scale, shift)),
        ('first', (x, None, None, scale, shift)),
        ('below eps', (small, None, None, scale, shift)),
    ):
        for step in (0, s.steps - 1):
            def run(kernels: Kernels, is_wide: bool, call=call, step=step):
                return kernels.gate_norm(*of(call, is_wide), inputs.index(step), eps=1e-6)

            yield Case('gate_norm', f'{name}, step {step}', run)


def glu_cases(inputs: Inputs) -> Iterator[Case]:
    """Yield both activations."""
    packed = 3 * inputs.normal(inputs.sizes.tokens, 2 * inputs.sizes.mlp)
    for activation in plain.ACTIVATIONS:
        def run(kernels: Kernels, is_wide: bool, activation=activation):
            return (kernels.glu(*of((packed,), is_wide), activation),)

        yield Case('glu', activation, run)


def split_cases(inputs: Inputs) -> Iterator[Case]:
    """Yield writing behind other rows, which must stay as they are."""
    s = inputs.sizes
    packed = inputs.normal(s.tokens, (s.heads + 2 * s.kv_heads) * s.head_dim)
    cos, sin = inputs.phases()
    old = inputs.normal(2, s.tokens + 20, s.kv_heads, s.head_dim)

    for at in (0, 17):
        def run(kernels: Kernels, is_wide: bool, at=at):
            wide, key, value = of((packed, old[0].clone(), old[1].clone()), is_wide)
            query = kernels.split_rotate(wide, cos, sin, key, value, inputs.index(at),
                                         heads=s.heads)
            return query, key, value

        yield Case('split_rotate', f'at {at}', run)


def attend_cases(inputs: Inputs) -> Iterator[Case]:
    """Yield full, cut, nearly empty and empty prefixes; what is behind the length is NaN."""
    s = inputs.sizes
    query = inputs.normal(s.heads, s.tokens, s.head_dim)
    prefix = inputs.normal(2, s.rows, s.kv_heads, s.head_dim)
    own = inputs.normal(2, s.tokens, s.kv_heads, s.head_dim)
    for length, splits in ((s.rows, 4), (s.rows - 13, 1), (65, 3), (1, 2), (0, 4)):
        def run(kernels: Kernels, is_wide: bool, length=length, splits=splits):
            seen = prefix.clone()
            seen[:, length:] = torch.nan
            q, k, v, own_k, own_v = of((query, seen[0], seen[1], own[0], own[1]), is_wide)
            return (kernels.attend(q, k, v, inputs.index(length), own_k, own_v, splits=splits),)

        yield Case('attend', f'length {length} in {splits}', run)


MAKERS = (norm_cases, glu_cases, split_cases, attend_cases)


def compare(case: Case, tested: Kernels, reference: Kernels, dtype: torch.dtype) -> Outcome:
    """Return how far an implementation is off the reference in float32."""
    got, want = case.run(tested, False), case.run(reference, True)
    error = max(difference(a, b) for a, b in zip(got, want, strict=True))
    return Outcome(case.kernel, case.name, str(dtype).removeprefix('torch.'), error, BOUNDS[dtype])


def difference(got: Tensor, want: Tensor) -> float:
    """Return the largest difference relative to max(1, largest wanted value)."""
    got, want = got.float(), want.float()
    if not bool(got.isfinite().all()):
        return float('inf')
    return float((got - want).abs().max() / want.abs().max().clamp(min=1))


def check(tested: Kernels, device: str, sizes: Sizes) -> Iterator[Outcome]:
    """Yield the outcome of each case in each type."""
    reference = choose('plain', device)
    for dtype in BOUNDS:
        for maker in MAKERS:
            for case in maker(Inputs(device, dtype, sizes)):
                yield compare(case, tested, reference, dtype)


def main(arguments: list[str] | None = None) -> int:
    """Print the outcomes and return the exit code."""
    parser = argparse.ArgumentParser(description='Compare the kernels with plain PyTorch.')
    parser.add_argument('--full', action='store_true', help='the sizes of Pi0.5')
    parser.add_argument('--json', action='store_true', help='one object for each outcome')
    given = parser.parse_args(arguments)
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    sizes = Sizes(50, 1024, 4096, 8, 1, 256, 640, 10) if given.full else Sizes()
    wrong = 0
    for outcome in check(choose('triton', device), device, sizes):
        wrong += not outcome.is_right
        if given.json:
            print(json.dumps(asdict(outcome)), flush=True)
        else:
            print(f'{"ok" if outcome.is_right else "WRONG":5} {outcome.kernel:12} '
                  f'{outcome.case:18} {outcome.dtype:8} {outcome.error:.1e}', flush=True)
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
