"""Skew between cameras, and frames that a camera lost, from the stamps in the bag."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reflex_ros.analysis.collect import Recorded, unnumbered_missing
from reflex_ros.core.clock import MS


@dataclass(frozen=True, slots=True)
class Camera:
    """One camera of a run.

    Attributes:
        name: Its topic or name. ``seen_by``: ``images``, or ``blocks`` where none was recorded.
        frames: Frames seen. ``period_ms``: their usual distance, nan for fewer than three.
        missing: Frames that should lie in between; -1 where blocks alone cannot tell.
        longest_ms: Longest time without a frame.
        gaps_ns: (last stamp before, periods missing) of each gap.
    """

    name: str
    seen_by: str
    frames: int
    period_ms: float
    missing: int
    longest_ms: float
    gaps_ns: tuple[tuple[int, int], ...] = ()


def cameras_of(recorded: Recorded) -> tuple[Camera, ...]:
    """Return every camera, by its images where they were recorded."""
    if recorded.images:
        return tuple(_camera(name, 'images', stamps, unnumbered_missing(recorded, name))
                     for name, stamps in sorted(recorded.images.items()))
    by_name: dict[str, set[int]] = {}
    for block in recorded.blocks:
        for name, stamp_ns in zip(block.cameras, block.stamps_ns, strict=False):
            by_name.setdefault(name, set()).add(stamp_ns)
    return tuple(_camera(name, 'blocks', list(stamps))
                 for name, stamps in sorted(by_name.items()))


def skews_ms(recorded: Recorded) -> list[float]:
    """Return the spread of the frame stamps of every observation with several cameras, ms."""
    return [(max(block.stamps_ns) - min(block.stamps_ns)) / MS
            for block in recorded.blocks if len(block.stamps_ns) > 1]


def _camera(name: str, seen_by: str, stamps: Sequence[int], known_missing: int = 0) -> Camera:
    times = np.unique(np.asarray(stamps, np.int64))
    steps = np.diff(times)
    if len(steps) < 2:
        return Camera(name, seen_by, len(times), float('nan'), -1, float('nan'))
    period = float(np.median(steps))
    lost = np.rint(steps / period).astype(np.int64) - 1
    gaps = tuple((int(times[i]), int(lost[i])) for i in np.flatnonzero(lost > 0))
    # An encoder that is busy skips frames: blocks are no evidence of a lost frame.
    missing = max(int(lost[lost > 0].sum()), known_missing) if seen_by == 'images' else -1
    return Camera(name, seen_by, len(times), period / MS, missing, float(steps.max()) / MS, gaps)
