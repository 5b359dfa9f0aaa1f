"""Which messages a bag lacks, from the numbers that their publishers put into them.

Messages are read in the order of their receipt as the bag tells it, which a step of the system
clock confuses. A number below the one before is therefore no new start of the publisher unless it
was read already, or another order would explain it only with more losses.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_MESSAGES = 10**9
"""A topic at 1 kHz for eleven days: no bag holds so many."""
OPEN_LIVES = 4
"""A message is of one of so many lives of a publisher, the newest."""

Gap = tuple[int, int]


@dataclass(slots=True)
class Life:
    """What was read of a publisher between two starts of it.

    Attributes:
        low, high: First and last number that the bags should hold.
        at: The number that was added last. ``bag``: in which bag it began.
        floor: Numbers up to it lie in bags that are done. ``cuts``: where these bags ended.
        is_overtaken: Whether an older life went on after this one began.
        starts, ends: First and last number of every run that was read, rising.
    """

    low: int
    high: int
    at: int
    bag: int
    floor: int = -1
    is_overtaken: bool = False
    cuts: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def has(self, number: int) -> bool:
        """Return whether a number was read."""
        place = bisect_right(self.starts, number) - 1
        return place >= 0 and number <= self.ends[place]

    def may_have(self, number: int) -> bool:
        """Return whether a number may be of this life and was not read."""
        return number > max(self.low, self.floor) and not self.has(number)

    def add(self, number: int) -> None:
        """Take a number that was not read."""
        self.at, self.high, self.low = number, max(self.high, number), min(self.low, number)
        place = bisect_right(self.starts, number)
        joins_left = place > 0 and self.ends[place - 1] == number - 1
        joins_right = place < len(self.starts) and self.starts[place] == number + 1
        if joins_left and joins_right:
            self.ends[place - 1] = self.ends.pop(place)
            del self.starts[place]
        elif joins_left:
            self.ends[place - 1] = number
        elif joins_right:
            self.starts[place] = number
        else:
            self.starts.insert(place, number)
            self.ends.insert(place, number)

    def close(self) -> None:
        """End a bag: what follows lies in the next one."""
        self.floor = self.at = self.high
        self.cuts.append(self.high)

    def spans(self) -> list[Gap]:
        """Return the runs that were read."""
        return list(zip(self.starts, self.ends, strict=True))

    def gaps(self) -> list[Gap]:
        """Return every run of numbers that is missing, in parts where a bag ended within."""
        found, at = [], self.low
        for first, last in (*self.spans(), (self.high + 1, self.high)):
            for cut in (*self.cuts, first - 1):
                if 0 < at <= min(cut, first - 1):
                    found.append((at, min(cut, first - 1)))
                    at = min(cut, first - 1) + 1
            at = max(at, last + 1)
        return found


@dataclass(slots=True)
class Numbers:
    """Numbers of one publisher on one topic, in the order of their receipt.

    Its memory grows with the gaps, not with the messages.

    Attributes:
        messages: Messages read.
    """

    messages: int = 0
    _repeated: int = 0
    _lives: list[Life] = field(default_factory=list)
    _bag: int = 0
    _in_bag: int = 0

    def add(self, number: int) -> None:
        """Take the next message; a number that no bag can hold tells nothing."""
        self.messages += 1
        if number >= MOST_MESSAGES:
            return
        self._in_bag += 1
        newest = self._lives[-1] if self._lives else None
        if newest and newest.at == number - 1 and newest.ends[-1:] == [newest.at]:
            newest.ends[-1] = newest.at = number  # as nearly always
            newest.high = max(newest.high, number)
            return
        recent = self._lives[-OPEN_LIVES:][::-1]
        if any(life.at == number and life.has(number) for life in recent):
            self._repeated += 1
            return
        fitting = [life for life in recent if life.may_have(number)]
        if not fitting:
            start = 1 if self._lives else number
            fitting = [Life(start, number, number, self._bag)]
            self._lives += fitting
            recent = [*fitting, *recent]
        life = min(fitting, key=lambda life: abs(number - life.at))
        life.add(number)
        for newer in recent[:recent.index(life)]:
            newer.is_overtaken = True

    def bound(self, first: int, last: int) -> None:
        """Say what the recorder wrote into the bag that was just read: one life, its ends known.

        Numbers before the first read or after the newest are lost. Those between two bags were
        counted by the first message of the second.
        """
        if not self._in_bag:
            newest = self._lives[-1] if self._lives else None
            if newest is None or first <= newest.high:
                self._lives.append(Life(first, last, last, self._bag))
            newest = self._lives[-1]
            newest.high = last
        else:
            begun = [life for life in self._lives if life.bag == self._bag]
            self._lives = self._lives[:len(self._lives) - len(begun)]
            if begun:
                life, repeated = _union(begun)
                self._lives.append(life)
                self._repeated += repeated
            if not self._bag:
                self._lives[0].low = min(self._lives[0].low, first)
            self._lives[-1].high = max(self._lives[-1].high, last)
        for life in self._lives[-OPEN_LIVES:]:
            life.close()
        self._bag, self._in_bag = self._bag + 1, 0

    @property
    def gaps(self) -> list[Gap]:
        """(first, last) of every run that is missing, oldest first."""
        return [gap for life in self._settled()[0] for gap in life.gaps()]

    @property
    def missing(self) -> int:
        """Number of missing messages."""
        return sum(last - first + 1 for first, last in self.gaps)

    @property
    def restarts(self) -> int:
        """Times the count began again."""
        return max(0, len(self._settled()[0]) - 1)

    @property
    def duplicates(self) -> int:
        """Messages whose number was read before."""
        return self._repeated + self._settled()[1]

    def _settled(self) -> tuple[list[Life], int]:
        """Return the lives, those joined that were one read out of order; numbers read twice."""
        kept: list[Life] = []
        repeated = 0
        for life in self._lives:
            if kept and kept[-1].bag == life.bag:
                one, twice = _union([kept[-1], life])
                is_echo = (life.is_overtaken and life.starts[0] > 1
                           and twice == _count(life.spans()))
                apart = _count(kept[-1].gaps()) + _count(life.gaps())
                if is_echo or not twice and _count(one.gaps()) <= apart:
                    kept[-1] = one
                    repeated += twice
                    continue
            kept.append(life)
        return kept, repeated


def _union(lives: list[Life]) -> tuple[Life, int]:
    """Return lives as one, and how many numbers more than one of them had."""
    spans = sorted(span for life in lives for span in life.spans())
    low = lives[0].low if len(lives) == 1 else min((a for a, _ in spans), default=lives[0].low)
    one = Life(low, max(life.high for life in lives), lives[-1].at, lives[0].bag,
               lives[0].floor, cuts=[*lives[0].cuts])
    for first, last in spans:
        if one.ends and first <= one.ends[-1] + 1:
            one.ends[-1] = max(one.ends[-1], last)
        else:
            one.starts.append(first)
            one.ends.append(last)
    return one, _count(spans) - _count(one.spans())


def _count(spans: Iterable[Gap]) -> int:
    return sum(last - first + 1 for first, last in spans)


def is_count(value: object) -> bool:
    """Return whether a value can be a number of messages."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_MESSAGES


def is_possible(log: Mapping[str, Any]) -> bool:
    """Return whether what the recorder counted of a publisher agrees with itself."""
    names = ('messages', 'missing', 'restarts')
    if not all(is_count(log[name]) for name in names):
        return False
    first, last = log['first'], log['last']
    if not all(type(n) is int and n >= 0 for n in (first, last)):
        return False
    # a number that came again counts as a restart
    return bool(log['restarts'] or last - first + 1 == log['messages'] + log['missing'])


def spell(gaps: Iterable[tuple[int, int]], *, limit: int = 12) -> str:
    """Return ranges in words, ``5, 8-11``; the rest is counted."""
    ranges = list(gaps)
    text = ', '.join(str(a) if a == b else f'{a}-{b}' for a, b in ranges[:limit])
    return text if len(ranges) <= limit else f'{text} and {len(ranges) - limit} more runs'
