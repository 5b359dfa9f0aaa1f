"""When a frame arrived at the latest, told by what was read, not by when it was read.

A process that was stopped (a debugger, a suspended container, a machine that swaps) finds in its
socket what came meanwhile. Stamped as it is read, such a frame would look fresh and the state of
a while ago would pass for that of now. One thing is sure of a frame: it came after the last
instant at which there was nothing to read. Where that is long ago, that instant is its time.

After a long absence a server may hold more than fits into the socket, so that this is empty for
moments while old frames still follow. What is held comes faster than it happened: frames count
as fresh again once the stamps of the bus keep pace with the steady clock.
"""

from __future__ import annotations

from reflex_ros.core.clock import MS, S

SURE_NS = 20 * MS
"""A frame that came after an instant less than this ago came now. Reads wait for half of it."""
ABSENT_NS = 100 * MS
"""After a longer absence of the reader nothing is fresh before the stamps keep pace."""
PACE_NS = 50 * MS
"""So long must they keep pace."""
_FASTER, _JITTER_S = 1.2, 0.005


class Arrivals:
    """Tells the receive time of frames, on the thread that reads them.

    Args:
        now_ns: Steady time of the first read.
    """

    def __init__(self, now_ns: int) -> None:
        self._empty_ns = self._since_ns = now_ns
        self._is_behind = False
        self._pace_ns, self._pace_s = 0, 0.0

    @property
    def is_behind(self) -> bool:
        """Return whether frames still come that may be old, after a long absence."""
        return self._is_behind

    def empty(self, now_ns: int) -> None:
        """Note that nothing was there to read.

        Args:
            now_ns: Steady time before it was found out.
        """
        self._look(now_ns - self._empty_ns)
        self._empty_ns = now_ns

    def stamp(self, now_ns: int, bus_s: float) -> int:
        """Return the steady receive time of a frame: never later than it arrived, but for 20 ms.

        Args:
            now_ns: Steady time at which it was read.
            bus_s: Its time on the bus, s; 0 if it has none. Only differences are used.
        """
        absent_ns = now_ns - self._empty_ns
        self._look(absent_ns)
        is_sure = absent_ns <= SURE_NS
        if self._is_behind:
            self._is_behind = not (is_sure and self._keeps_pace(now_ns, bus_s))
        if self._is_behind:
            return self._since_ns
        return now_ns if is_sure else self._empty_ns

    def _look(self, absent_ns: int) -> None:
        """Notice that nobody read for long: the last sure instant stays that before it."""
        if absent_ns > ABSENT_NS and not self._is_behind:
            self._is_behind, self._since_ns, self._pace_ns = True, self._empty_ns, 0

    def _keeps_pace(self, now_ns: int, bus_s: float) -> bool:
        passed_s, bus_passed_s = (now_ns - self._pace_ns) / S, bus_s - self._pace_s
        is_kept = -_JITTER_S <= bus_passed_s <= _FASTER * passed_s + _JITTER_S
        if not self._pace_ns or not is_kept:
            self._pace_ns, self._pace_s = now_ns, bus_s
            return False
        return now_ns - self._pace_ns >= PACE_NS
