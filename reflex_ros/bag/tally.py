"""How many messages of each topic lie where, and when they were received."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

NEVER_NS = 2**63 - 1
"""Start of a span without messages."""


@dataclass(slots=True)
class Tally:
    """Messages by topic and the span of their receipt in ROS time, ns.

    Attributes:
        counts: Messages by full topic name.
        start_ns, end_ns: Receipt of the first and the last; ``NEVER_NS`` and 0 without any.
    """

    counts: dict[str, int] = field(default_factory=dict)
    start_ns: int = NEVER_NS
    end_ns: int = 0

    @property
    def total(self) -> int:
        """Messages of all topics."""
        return sum(self.counts.values())

    @property
    def span(self) -> tuple[int, int]:
        """Return (start, duration) in ns; zeros without messages."""
        return (self.start_ns, self.end_ns - self.start_ns) if self.total else (0, 0)

    def add(self, topic: str, stamp_ns: int, count: int = 1) -> None:
        """Count a message, or several of one instant."""
        self.counts[topic] = self.counts.get(topic, 0) + count
        if stamp_ns < self.start_ns:
            self.start_ns = stamp_ns
        if stamp_ns > self.end_ns:
            self.end_ns = stamp_ns

    def merge(self, other: Tally) -> None:
        """Add the messages of another tally."""
        for topic, count in other.counts.items():
            self.counts[topic] = self.counts.get(topic, 0) + count
        self.start_ns = min(self.start_ns, other.start_ns)
        self.end_ns = max(self.end_ns, other.end_ns)


def sum_of(tallies: Iterable[Tally]) -> Tally:
    """Return one tally of several."""
    total = Tally()
    for tally in tallies:
        total.merge(tally)
    return total
