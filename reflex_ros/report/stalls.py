"""Spans of time in a ledger: runs of one verdict, and stalls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reflex_ros.core.clock import S
from reflex_ros.core.ledger import (
    ARM_STATE_CODES,
    CAUSE_CODES,
    COVERED,
    IN_MOTION,
    VERDICT_CODES,
    RecordArray,
)
from reflex_ros.core.types import ArmState, Verdict

_TRACKING = ARM_STATE_CODES.index(ArmState.TRACKING)


@dataclass(frozen=True, slots=True)
class Stall:
    """In-motion ticks in a row that no live chunk covered.

    Attributes:
        start_s, end_s: Since the first record, s. ``cause``: that of most of its ticks.
    """

    start_s: float
    end_s: float
    cause: str


def spans(records: RecordArray, period_ns: int) -> list[tuple[Verdict, float, float]]:
    """Return (verdict, start, end) of every run of equal verdicts, s since the first record."""
    return [
        (VERDICT_CODES[int(records['verdict'][first])], *_ends(records, first, last, period_ns))
        for first, last in _runs(records['verdict'])
    ]


def find_stalls(records: RecordArray, period_ns: int) -> list[Stall]:
    """Return the stalls since the first ``tracking`` tick, oldest first."""
    flags, tracking = records['flags'], records['arm_state'] == _TRACKING
    is_stalled = ((flags & IN_MOTION) != 0) & ((flags & COVERED) == 0)
    is_stalled &= np.cumsum(tracking) > 0
    stalls = []
    for first, last in _runs(is_stalled):
        if is_stalled[first]:
            part = slice(first, last + 1)
            codes = np.bincount(records['cause'][part], weights=records['count'][part])
            cause = CAUSE_CODES[int(codes.argmax())].value
            stalls.append(Stall(*_ends(records, first, last, period_ns), cause))
    return stalls


def longest(stalls: Sequence[Stall], count: int) -> list[Stall]:
    """Return the longest stalls, longest first; of equal ones the older."""
    return sorted(stalls, key=lambda stall: stall.start_s - stall.end_s)[:count]


def _runs(values: np.ndarray) -> list[tuple[int, int]]:
    """Return (first, last) index of every run of equal values."""
    if not len(values):
        return []
    edges = np.flatnonzero(np.diff(values)) + 1
    return list(zip([0, *edges], [*(edges - 1), len(values) - 1], strict=True))


def _ends(records: RecordArray, first: int, last: int, period_ns: int) -> tuple[float, float]:
    origin_ns, end = int(records['due_ns'][0]), records[last]
    end_ns = int(end['due_ns']) + int(end['count']) * period_ns
    return (int(records['due_ns'][first]) - origin_ns) / S, (end_ns - origin_ns) / S
