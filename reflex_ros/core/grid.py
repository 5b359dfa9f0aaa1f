"""Which recorded ticks can be true: they lie on one grid of instants, and not far from all others.

A single damaged tick would else stretch a run of seconds to years.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reflex_ros.core.clock import S

MAX_INDEX = 1 << 32
MAX_NS = 1 << 62
"""No instant lies so far off."""
APART_NS = 10 * S
"""A few ticks so far from all others belong to no run."""
FEW = 5

Mask = npt.NDArray[np.bool_]


def usual_period_ns(index: Sequence[int], due_ns: Sequence[int], default_ns: int) -> int:
    """Return the usual distance of neighbours, which lost and damaged ticks do not change.

    Args:
        index, due_ns: Of ticks in the order of their indices.
        default_ns: Where no two neighbours tell.
    """
    index_ = np.array([min(max(i, -1), MAX_INDEX) for i in index], np.int64)
    due = np.array([min(max(d, -MAX_NS), MAX_NS) for d in due_ns], np.int64)
    steps = np.diff(index_)
    periods = np.diff(due)[steps > 0] / steps[steps > 0]
    good = periods[periods > 0]
    return round(float(np.median(good))) if len(good) else default_ns


def several_runs(index: Sequence[int], due_ns: Sequence[int]) -> str:
    """Return in words what else there is than the ticks of one run, '' if nothing.

    A run counts its ticks once, from its start; one whose bridge was restarted counts on. So an
    index that comes again is of another run, or of the same one a second time.

    Args:
        index, due_ns: Of ticks in the order of their receipt.
    """
    rows = [(i, d) for i, d in zip(index, due_ns, strict=True)
            if 0 <= i < MAX_INDEX and abs(d) < MAX_NS]
    if len(set(rows)) + FEW < len(rows):
        return f'{len(rows) - len(set(rows))} of {len(rows)} ticks a second time'
    number, due = (np.array(column, np.int64) for column in zip(*rows, strict=True)) if rows else (
        np.empty(0, np.int64), np.empty(0, np.int64))
    steps = np.diff(number)
    periods = np.diff(due)[steps == 1]
    if not (periods > 0).any():
        return ''
    period_ns = round(float(np.median(periods[periods > 0])))
    start_ns = due - number * period_ns
    order = np.argsort(start_ns, kind='stable')
    grid = np.empty(len(order), np.int64)
    grid[order] = np.cumsum(np.diff(start_ns[order], prepend=start_ns[order][:1]) > period_ns)
    first = int(np.argmax(np.bincount(grid)))
    known = set(number[grid == first].tolist())
    again = {g: len(known.intersection(number[grid == g].tolist()))
             for g in np.unique(grid).tolist() if g != first}
    others = [int((grid == g).sum()) for g, count in again.items() if count > FEW]
    if not others:
        return ''
    return (f'{int((grid == first).sum())} ticks of one run and '
            f'{", ".join(map(str, others))} of another')


def plausible(index: Any, due_ns: Any, period_ns: int) -> Mask:
    """Return which ticks lie on the grid that most of them make, and near others.

    Args:
        index, due_ns: Of ticks in the order of their indices, whole numbers.
        period_ns: Usual period, ns.
    """
    sane = np.array([0 <= int(i) < MAX_INDEX and abs(int(d)) < MAX_NS
                     for i, d in zip(index, due_ns, strict=True)], np.bool_)
    if not sane.any():
        return sane
    number = np.array([int(i) for i, ok in zip(index, sane, strict=True) if ok], np.int64)
    due = np.array([int(d) for d, ok in zip(due_ns, sane, strict=True) if ok], np.int64)
    start_ns = due - number * period_ns
    away_ns = start_ns - np.sort(start_ns)[len(start_ns) // 2]
    fits = (away_ns >= -period_ns) & (away_ns <= period_ns)
    fits[fits] = _near_others(due[fits])
    sane[sane] = fits
    return sane


def _near_others(due_ns: npt.NDArray[np.int64]) -> Mask:
    """Return which of rising instants are not a few that lie far from all others."""
    if len(due_ns) <= 2 * FEW:
        return np.ones(len(due_ns), np.bool_)
    group = np.cumsum(np.diff(due_ns, prepend=due_ns[0]) > APART_NS)
    return np.asarray(np.bincount(group)[group] > FEW)
