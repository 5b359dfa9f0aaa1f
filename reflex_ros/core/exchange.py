"""How far another machine's clock is ahead of ours, and how well the link to it answers.

We send a request with our time, the other machine answers with its own, and we note when that
arrives. Its clock was read somewhere between, so half the round trip bounds the error, whatever
the two ways took. The quickest of the last exchanges knows best.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from reflex_ros.core.cause import LINK_SILENT_NS, LinkFacts
from reflex_ros.core.clock import MS, Instant

PERIOD_NS = 50 * MS
"""Time between two requests: silence is noticed after the loss of two."""
WINDOW = 100
"""Exchanges that are remembered: five seconds, in which no clock drifts by a millisecond."""
LOST_NS = 500 * MS
"""A request without an answer for so long is lost."""
JUDGED = 40
"""Requests whose fate tells how much the link loses."""
LOSSY = 0.2
"""Share of lost exchanges from which on a link explains what is missing."""
STEP_NS = 1 * MS
"""A round trip whose two clocks differ by more was read across a step of our clock."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """How far another clock is ahead.

    Attributes:
        ahead_ns: Their ROS time minus ours, ns.
        bound_ns: Largest error of it: half the round trip.
    """

    ahead_ns: int
    bound_ns: int


class Exchange:
    """Bookkeeping of requests and answers. Not thread-safe."""

    def __init__(self) -> None:
        self._open: dict[int, Instant] = {}
        self._fates: deque[bool] = deque(maxlen=JUDGED)
        self._samples: deque[Ahead] = deque(maxlen=WINDOW)
        self._facts: LinkFacts | None = None

    def request(self, now: Instant) -> None:
        """Note a request that leaves with the stamp of ``now``."""
        self._expire(now.mono_ns)
        self._open[now.stamp_ns] = now

    def answer(self, asked_stamp_ns: int, their_stamp_ns: int, now: Instant) -> bool:
        """Take an answer; return whether it belongs to a request that still waits for one."""
        self._expire(now.mono_ns)
        asked = self._open.pop(asked_stamp_ns, None)
        if asked is None:
            return False
        self._fates.append(True)
        self._hear(now.mono_ns)
        round_trip_ns = now.mono_ns - asked.mono_ns
        if abs(now.stamp_ns - asked.stamp_ns - round_trip_ns) <= STEP_NS:
            middle_ns = (asked.stamp_ns + now.stamp_ns) // 2
            self._samples.append(Ahead(their_stamp_ns - middle_ns, (round_trip_ns + 1) // 2))
        return True

    @property
    def ahead(self) -> Ahead | None:
        """What the quickest of the last exchanges says, None before the first."""
        return min(self._samples, key=lambda sample: sample.bound_ns, default=None)

    @property
    def loss(self) -> float:
        """Share of the last requests that got no answer in time, 0 before the first."""
        return self._fates.count(False) / len(self._fates) if self._fates else 0.0

    def facts(self, now_ns: int) -> LinkFacts | None:
        """Return what a tick has to know, None before the first answer."""
        self._expire(now_ns)
        if self._facts is None:
            return None
        return replace(self._facts, is_lossy=self.loss >= LOSSY)

    def _hear(self, now_ns: int) -> None:
        before = self._facts
        is_back = before is not None and now_ns - before.answered_ns > LINK_SILENT_NS
        back_ns = now_ns if is_back else before.back_ns if before is not None else 0
        self._facts = LinkFacts(now_ns, back_ns)

    def _expire(self, now_ns: int) -> None:
        for stamp_ns, asked in [*self._open.items()]:
            if now_ns - asked.mono_ns <= LOST_NS:
                return  # they are kept in the order in which they were sent
            del self._open[stamp_ns]
            if self._facts is not None:  # without any answer ever, nobody was asked
                self._fates.append(False)
