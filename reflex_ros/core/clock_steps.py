"""Steps of ROS time against steady time, as the ticks of a run show them, and stamps without them.

Each tick tells both times. A correction of the system clock moves all stamps after it; steady
times and numbers do not move. ``straight`` stamps go on as if no step had been.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reflex_ros.core.clock import MS, S

LEAST_NS = 2 * MS
"""Ticks of a run without a step differ by less than 0.2 ms."""
CONFIRMED = 3
"""So many ticks in a row say that a step was one, and no damage."""
TRUSTED_SHARE = 0.8
"""Where fewer ticks than this agree with their neighbours, ROS time does not go on steadily."""
EARLIEST_NS = 600 * S
"""No bag begins so long before its first tick."""

GUESSES = 16
"""So many ways to share stamps out are followed at once."""
FEW_LOST = 5
"""The order is believed although another one would spare so many lost."""

Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Time between two steps.

    Attributes:
        after_ns, until_ns: Straight stamps of the last tick before it and the first after it.
        shift_ns: What the steps so far have added to its stamps.
    """

    after_ns: int
    until_ns: int
    shift_ns: int


@dataclass(frozen=True, slots=True)
class _Guess:
    """Which stamps are of which stretch: its cost, the newest of each stretch, and the way."""

    cost: float
    newest: tuple[int | None, ...]
    way: Any


@dataclass(frozen=True, slots=True)
class ClockSteps:
    """The stretches of a run, oldest first; one in a run without a step.

    Attributes:
        stretches: The stretches. ``first_ns``, ``last_ns``: straight stamps of the first and the
            last tick.
        offset_ns: ROS time minus steady time in the first stretch.
        dues_ns: Steady time of the first tick of every stretch but the first.
    """

    stretches: tuple[Stretch, ...]
    first_ns: int
    last_ns: int
    offset_ns: int
    dues_ns: tuple[int, ...] = ()

    @property
    def steps_ns(self) -> tuple[int, ...]:
        """How far ROS time stepped, each time; negative: back."""
        shifts = [stretch.shift_ns for stretch in self.stretches]
        return tuple(b - a for a, b in zip(shifts, shifts[1:], strict=False))

    def places(self, stamp_ns: int) -> list[tuple[int, int]]:
        """Return (number, straight stamp) of every stretch whose clock showed a stamp."""
        return [(number, stamp_ns - stretch.shift_ns)
                for number, stretch in enumerate(self.stretches)
                if stretch.after_ns < stamp_ns - stretch.shift_ns <= stretch.until_ns]

    def straight(self, stamp_ns: int, *, from_ns: int = -1 << 62,
                 until_ns: int = 1 << 62) -> int | None:
        """Return the straight stamp; None where the clock showed it never or twice.

        Args:
            stamp_ns: ROS time of anything in the run.
            from_ns, until_ns: Straight stamps between which it must lie.
        """
        found = [at for _, at in self.places(stamp_ns) if from_ns <= at <= until_ns]
        return found[0] if len(found) == 1 else None

    def nearest(self, stamp_ns: int, to_ns: int) -> int:
        """Return the straight stamp that lies nearest to another one; that one without any."""
        return min((at for _, at in self.places(stamp_ns)), key=lambda at: abs(at - to_ns),
                   default=to_ns)

    def shifts_ns(self, due_ns: npt.ArrayLike) -> Times:
        """Return what the steps have added to the stamps of ticks, by their steady times."""
        shifts = np.array([stretch.shift_ns for stretch in self.stretches], np.int64)
        return np.asarray(shifts[np.searchsorted(self.dues_ns, due_ns, 'right')], np.int64)

    def assign(self, stamps_ns: Sequence[int]) -> list[tuple[int, int] | None]:
        """Return (number of the stretch, straight stamp) of stamps of something periodic.

        Where they fall as the clock did, they stand in their order, which tells all. Else those
        that two clocks showed are shared out so that the periods fit best. None is for a stamp
        that no clock of the run showed.
        """
        found: list[tuple[int, int] | None] = [None] * len(stamps_ns)
        if not stamps_ns:
            return found
        period_ns = max(self._period_ns(stamps_ns), 1.0)
        nothing = _Guess(0.0, (None,) * len(self.stretches), None)
        guesses = [nothing]
        for row in sorted(range(len(stamps_ns)), key=lambda row: (stamps_ns[row], row)):
            places = self.places(stamps_ns[row])
            if places:
                guesses = self._best([self._with(guess, row, place, period_ns)
                                      for guess in guesses for place in places])
        best = min((self._ended(guess, period_ns) for guess in guesses),
                   key=lambda guess: guess.cost)
        ordered = nothing
        rows = list(self._in_order(stamps_ns))
        for row, place in rows:
            ordered = self._with(ordered, row, place, period_ns)
        ordered = self._ended(ordered, period_ns)
        is_ordered = (len(rows) == sum(bool(self.places(stamp)) for stamp in stamps_ns)
                      and ordered.cost <= 2 * best.cost + FEW_LOST)
        way = ordered.way if is_ordered else best.way
        while way is not None:
            way, row, place = way
            found[row] = place
        return found

    def _in_order(self, stamps_ns: Sequence[int]) -> Iterator[tuple[int, tuple[int, int]]]:
        """Yield (row, place) as if they stood in their true order: they fall where the clock did.

        Nothing if the clock fell and they do not.
        """
        least_ns = min((-step for step in self.steps_ns if step < 0), default=1 << 62) / 2
        falls = [after - before < -least_ns
                 for before, after in zip((stamps_ns[0], *stamps_ns), stamps_ns, strict=False)]
        if sum(falls) != sum(step < 0 for step in self.steps_ns):
            return
        number = 0
        for row, (stamp_ns, has_fallen) in enumerate(zip(stamps_ns, falls, strict=True)):
            place = next((p for p in self.places(stamp_ns) if p[0] >= number + has_fallen), None)
            if place is not None:
                yield row, place
                number = place[0]

    def _with(self, guess: _Guess, row: int, place: tuple[int, int],
              period_ns: float) -> _Guess:
        number, at_ns = place
        last = guess.newest[number]
        if last is not None:
            cost = abs(at_ns - last - period_ns) / period_ns
        elif number:  # the first one after a step comes within a period
            cost = max(0.0, (at_ns - self.stretches[number].after_ns) / period_ns - 1)
        else:  # hardly long before the first tick
            cost = max(0.0, (self.first_ns - at_ns) / period_ns)
        newest = (*guess.newest[:number], at_ns, *guess.newest[number + 1:])
        return _Guess(guess.cost + cost, newest, (guess.way, row, place))

    def _ended(self, guess: _Guess, period_ns: float) -> _Guess:
        """Return a guess with the cost of periods that lack at the end of a stretch."""
        ends = [*(stretch.until_ns for stretch in self.stretches[:-1]), self.last_ns]
        cost = sum(max(0.0, abs(end - at) / period_ns - 1)
                   for at, end in zip(guess.newest, ends, strict=True) if at is not None)
        return _Guess(guess.cost + cost, guess.newest, guess.way)

    @staticmethod
    def _best(guesses: list[_Guess]) -> list[_Guess]:
        """Return the few best guesses, one for each end."""
        one: dict[tuple[int | None, ...], _Guess] = {}
        for guess in sorted(guesses, key=lambda guess: guess.cost):
            one.setdefault(guess.newest, guess)
        return list(one.values())[:GUESSES]

    def _period_ns(self, stamps_ns: Sequence[int]) -> float:
        """Return the usual distance of stamps; those of two clocks lie among one another."""
        stamps = np.sort(np.asarray(stamps_ns, np.int64))
        usual_ns = (self.last_ns - self.first_ns) / len(stamps)
        steps = [stamps[lag:] - stamps[:-lag] for lag in (1, 2) if len(stamps) > lag]
        return min((float(np.median(step)) for step in steps),
                   key=lambda step_ns: abs(step_ns - usual_ns), default=usual_ns)

    def words(self) -> list[str]:
        """Return each step in words."""
        return [f'ROS time stepped by {step_ns / S:+.3f} s at '
                f'{(stretch.after_ns - self.first_ns) / S:.2f} s'
                for stretch, step_ns in zip(self.stretches[1:], self.steps_ns, strict=True)]


