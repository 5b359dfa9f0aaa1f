"""What the page draws over time: few enough points for any browser, extremes kept."""

from __future__ import annotations

from typing import Any

import numpy as np

from reflex_ros.analysis.figures import Analysis
from reflex_ros.core.clock import MS, S
from reflex_ros.core.ledger import CAUSE_CODES, VERDICT_CODES, RecordArray
from reflex_ros.core.types import Fate

MOST_POINTS = 6000


def series(analysis: Analysis) -> dict[str, Any]:
    """Return the curves of a run; times in s since the first tick."""
    run = analysis.run
    records = run.records
    origin_ns = int(records['due_ns'][0])
    bins = max(1, -(-len(records) // MOST_POINTS))
    return {
        'duration': round(run.duration_s, 6),
        'verdicts': _spans(records, 'verdict', run.period_ns),
        'verdict_names': [v.value for v in VERDICT_CODES],
        'causes': _spans(records, 'cause', run.period_ns),
        'cause_names': [c.value for c in CAUSE_CODES],
        'stalls': [[round(s.start_s, 4), round(s.start_s + s.duration_ms / 1e3, 4), s.number]
                   for s in analysis.stalls],
        't': _round((records['due_ns'][::bins] - origin_ns) / S, 4),
        'age_ms': _binned(np.where(records['observation_age_ns'] < 0, np.nan,
                                   records['observation_age_ns'] / MS), bins, 2),
        'error_deg': _binned(np.degrees(records['tracking_error'].astype(float)), bins, 3),
        'joints': list(run.joint_names),
        'command': [_round(column, 4) for column in records['command'][::bins].T],
        'measured': [_round(column, 4) for column in records['measured'][::bins].T],
        **_chunks(analysis, origin_ns),
    }


def _chunks(analysis: Analysis, origin_ns: int) -> dict[str, Any]:
    """Return reaction and stage times of each executed chunk, over its first command."""
    run = analysis.run
    used = [t for t in run.traces if t.fate is Fate.EXECUTED and t.first_command_stamp_ns]
    used = used[:: max(1, -(-len(used) // MOST_POINTS))]
    names = list(dict.fromkeys(stage.name for trace in used for stage in trace.stages))
    offset_ns = run.offset_ns
    at = [round((t.first_command_stamp_ns - offset_ns - origin_ns) / S, 4) for t in used]
    stages = {name: [
        next((round((s.end_ns - s.start_ns) / MS, 3) for s in t.stages if s.name == name), None)
        for t in used] for name in names}
    return {
        'chunk_t': at, 'stages': stages,
        'reaction_ms': [round((t.first_command_stamp_ns - t.newest_stamp_ns) / MS, 3)
                        if t.newest_stamp_ns else None for t in used],  # else it is not sure
        'seam_deg': [round(float(np.degrees(t.seam_position)), 4) for t in used],
    }


def _spans(records: RecordArray, field: str, period_ns: int) -> list[list[float]]:
    """Return [start, end, code] of every run of equal values; a lost tick ends one."""
    codes, due = records[field].astype(int), records['due_ns'].astype(np.int64)
    end = due + records['count'].astype(np.int64) * period_ns
    if not len(codes):
        return []
    is_edge = (np.diff(codes) != 0) | (due[1:] - end[:-1] > period_ns // 2)
    first = np.concatenate(([0], np.flatnonzero(is_edge) + 1))
    last = np.concatenate((first[1:] - 1, [len(codes) - 1]))
    return [[round((int(due[a]) - int(due[0])) / S, 4), round((int(end[b]) - int(due[0])) / S, 4),
             int(codes[a])] for a, b in zip(first, last, strict=True)]


def _binned(values: np.ndarray, bins: int, digits: int) -> list[float | None]:
    """Return the largest value of every bin."""
    filled = np.concatenate((values, np.full(-len(values) % bins, np.nan))).reshape(-1, bins)
    best = np.max(np.where(np.isnan(filled), -np.inf, filled), axis=1)
    return _round(best, digits)


def _round(values: np.ndarray, digits: int) -> list[float | None]:
    return [round(float(v), digits) if np.isfinite(v) else None for v in values]
