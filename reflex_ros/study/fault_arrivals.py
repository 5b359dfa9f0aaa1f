"""What a real arm's socket received in real time, judged by order and by the elapsed time.

On a real clock three things lie between the instant at which a command was due and the instant at
which the simulator read it: the tick may run up to half a period late (a later one sends nothing
new), the bridge needs time to send, and the simulator's thread reads late. Their sum is the
*lateness* of an arrival. So the elapsed time between two arrivals says how fast the arm was asked
to move only within that lateness: 20 ms may be read as 12 ms, and a difference over it, taken
three times for the jerk, would be noise. Therefore:

* The grid of 20 ms is found from the arrivals alone: a part of the period in which nothing ever
  arrives is the end of it, the one after which most arrive. The rest is the spread of the
  lateness; it is measured and stated, and above ``MAX_SPREAD`` of a period a run proves nothing
  and is a violation.
* Each arrival belongs to one period of the grid. Two in one period are a violation: a command too
  early, or a burst that catches up.
* With the periods known, range, velocity, acceleration, jerk and jumps are judged as on the
  virtual clock (``fault_judge``): by order, and where periods were empty by their number.
* Beside that, with nothing but the times that were read: over any 1 to ``WINDOW`` commands the way
  is at most the velocity limit times the elapsed time and the greatest lateness, and the mean
  velocity of two neighbouring windows differs by at most what the acceleration limit allows.

While the arm is powered its pose is held and sent off the grid; those commands must all be equal,
and equal to the first of the ticks. Whoever powers it may be held up between two frames of one
pose; so a command is what lies between two gripper or mode frames, however long it took to come.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from reflex_ros.sim import can_codec as codec
from reflex_ros.study.fault_judge import QUANTUM, RESEED_RAD, gap_s, judge

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from reflex_ros.core.limits import JointLimits
    from reflex_ros.core.types import FloatArray
    from reflex_ros.sim.can_tap import TapRecord

MAX_SPREAD = 0.75
"""Largest spread of the lateness, in periods: half for a late tick, a quarter for sending and
reading."""
ON_TIME = 0.25
"""Share of a period after its begin in which a tick on time arrives."""
WINDOW = 10
HALF_WINDOW = 5
HOLD_PERCENT = 10
"""Speed of the mode frames that power the arm; those of the ticks have another."""
NEAR_S = 0.015
"""Frames of one command come within this."""
POWERED_S = 0.05
"""A pose that came so long before the mode frame is its own: before it is powered an arm gets
nothing for 0.2 s."""
RAD_PER_MDEG = np.pi / 180_000.0


@dataclass(frozen=True, slots=True)
class Part:
    """Commands from one power-on to the next.

    Attributes:
        times_s: ``float64[N]`` when each arrived, steady clock. commands: ``float64[N, 7]``.
        holds: How many of them, from the first, hold the pose while the arm is powered.
    """

    times_s: FloatArray
    commands: FloatArray
    holds: int


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What was found.

    Attributes:
        commands: Commands judged. spread_s: Largest spread of the lateness.
        max_velocity, max_acceleration, max_jerk: By order, joints 1 to 6.
        violations: Sentences, () if every limit was kept.
    """

    commands: int
    spread_s: float
    max_velocity: float
    max_acceleration: float
    max_jerk: float
    violations: tuple[str, ...]


