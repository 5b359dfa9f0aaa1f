"""Motion of the target: segments of sinusoids over the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from reflex_ros.core.errors import ConfigError
from reflex_ros.core.types import FloatArray

KINDS = MappingProxyType({'static': 0.3, 'slow': 0.25, 'stop_and_go': 0.15, 'normal': 0.3})
"""Kinds of motion and how often each is drawn."""

CENTRE = (0.33, 0.0, 0.15)
AMPLITUDE = (0.08, 0.17, 0.0)
"""Middle and half-width of the region that targets move in, m."""
_CENTRE, _AMPLITUDE = np.array(CENTRE), np.array(AMPLITUDE)

SEGMENT_S = (1.2, 3.2)
"""Shortest and longest time between two jumps, s."""

SHORTEST_REST_S = 0.5


@dataclass(frozen=True, slots=True)
class Segment:
    """Smooth motion from one jump to the next.

    Attributes:
        start_s: Time of its first position. kind: Key of ``KINDS``.
        omega: float64[3] rad/s. phase: float64[3] rad.
        pause_s: Length of both the moving and the resting spells; 0 = never rests.
        pause_phase_s: Where in the rhythm of the spells it starts.
    """

    start_s: float
    kind: str
    omega: FloatArray = field(compare=False)
    phase: FloatArray = field(compare=False)
    pause_s: float = 0.0
    pause_phase_s: float = 0.0

    def at(self, time_s: float) -> tuple[FloatArray, FloatArray]:
        """Return position and velocity at one time, float64[3] each, as the two alone do."""
        angle = self.phase + self.omega * float(self._moved(time_s))
        speed = _AMPLITUDE * self.omega * np.cos(angle)
        if self.pause_s:
            speed *= float(self._is_moving(time_s))
        return _CENTRE + _AMPLITUDE * np.sin(angle), speed

    def position(self, time_s: npt.ArrayLike) -> FloatArray:
        """Return where the target is, float64[..., 3] m, at times float64[...] of the episode."""
        angle = self.phase + self.omega * self._moved(time_s)[..., None]
        return _CENTRE + _AMPLITUDE * np.sin(angle)

    def velocity(self, time_s: npt.ArrayLike) -> FloatArray:
        """Return the velocity of that instant, float64[..., 3] m/s; 0 while it rests."""
        angle = self.phase + self.omega * self._moved(time_s)[..., None]
        speed = _AMPLITUDE * self.omega * np.cos(angle)
        return np.asarray(speed * self._is_moving(time_s)[..., None])

    def _is_moving(self, time_s: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        local = np.asarray(time_s, dtype=np.float64) - self.start_s
        if not self.pause_s:
            return np.ones(local.shape, dtype=bool)
        return np.asarray((local + self.pause_phase_s) % (2 * self.pause_s) < self.pause_s)

    def _moved(self, time_s: npt.ArrayLike) -> FloatArray:
        """Return how long the target has moved since the start of the segment, s."""
        local = np.asarray(time_s, dtype=np.float64) - self.start_s
        if not self.pause_s:
            return local
        return self._spells(local + self.pause_phase_s) - self._spells(
            np.asarray(self.pause_phase_s))

    def _spells(self, time_s: FloatArray) -> FloatArray:
        """Return the moving time in [0, time_s] of a rhythm that starts with motion, s."""
        rounds, rest = np.divmod(time_s, 2 * self.pause_s)
        return np.asarray(rounds * self.pause_s + np.minimum(rest, self.pause_s))


def check_kinds(kinds: Sequence[str]) -> tuple[str, ...]:
    """Return ``kinds`` as given.

    Raises:
        ConfigError: None given or one unknown.
    """
    wrong = [kind for kind in kinds if kind not in KINDS]
    if wrong or not kinds:
        raise ConfigError(f'target kinds: got {list(kinds)}, expected some of {list(KINDS)}.'
                          ' Correct the task options.')
    return tuple(kinds)


def draw_segment(rng: np.random.Generator, start_s: float, kinds: Sequence[str]) -> Segment:
    """Draw the motion of one segment."""
    omega = 2 * np.pi * rng.uniform(0.08, 0.30, 3)
    phase = rng.uniform(0.0, 2 * np.pi, 3)
    weights = np.array([KINDS[kind] for kind in kinds])
    kind = str(rng.choice(list(kinds), p=weights / weights.sum()))
    if kind == 'static':
        return Segment(start_s, kind, omega * 0.0, phase)
    if kind == 'slow':
        return Segment(start_s, kind, omega * rng.uniform(0.1, 0.5), phase)
    if kind == 'stop_and_go':
        pause = float(rng.uniform(0.5, 1.2))
        return Segment(start_s, kind, omega, phase, pause, float(rng.uniform(0.0, pause)))
    return Segment(start_s, kind, omega, phase)


def draw_segments(rng: np.random.Generator, duration_s: float,
                  kinds: Sequence[str]) -> tuple[Segment, ...]:
    """Draw segments that cover ``duration_s``; the last has no end."""
    segments = []
    start = 0.0
    while start < duration_s:
        segments.append(draw_segment(rng, start, kinds))
        length = float(rng.uniform(*SEGMENT_S))
        # A rest too short to be judged becomes part of the last segment.
        start = start + length if duration_s - start - length > SHORTEST_REST_S else duration_s
    return tuple(segments)
