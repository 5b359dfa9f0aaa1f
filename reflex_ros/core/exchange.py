"""How far another machine's clock is ahead of ours, and how well the link to it answers.

We send a request with our time, the other machine answers with its own, and we note when that
arrives. Its clock was read somewhere between, so half the round trip bounds the error, whatever
the two ways took. The quickest of the last exchanges knows best. Its time is kept against our
steady clock, so a step of our ROS time makes no exchange wrong.

Silence and loss are counted in requests: while we pause we neither ask nor read, and an answer
that we were late to read was not late.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from reflex_ros.core.cause import LinkFacts
from reflex_ros.core.clock import MS, Instant, S

PERIOD_NS = 50 * MS
"""Time between two requests."""
WINDOW = 100
"""Exchanges that are remembered: five seconds, in which no clock drifts by a millisecond."""
SILENT = 3
"""Requests since the newest answer from which on a machine is not reached: two stayed open."""
LOST = 10
"""A request without an answer when so many more have left is lost: half a second."""
FORGOTTEN = 60 * S // PERIOD_NS
"""Requests in a row without an answer after which a link that nobody needs is forgotten."""
JUDGED = 40
"""Requests whose fate tells how much the link loses."""
LOSSY = 0.2
"""Share of lost exchanges from which on a link explains what is missing."""
STEP_NS = 1 * MS
"""Two exchanges that contradict each other by more have a step of the other clock in between."""
PAIR_NS = 5 * MS
"""A pair of our clocks that differs by more is after a step, or has a pause in it."""


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
        self._ours = OurClock()
        self.forget()

    def forget(self) -> None:
        """Begin as if nobody had ever answered."""
        self._open: dict[int, tuple[int, Instant]] = {}
        self._count = 0
        self._fates: deque[bool] = deque(maxlen=JUDGED)
        self._samples: deque[Ahead] = deque(maxlen=WINDOW)
        self._facts: LinkFacts | None = None
        self._unheard = 0

    def may_ask(self, *, has_listener: bool, is_needed: bool) -> bool:
        """Return whether to ask; a link that is no longer one is forgotten.

        Args:
            has_listener: Whether anybody in the graph takes requests. In a long cut nobody does.
            is_needed: Whether encoder and policy live there: then it is never forgotten.
        """
        is_gone = not has_listener or self._unheard >= FORGOTTEN
        if is_gone and not is_needed and self._facts is not None:
            self.forget()
        return has_listener or self._facts is not None

    def request(self, now: Instant) -> None:
        """Note a request that leaves with the stamp of ``now``."""
        self._ours.see(now)
        self._unheard += 1
        self._count += 1
        self._open[now.stamp_ns] = self._count, now
        self._expire()

    def answer(self, asked_stamp_ns: int, their_stamp_ns: int, now: Instant) -> bool:
        """Take an answer; return whether it belongs to a request that still waits for one."""
        self._ours.see(now)
        if asked_stamp_ns not in self._open:
            return False
        _, asked = self._open.pop(asked_stamp_ns)
        self._fates.append(True)
        self._hear(now.mono_ns)
        middle_ns = (asked.mono_ns + now.mono_ns) // 2
        bound_ns = (now.mono_ns - asked.mono_ns + 1) // 2
        self._learn(Ahead(their_stamp_ns - middle_ns, bound_ns))
        return True

    @property
    def ahead(self) -> Ahead | None:
        """What the quickest of the last exchanges says, None before the first."""
        best = min(self._samples, key=lambda sample: sample.bound_ns, default=None)
        if best is None:
            return None
        return replace(best, ahead_ns=best.ahead_ns - self._ours.offset_ns)

    @property
    def loss(self) -> float:
        """Share of the last requests that got no answer in time, 0 before the first."""
        return self._fates.count(False) / len(self._fates) if self._fates else 0.0

    @property
    def facts(self) -> LinkFacts | None:
        """What a tick has to know, None before the first answer."""
        if self._facts is None:
            return None
        return replace(self._facts, is_lossy=self.loss >= LOSSY,
                       is_silent=self._unheard >= SILENT)

    def _hear(self, now_ns: int) -> None:
        back_ns = self._facts.back_ns if self._facts is not None else 0
        is_back = self._facts is not None and self._unheard >= SILENT
        self._facts = LinkFacts(now_ns, now_ns if is_back else back_ns)
        self._unheard = 0

    def _expire(self) -> None:
        for stamp_ns, (number, _) in [*self._open.items()]:
            if self._count - number < LOST:
                return  # they are kept in the order in which they were sent
            del self._open[stamp_ns]
            if self._facts is not None:  # without any answer ever, nobody was asked
                self._fates.append(False)

    def _learn(self, new: Ahead) -> None:
        """Keep their time minus our steady one; what contradicts it is from before a step."""
        if any(abs(new.ahead_ns - old.ahead_ns) > new.bound_ns + old.bound_ns + STEP_NS
               for old in self._samples):
            self._samples.clear()
        self._samples.append(new)


class OurClock:
    """Our ROS time minus our steady one. Not thread-safe."""

    def __init__(self) -> None:
        self.offset_ns = 0
        self._seen_ns: int | None = None

    def see(self, now: Instant) -> None:
        """Take a pair; one that differs counts when the next agrees: it may span a pause."""
        seen_ns = now.stamp_ns - now.mono_ns
        last_ns, self._seen_ns = self._seen_ns, seen_ns
        if last_ns is None or any(
                abs(seen_ns - known_ns) <= PAIR_NS for known_ns in (self.offset_ns, last_ns)):
            self.offset_ns = seen_ns