def find_steps(due_ns: npt.ArrayLike, stamp_ns: npt.ArrayLike, *,
               least_ns: int = LEAST_NS) -> ClockSteps:
    """Return the steps that the ticks of a run show; none where ROS time is not steady at all.

    A few ticks apart from all others are damage. Time that goes slightly faster is no step.

    Args:
        due_ns, stamp_ns: Steady and ROS time of each tick, the former rising.
        least_ns: Less is no step.
    """
    due, stamps = np.asarray(due_ns, np.int64), np.asarray(stamp_ns, np.int64)
    blocks = _steady_blocks(stamps - due, least_ns) or [(0, len(stamps) - 1)]
    if not len(stamps):
        return ClockSteps((Stretch(-1 << 62, 1 << 62, 0),), 0, 0, 0)
    shifts, starts = [0], [blocks[0][0]]
    ends: list[int] = []
    for first, last in blocks:
        if ends:
            step_ns = int(stamps[first] - due[first]) - int(stamps[ends[-1]] - due[ends[-1]])
            if abs(step_ns) >= least_ns:
                shifts.append(shifts[-1] + step_ns)
                starts.append(first)
                ends.append(last)
                continue
            ends[-1] = last
        else:
            ends.append(last)
    first_ns = int(stamps[starts[0]])
    befores = [first_ns - EARLIEST_NS, *(int(stamps[ends[k]]) - shifts[k]
                                         for k in range(len(starts) - 1))]
    afters = [*(int(stamps[starts[k]]) - shifts[k] for k in range(1, len(starts))), 1 << 62]
    return ClockSteps(tuple(map(Stretch, befores, afters, shifts)), first_ns,
                      int(stamps[ends[-1]]) - shifts[-1], first_ns - int(due[starts[0]]),
                      tuple(int(due[at]) for at in starts[1:]))


def _steady_blocks(offset_ns: Times, least_ns: int) -> list[tuple[int, int]]:
    """Return (first, last) of every run of ticks whose clocks keep step; [] if most do not."""
    edges = np.flatnonzero(np.abs(np.diff(offset_ns)) >= least_ns) + 1
    starts, ends = [0, *edges.tolist()], [*(edges - 1).tolist(), len(offset_ns) - 1]
    blocks = [(a, b) for a, b in zip(starts, ends, strict=True) if b - a + 1 >= CONFIRMED]
    steady = sum(b - a + 1 for a, b in blocks)
    return blocks if steady >= TRUSTED_SHARE * len(offset_ns) else []