class _Reader:
    """Puts commands together from frames, as the simulator's codec reads them."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self._angles, self._opening = [0.0] * codec.JOINTS, 0.0
        self._seen: set[int] = set()
        self._seen_s = 0.0
        self._times: list[float] = []
        self._rows: list[list[float]] = []
        self._is_powering, self._holds = False, 0

    def take(self, record: TapRecord) -> None:
        at_s = record.mono_ns * 1e-9
        match codec.decode_command(record.can_id, record.data):
            case codec.JointTarget(joint, first, second):
                self._joint(joint, first * RAD_PER_MDEG, second * RAD_PER_MDEG, at_s)
            case codec.GripperTarget(opening_um):
                self._end_row()
                self._opening = opening_um * 1e-6
                if self._times and at_s - self._times[-1] < NEAR_S:
                    self._rows[-1][-1] = self._opening
            case codec.Mode(speed_percent=percent):
                self._end_row()
                self._mode(percent, at_s)

    def end(self) -> None:
        """Close the running part."""
        self._end_row()
        if self._times:
            holds = len(self._times) if self._is_powering else self._holds
            rows = np.array(self._rows, np.float64)
            # a hold sends its pose before the gripper's first frame
            rows[:holds, -1] = rows[holds - 1, -1] if holds else 0.0
            self.parts.append(Part(np.array(self._times), rows, holds))
        self._times, self._rows, self._holds = [], [], 0

    def _joint(self, joint: int, first: float, second: float, at_s: float) -> None:
        is_late = at_s - self._seen_s > NEAR_S and not self._is_powering
        if joint in self._seen or is_late:
            self._end_row()  # of which a frame did not come
        self._angles[joint - 1:joint + 1] = first, second
        self._seen.add(joint)
        self._seen_s = at_s
        if len(self._seen) == codec.JOINTS // 2:
            self._end_row()

    def _end_row(self) -> None:
        if not self._seen:
            return
        angles = [angle if joint in self._seen else np.nan
                  for joint, angle in zip((1, 1, 3, 3, 5, 5), self._angles, strict=True)]
        self._seen.clear()
        self._times.append(self._seen_s)
        self._rows.append([*angles, self._opening])

    def _mode(self, percent: int, at_s: float) -> None:
        if percent != HOLD_PERCENT:
            self._holds = len(self._times) if self._is_powering else self._holds
            self._is_powering = False
        elif not self._is_powering:
            # the pose is sent before the mode too: it belongs to what begins here
            begin = len(self._times)
            while begin and at_s - self._times[begin - 1] < POWERED_S:
                begin -= 1
            times, rows = self._times[begin:], self._rows[begin:]
            del self._times[begin:], self._rows[begin:]
            self.end()
            self._is_powering, self._times, self._rows = True, times, rows


def parts_of(records: Iterable[TapRecord]) -> list[Part]:
    """Return the commands among frames, cut where the arm is powered anew."""
    reader = _Reader()
    for record in records:
        reader.take(record)
    reader.end()
    return reader.parts


def grid(times_s: FloatArray, period_s: float) -> tuple[npt.NDArray[np.intp], float]:
    """Return in which period each arrival lies, counted from the first, and the spread in s.

    Of the pauses that leave no more than ``MAX_SPREAD`` of the period, the one after which the
    most arrivals follow is the end of it: most ticks are on time, and a single one that is late by
    more than half a period is no early one of the next.
    """
    phases = np.sort(times_s % period_s)
    pauses = np.diff(phases, prepend=phases[-1] - period_s)
    follow = np.searchsorted(np.append(phases, phases + period_s), phases + ON_TIME * period_s)
    on_time = np.where(pauses >= (1.0 - MAX_SPREAD) * period_s, follow - np.arange(len(phases)), 0)
    begin = int(np.argmax(on_time if on_time.any() else pauses))
    numbers = np.floor((times_s - phases[begin]) / period_s + 1e-6).astype(np.intp)
    return numbers - numbers[0], float(period_s - pauses[begin])


def judge_arrivals(parts: Sequence[Part], poses: FloatArray, *, limits: JointLimits,
                   period_s: float, from_s: float = -np.inf) -> Arrivals:
    """Judge everything that reached a socket.

    Args:
        parts: Of ``parts_of``.
        poses: ``float64[M, 8]`` where the arm was: time in s, rad and m, ascending.
        limits: Of the arm. period_s: Control period.
        from_s: The maxima count commands from here on only; violations count always.
    """
    found: list[str] = []
    spreads, maxima = [0.0], [np.zeros(3)]
    for part in parts:
        found += _held(part) + _begins(part, poses)
        times_s, commands = part.times_s[part.holds:], part.commands[part.holds:]
        if len(times_s) < 2:
            continue
        numbers, spread_s = grid(times_s, period_s)
        spreads.append(spread_s)
        found += _on_grid(numbers, spread_s, times_s, period_s)
        even = times_s[0] + numbers * period_s
        keep = np.append(True, np.diff(numbers) > 0)
        judged = judge(even[keep], commands[keep], limits=limits, period_s=period_s,
                       from_s=from_s)
        found += judged.violations
        found += _elapsed(times_s, commands, limits, period_s)
        maxima.append(np.array([judged.max_velocity, judged.max_acceleration, judged.max_jerk]))
    velocity, acceleration, jerk = (float(value) for value in np.max(maxima, axis=0))
    return Arrivals(sum(len(part.times_s) for part in parts), max(spreads), velocity,
                    acceleration, jerk, tuple(found))


def _held(part: Part) -> list[str]:
    """Return whether the pose moved while the arm was powered, up to the first tick."""
    held = part.commands[:part.holds + 1]
    if not part.holds:
        return []
    spread = np.nanmax(held, axis=0) - np.nanmin(held, axis=0)
    if np.all(spread <= QUANTUM):
        return []
    return [f'at {part.times_s[0]:.3f} s the pose moved while the arm was powered']


def _begins(part: Part, poses: FloatArray) -> list[str]:
    """Return whether a part begins away from where the arm is."""
    before = max(0, int(np.searchsorted(poses[:, 0], part.times_s[0])) - 1)
    gap = np.nanmax(np.abs(part.commands[0] - poses[before, 1:])[:codec.JOINTS])
    if gap <= RESEED_RAD:
        return []
    return [f'at {part.times_s[0]:.3f} s the stream began {gap:.4f} rad away from the arm']


def _on_grid(numbers: npt.NDArray[np.intp], spread_s: float, times_s: FloatArray,
             period_s: float) -> list[str]:
    found = [] if spread_s <= MAX_SPREAD * period_s else [
        f'commands arrive in {1e3 * spread_s:.1f} ms of the period, expected at most '
        f'{1e3 * MAX_SPREAD * period_s:.1f} ms']
    return found + [f'at {times_s[i + 1]:.4f} s a second command in one period, '
                    f'{1e3 * (times_s[i + 1] - times_s[i]):.1f} ms after the first'
                    for i in np.flatnonzero(np.diff(numbers) < 1)[:3]]


def _elapsed(times_s: FloatArray, commands: FloatArray, limits: JointLimits,
             period_s: float) -> list[str]:
    """Return what breaks velocity or acceleration over the times that were read."""
    found: list[str] = []
    late_s = MAX_SPREAD * period_s
    breaks = np.flatnonzero(np.diff(times_s) > gap_s(period_s) - late_s / 2) + 1
    for low, high in zip([0, *breaks], [*breaks, len(times_s)], strict=True):
        found += _ways(times_s[low:high], commands[low:high], limits, late_s)
        found += _changes(times_s[low:high], commands[low:high], limits, late_s)
    # across a pause too: whatever comes after it begins where the last command led
    return found + _ways(times_s, commands, limits, late_s)


def _ways(times_s: FloatArray, commands: FloatArray, limits: JointLimits,
          late_s: float) -> list[str]:
    for m in range(1, min(WINDOW, len(times_s) - 1) + 1):
        ways = np.abs(commands[m:] - commands[:-m])
        elapsed = (times_s[m:] - times_s[:-m] + late_s)[:, None]
        bad = np.argwhere(ways > limits.velocity * elapsed + 2 * QUANTUM)
        if len(bad):
            row, joint = bad[0]
            return [f'at {times_s[row]:.3f} s, joint {joint + 1}: {ways[row, joint]:.4f} rad in '
                    f'{1e3 * (times_s[row + m] - times_s[row]):.1f} ms']
    return []


def _changes(times_s: FloatArray, commands: FloatArray, limits: JointLimits,
             late_s: float) -> list[str]:
    m = HALF_WINDOW
    if len(times_s) < 2 * m + 1:
        return []
    elapsed = (times_s[m:] - times_s[:-m])[:, None]
    means = (commands[m:] - commands[:-m]) / elapsed
    first, second = means[:-m], means[m:]
    # a time that is wrong by the lateness makes a mean velocity wrong by as much of itself
    doubt = (np.abs(first) * late_s / elapsed[:-m] + np.abs(second) * late_s / elapsed[m:]
             + 4 * QUANTUM / elapsed[m:])
    whole = (times_s[2 * m:] - times_s[:-2 * m] + late_s)[:, None]
    bad = np.argwhere(np.abs(second - first) > limits.acceleration * whole / 2 + doubt)
    return [f'at {times_s[row + m]:.3f} s, joint {joint + 1}: mean velocity changes by '
            f'{abs(second[row, joint] - first[row, joint]):.3f} rad/s in '
            f'{1e3 * (times_s[row + 2 * m] - times_s[row]):.0f} ms' for row, joint in bad[:1]]
