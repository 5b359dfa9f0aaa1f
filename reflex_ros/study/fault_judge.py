"""Whether a stream of commands, as it arrived at the arm, kept the limits.

Three readings, all must hold: with the elapsed time between two commands (no burst, no speed above
the limit whatever came late); by order, one control period each (no jump, acceleration and jerk; a
single tick that sent nothing interrupts the stream and not the motion that it describes); and
after a longer gap, in which the arm has come to rest at its last command, as a motion that starts
from rest there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reflex_ros.core.limits import JointLimits
    from reflex_ros.core.types import FloatArray

QUANTUM = np.array([np.pi / 180_000.0] * 6 + [1e-6])
"""Resolution of a command on the wire: 0.001 deg, 0.001 mm."""
FRAMES = (slice(0, 2), slice(2, 4), slice(4, 6), slice(6, 7))
"""Columns that leave in one frame."""
SAME_S = 1e-3
"""Commands closer than this are one: the hold before the mode frame is sent twice."""
BRIDGED_S, BRIDGED_PERIODS = 0.04, 2
"""A longer time between two commands ends a motion: it is more than one lost tick at 50 Hz."""
RESEED_RAD = 0.01
"""A stream that begins anew begins where the arm is, within the resolution of its feedback."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was found.

    Attributes:
        commands: Commands judged. max_velocity: Of joints 1 to 6, rad/s, with elapsed time.
        max_acceleration, max_jerk: rad/s², rad/s³.
        violations: Sentences, () if every limit was kept.
    """

    commands: int
    max_velocity: float
    max_acceleration: float
    max_jerk: float
    violations: tuple[str, ...]


def judge(times_s: FloatArray, commands: FloatArray, measured: FloatArray | None = None, *,
          limits: JointLimits, period_s: float, restarts: Sequence[int] = (),
          from_s: float = -np.inf) -> Judgement:
    """Judge a stream.

    Args:
        times_s: ``float64[N]`` when each command arrived, s, ascending.
        commands: ``float64[N, 7]`` rad and m; not a number where a frame did not arrive: then the
            joints of each frame are judged as a stream of their own.
        measured: ``float64[N, 7]`` where the arm was then; None if unknown.
        limits: Of the arm. period_s: Control period.
        restarts: Indices at which the stream begins anew at the measured pose.
        from_s: The maxima count commands from here on only; violations count always.
    """
    if np.isnan(commands).any():
        return _by_frames(times_s, commands, measured, limits=limits, period_s=period_s,
                          restarts=restarts, from_s=from_s)
    found = [_range(commands, limits)]
    maxima = [np.zeros(3)]
    edges = [0, *sorted({i for i in restarts if 0 < i < len(times_s)}), len(times_s)]
    for number, (low, high) in enumerate(zip(edges, edges[1:], strict=False)):
        if number and measured is not None and high > low:
            found.append(_reseed(commands[low], measured[low], times_s[low]))
        part, worst = _segment(times_s[low:high], commands[low:high], limits=limits,
                               period_s=period_s, from_s=from_s)
        found.append(part)
        maxima.append(worst)
    velocity, acceleration, jerk = np.max(maxima, axis=0)
    texts = tuple(text for part in found for text in part)
    return Judgement(len(times_s), float(velocity), float(acceleration), float(jerk), texts)


def _by_frames(times_s: FloatArray, commands: FloatArray, measured: FloatArray | None, *,
               limits: JointLimits, period_s: float, restarts: Sequence[int],
               from_s: float) -> Judgement:
    """Judge what arrived of each frame; the other joints are taken to stand still."""
    found, halves = [], []
    for frame in FRAMES:
        lacks = np.isnan(commands[:, frame])
        here = ~lacks.any(axis=1)
        halves += [f'command {row}, a joint of a frame that arrived: nan is out of range'
                   for row in np.flatnonzero(lacks.any(axis=1) & ~lacks.all(axis=1))[:3]]
        own = np.tile((limits.lower + limits.upper) / 2, (int(here.sum()), 1))
        own[:, frame] = commands[here, frame]
        seen = None if measured is None else own.copy()
        if seen is not None and measured is not None:
            seen[:, frame] = measured[here, frame]
        found.append(judge(times_s[here], own, seen, limits=limits, period_s=period_s,
                           restarts=[int(here[:i].sum()) for i in restarts], from_s=from_s))
    return Judgement(
        len(times_s), *(max(getattr(one, name) for one in found) for name in (
            'max_velocity', 'max_acceleration', 'max_jerk')),
        (*halves, *(text for one in found for text in one.violations)))


def gap_s(period_s: float) -> float:
    """Return the time between two commands from which on the arm has come to rest, s."""
    return max(BRIDGED_S, BRIDGED_PERIODS * period_s) + period_s / 2


def _range(commands: FloatArray, limits: JointLimits) -> list[str]:
    if not len(commands):
        return []
    slack = QUANTUM
    bad = (commands < limits.lower - slack) | (commands > limits.upper + slack)
    bad |= ~np.isfinite(commands)
    return [f'command {row}, joint {joint + 1}: {commands[row, joint]:.4f} is out of range'
            for row, joint in np.argwhere(bad)[:3]]


def _reseed(command: FloatArray, measured: FloatArray, at_s: float) -> list[str]:
    gap = np.abs(command - measured)[:6]
    if gap.max() <= RESEED_RAD:
        return []
    return [f'at {at_s:.3f} s the stream began {gap.max():.4f} rad away from the measured pose']


def _segment(times_s: FloatArray, commands: FloatArray, *, limits: JointLimits, period_s: float,
             from_s: float) -> tuple[list[str], FloatArray]:
    twins = np.flatnonzero(np.diff(times_s) < SAME_S)
    found = [f'at {times_s[i]:.3f} s two commands differ' for i in twins
             if np.any(np.abs(commands[i + 1] - commands[i]) > QUANTUM)]
    keep = np.setdiff1d(np.arange(len(times_s)), twins)
    times_s, commands = times_s[keep], commands[keep]
    if len(times_s) < 2:
        return found, np.zeros(3)
    elapsed = np.diff(times_s, prepend=times_s[0] - period_s)
    steps = np.diff(commands, axis=0, prepend=commands[:1])
    speed = np.abs(steps) / elapsed[:, None]
    order = _by_order(steps, np.flatnonzero(elapsed > gap_s(period_s)), period_s)
    bounds = (limits.velocity, limits.acceleration, limits.jerk)
    noise = [2**(n - 1) * QUANTUM / period_s**n for n in (1, 2, 3)]
    short = np.minimum(elapsed, period_s)[:, None]
    words = ('velocity', 'acceleration', 'jerk')
    found += _over('speed over the elapsed time', speed, limits.velocity, QUANTUM / short, times_s)
    for word, values, bound, slack in zip(words, order, bounds, noise, strict=True):
        found += _over(word, values, bound, slack, times_s)
    chosen = times_s >= from_s
    worst = np.array([values[chosen, :6].max(initial=0.0) for values in (speed, *order[1:])])
    return found, worst


def _by_order(steps: FloatArray, rests: npt.NDArray[np.intp],
              period_s: float) -> list[FloatArray]:
    """Return sizes of velocity, acceleration and jerk at each step, from rest before ``rests``."""
    parts = []
    for low, high in zip([0, *rests], [*rests, len(steps)], strict=True):
        padded = np.vstack([np.zeros((2, steps.shape[1])), steps[low:high]])
        parts.append([np.abs(np.diff(padded, n, axis=0)[2 - n:]) / period_s**(n + 1)
                      for n in range(3)])
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


def _over(word: str, values: FloatArray, bound: FloatArray, slack: FloatArray,
          times_s: FloatArray) -> list[str]:
    bad = np.argwhere(values > bound * (1 + 1e-6) + slack)
    return [f'at {times_s[row]:.3f} s, joint {joint + 1}: {word} {values[row, joint]:.3f}, '
            f'expected at most {bound[joint]:.3f}' for row, joint in bad[:3]]
