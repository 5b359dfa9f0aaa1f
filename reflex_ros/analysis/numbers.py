"""Which messages a bag lacks, from the numbers that their publishers put into them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_MESSAGES = 10**9
"""A topic at 1 kHz for eleven days: no bag holds so many."""


@dataclass(slots=True)
class Numbers:
    """Numbers of one publisher on one topic, in the order of their receipt.

    Attributes:
        messages: Messages read. ``duplicates``: those with the number of the one before.
        restarts: Times the count began again.
        first, last: First and newest number, 0 if none.
        gaps: (first, last) number of every run that is missing, oldest first.
    """

    messages: int = 0
    duplicates: int = 0
    restarts: int = 0
    first: int = 0
    last: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)
    _bags: int = 0
    _in_bag: int = 0

    def add(self, number: int) -> None:
        """Take the next message."""
        self.messages += 1
        self._in_bag += 1
        if self.messages == 1 and not self._bags:
            self.first = self.last = number
            return
        if number == self.last:
            self.duplicates += 1
            return
        if number < self.last:
            self.restarts += 1
            self._miss(1, number - 1)
        else:
            self._miss(self.last + 1, number - 1)
        self.last = number

    def bound(self, first: int, last: int) -> None:
        """Say what the recorder wrote into the bag that was just read: its ends are known.

        Numbers before the first read or after the newest are lost. Those between two bags were
        counted by the first message of the second.
        """
        if not self._in_bag:
            is_new = not self.messages and not self._bags
            if not is_new and first <= self.last:
                self.restarts += 1
                is_new = True
            self._miss(first if is_new else self.last + 1, last)
            self.first = self.first or first
        else:
            if not self._bags and first < self.first:
                self.gaps.insert(0, (first, self.first - 1))
            self._miss(self.last + 1, last)
        self.last = max(last, self.last) if self._in_bag else last
        self._bags, self._in_bag = self._bags + 1, 0

    def _miss(self, first: int, last: int) -> None:
        if 0 < first <= last:
            self.gaps.append((first, last))

    @property
    def missing(self) -> int:
        """Number of missing messages."""
        return sum(last - first + 1 for first, last in self.gaps)


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
