"""When a frame arrived at the latest, told by what was read, not by when it was read.

A process that was stopped (a debugger, a suspended container, a machine that swaps) finds in its
socket what came meanwhile. Stamped as it is read, such a frame would look fresh and the state of
a while ago would pass for that of now. One thing is sure of a frame: it came after the last
instant at which there was nothing to read, and after the frame before it. How long after tell
the stamps of the bus, compared with those of frames that were read as they came: so the age of
what is read after a pause of some ms is its own and not that of the pause with all its reading.

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
_JUMPS_NS = (-5 * MS, 50 * MS)
"""From one stamp to the next; beyond, the clock of the bus may have been set. NTP sets by more
than 128 ms and slews what is less; a bus whose server is busy is silent for some tens of ms."""
_DRIFT = 2000
"""Clocks part by less than one in this many (500 ppm, what NTP slews by)."""
_FORGET = 100
"""The least delay is forgotten by one in this many of the time."""


class Arrivals:
    """Tells the receive time of frames, on the thread that reads them.

    Args:
        now_ns: Steady time of the first read, or before: nothing waited then.
    """

    def __init__(self, now_ns: int) -> None:
        self._empty_ns = self._sure_ns = now_ns
        self._is_behind = False
        self._pace_ns, self._pace_s = 0, 0.0
        self._bus_ns = self._lead_at_ns = 0
        self._lead_ns: int | None = None

    @property
    def is_behind(self) -> bool:
        """Return whether frames still come that may be old, after a long absence."""
        return self._is_behind

    def empty(self, now_ns: int) -> None:
        """Note that nothing was there to read.

        Args:
            now_ns: Steady time before it was found out.
        """
        self._look(now_ns)
        self._empty_ns = now_ns
        if not self._is_behind:
            self._sure_ns = now_ns

    def stamp(self, now_ns: int, bus_s: float) -> int:
        """Return the steady receive time of a frame: never later than it arrived, but for 20 ms.

        If the clock of the bus is set by 5 to 50 ms while frames wait, it may be off by as much.

        Args:
            now_ns: Steady time at which it was read.
            bus_s: Its time on the bus, s; 0 if it has none. Only differences are used.
        """
        is_now = now_ns - self._empty_ns <= SURE_NS
        if is_now and not self._is_behind and now_ns - self._sure_ns <= ABSENT_NS:
            self._learn(now_ns, round(bus_s * S), is_now=True)  # nearly every frame
            self._sure_ns = now_ns
            return now_ns
        self._look(now_ns)
        if self._is_behind:
            self._is_behind = not (is_now and self._keeps_pace(now_ns, bus_s))
        if not self._is_behind:
            told_ns = self._told_by_bus(now_ns, round(bus_s * S), is_now=is_now)
            self._sure_ns = now_ns if is_now else max(self._sure_ns, told_ns)
        return self._sure_ns

    def _look(self, now_ns: int) -> None:
        """Notice that nobody read for long: the last sure instant stays that before it."""
        if now_ns - self._sure_ns > ABSENT_NS and not self._is_behind:
            self._is_behind, self._pace_ns, self._lead_ns = True, 0, None

    def _told_by_bus(self, now_ns: int, bus_ns: int, *, is_now: bool) -> int:
        """Return when a frame came by its stamp and the least delay of those read at once."""
        self._learn(now_ns, bus_ns, is_now=is_now)
        if self._lead_ns is None:
            return 0
        return bus_ns + self._lead_ns - (now_ns - self._lead_at_ns) // _DRIFT

    def _learn(self, now_ns: int, bus_ns: int, *, is_now: bool) -> None:
        """Compare the stamp of a frame with the time at which it was read."""
        jump_ns, self._bus_ns = bus_ns - self._bus_ns, bus_ns
        known_ns, lead_ns = self._lead_ns, now_ns - bus_ns
        if known_ns is not None and _JUMPS_NS[0] <= jump_ns <= _JUMPS_NS[1]:
            if is_now:
                known_ns += (now_ns - self._lead_at_ns) // _FORGET
            self._lead_ns = min(lead_ns, known_ns)
        else:
            self._lead_ns = lead_ns if is_now else None
        if is_now:
            self._lead_at_ns = now_ns

    def _keeps_pace(self, now_ns: int, bus_s: float) -> bool:
        passed_s, bus_passed_s = (now_ns - self._pace_ns) / S, bus_s - self._pace_s
        is_kept = -_JITTER_S <= bus_passed_s <= _FASTER * passed_s + _JITTER_S
        if not self._pace_ns or not is_kept:
            self._pace_ns, self._pace_s = now_ns, bus_s
            return False
        return now_ns - self._pace_ns >= PACE_NS
