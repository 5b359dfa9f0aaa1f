"""What the policy bench must show, and whether it did.

A target compares two times of the same round, so that other load on the machine meets both; the
ratio is the median over the rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reflex_ros.core.stats import bootstrap_median
from reflex_ros.study.bench_policy import REFERENCE, REFLEX, Cell

MIN_CALLS = 30
PASS, FAIL, NOT_APPLICABLE, NOT_MEASURED = 'pass', 'fail', 'not applicable', 'not measured'
EQUAL = 2e-5
"""Most that actions of variants may differ in float32, as a share of ``max(1, |v|)``."""
UNITS = ('avx512_bf16', 'amx_bf16')
"""Flags of CPUs that multiply bfloat16 in hardware."""


@dataclass(frozen=True, slots=True)
class Target:
    """``reflex`` needs at most ``limit`` of the CPU time of ``reference`` in float32.

    Attributes:
        part: ``control``, ``one_new`` or ``all_new``.
        dtype: Of ``reflex``.
        limit: Largest ratio, by family.
    """

    part: str
    dtype: str
    limit: Mapping[str, float]


def _all(limit: float) -> dict[str, float]:
    return dict.fromkeys(('pi0', 'pi05', 'smolvla'), limit)


TARGETS = (
    Target('control', 'float32', {**_all(0.25), 'smolvla': 0.30}),
    Target('one_new', 'float32', _all(0.85)),
    Target('all_new', 'float32', _all(0.95)),
    Target('control', 'bfloat16', _all(0.15)),
)


@dataclass(frozen=True, slots=True)
class Judgement:
    """One target, judged.

    Attributes:
        part, dtype: Of the target. limit: Largest ratio.
        ratio: Median over the rounds. low, high: Its 95 % interval; nan without rounds.
        n: Rounds. verdict: ``pass``, ``fail``, ``not applicable`` or ``not measured``.
        reason: Why it was not judged, else ''.
    """

    part: str
    dtype: str
    limit: float
    ratio: float
    low: float
    high: float
    n: int
    verdict: str
    reason: str = ''


def judge(
    family: str, size: str, cells: Sequence[Cell], *, has_bfloat16: bool
) -> tuple[Judgement, ...]:
    """Return every target of a family, judged by its cells; they are about the size ``mid`` only.

    Args:
        family, size: Of the network.
        cells: After ``bench_policy.measure``.
        has_bfloat16: Whether the CPU multiplies bfloat16 in hardware.
    """
    if size != 'mid':
        return ()
    found = {(cell.variant, cell.dtype): cell.calls.get('cpu', {}) for cell in cells}
    return tuple(_judge(target, family, found, has_bfloat16) for target in TARGETS)


def _judge(
    target: Target, family: str, found: Mapping[tuple[str, str], Any], has_bfloat16: bool
) -> Judgement:
    ours = found.get((REFLEX, target.dtype), {}).get(target.part, ())
    theirs = found.get((REFERENCE, 'float32'), {}).get(target.part, ())
    n = min(len(ours), len(theirs))
    ratios = np.array(ours[:n]) / np.array(theirs[:n])
    ratio = float(np.median(ratios)) if n else float('nan')
    low, high = bootstrap_median(ratios, 0)
    limit = target.limit[family]
    verdict, reason = PASS if ratio <= limit else FAIL, ''
    if target.dtype == 'bfloat16' and not has_bfloat16:
        verdict, reason = NOT_APPLICABLE, 'the CPU multiplies no bfloat16'
    elif n < MIN_CALLS:
        verdict, reason = NOT_MEASURED, f'{n} calls, expected {MIN_CALLS}'
    return Judgement(target.part, target.dtype, limit, ratio, low, high, n, verdict, reason)


def multiplies_bfloat16(cpuinfo: Path = Path('/proc/cpuinfo')) -> bool:
    """Return whether the CPU has instructions that multiply bfloat16."""
    if not cpuinfo.is_file():
        return False
    lines = cpuinfo.read_text(encoding='utf-8', errors='replace').splitlines()
    flags = next((line for line in lines if line.startswith('flags')), '').split()
    return any(unit in flags for unit in UNITS)
