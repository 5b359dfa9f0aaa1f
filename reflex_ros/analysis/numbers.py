"""Which messages a bag lacks, from the numbers that their publishers put into them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


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

    def add(self, number: int) -> None:
        """Take the next message."""
        self.messages += 1
        if self.messages == 1:
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
        """Say what the recorder wrote: numbers before the first or after the newest are lost."""
        if not self.messages:
            self._miss(first, last)
            return
        if first < self.first:
            self.gaps.insert(0, (first, self.first - 1))
        self._miss(self.last + 1, last)

    def _miss(self, first: int, last: int) -> None:
        if 0 < first <= last:
            self.gaps.append((first, last))

    @property
    def missing(self) -> int:
        """Number of missing messages."""
        return sum(last - first + 1 for first, last in self.gaps)


def spell(gaps: Iterable[tuple[int, int]], *, limit: int = 12) -> str:
    """Return ranges in words, ``5, 8-11``; the rest is counted."""
    ranges = list(gaps)
    text = ', '.join(str(a) if a == b else f'{a}-{b}' for a, b in ranges[:limit])
    return text if len(ranges) <= limit else f'{text} and {len(ranges) - limit} more runs'
