"""How old a frame is at least, told by when there was nothing to read."""

from __future__ import annotations

import pytest

from reflex_ros.arm.arrival import ABSENT_NS, PACE_NS, SURE_NS, Arrivals
from reflex_ros.core.clock import MS, S

CYCLE = 5 * MS
T0 = 100 * S


class Bus:
    """A bus whose frames come every 5 ms, its reader, and what it says of each frame.

    ``held`` are stamps of the bus, ns, of frames that wait in the socket.
    """

    def __init__(self, *, offset_s=1.7e9, has_stamps=True):
        self.now, self.offset_s, self.has_stamps = T0, offset_s, has_stamps
        self.arrivals, self.held, self.next_ns = Arrivals(T0), [], T0 + CYCLE

    def wait(self, ns):
        """Let time pass; frames arrive meanwhile."""
        self.now += ns
        while self.next_ns <= self.now:
            self.held.append(self.next_ns)
            self.next_ns += CYCLE

    def read(self, most=10**6):
        """Read what is there; return ``(true time, said time)`` of each frame, steady ns."""
        found = []
        for at_ns in self.held[:most]:
            bus_s = at_ns / S + self.offset_s if self.has_stamps else 0.0
            found.append((at_ns, self.arrivals.stamp(self.now, bus_s)))
        del self.held[:most]
        if not self.held:
            self.arrivals.empty(self.now)
        return found

    def run(self, ns):
        """Read every 5 ms for a time."""
        found = []
        for _ in range(ns // CYCLE):
            self.wait(CYCLE)
            found += self.read()
        return found


@pytest.fixture
def bus():
    b = Bus()
    assert b.run(S) and b.run(CYCLE) == [(b.now, b.now)]
    return b


def flattered(found):
    """Return by how much at most a frame was said to be younger than it was, ns."""
    return max(said - true for true, said in found)


def test_a_reader_that_is_there_stamps_what_it_reads_with_now(bus):
    assert {said - true for true, said in bus.run(S)} == {0}


@pytest.mark.parametrize('stop_ms', [30, 90, 110, 600, 20_000])
def test_no_frame_that_waited_is_said_to_be_fresh(bus, stop_ms):
    stopped_ns = bus.now
    bus.wait(stop_ms * MS)
    found = bus.read()
    assert {said for _, said in found} == {stopped_ns} and flattered(found) <= 0


def test_a_short_absence_is_over_with_the_next_frame(bus):
    bus.wait(ABSENT_NS - CYCLE)
    bus.read()
    assert not bus.arrivals.is_behind
    assert {said - true for true, said in bus.run(50 * MS)} == {0}


def test_a_long_absence_is_over_when_the_stamps_have_kept_pace(bus):
    bus.wait(S)
    bus.read()
    found = bus.run(PACE_NS + CYCLE)
    assert bus.arrivals.is_behind is False and flattered(found) <= 0
    assert found[-1][0] == found[-1][1] == bus.now
    assert {said for _, said in found[:-1]} == {T0 + S + CYCLE}


@pytest.mark.parametrize('step_s', [-30.0, 0.3, 3600.0])
def test_a_step_of_the_clock_of_the_bus_delays_that_no_further(bus, step_s):
    bus.wait(S)
    bus.offset_s += step_s
    bus.read()
    bus.run(PACE_NS + CYCLE)
    assert not bus.arrivals.is_behind


def test_a_bus_without_stamps_is_believed_after_the_same_time():
    b = Bus(has_stamps=False)
    b.run(S)
    b.wait(S)
    b.read()
    b.run(PACE_NS + CYCLE)
    assert not b.arrivals.is_behind


def drained_in_parts(b):
    """Stop for ten seconds; a server hands on what it held, 50 ms of it every 5 ms."""
    b.wait(10 * S)
    held, b.held, found = b.held, [], []
    while held:
        parts, held = held[:10], held[10:]
        b.now += CYCLE
        b.held += parts
        found += b.read()  # and the socket is empty
    return found


def test_what_a_server_held_back_is_not_fresh_though_the_socket_was_empty(bus):
    found = drained_in_parts(bus)
    assert len(found) == 2000 and flattered(found) <= 0 and bus.arrivals.is_behind


def test_what_a_server_held_back_can_fail(bus, monkeypatch):
    monkeypatch.setattr(Arrivals, '_keeps_pace', lambda self, now_ns, bus_s: True)
    assert flattered(drained_in_parts(bus)) > S


def test_a_reader_that_never_catches_up_is_not_believed(bus):
    """It reads as fast as frames come, 0.3 s behind: the socket is never empty."""
    bus.wait(300 * MS)
    found = []
    for _ in range(200):
        bus.wait(CYCLE)
        found += bus.read(1)
    assert flattered(found) <= 0


def test_a_silent_bus_leaves_no_doubt(bus):
    """Nobody was away: the reader looked every 10 ms and found nothing."""
    for _ in range(100):
        bus.now += SURE_NS // 2
        bus.arrivals.empty(bus.now)
    bus.next_ns = bus.now + CYCLE
    assert bus.run(CYCLE) == [(bus.now, bus.now)]


def test_a_jump_of_the_stamps_by_jitter_does_not_count_as_a_backlog(bus):
    bus.wait(S)
    bus.read()
    for n in range(20):  # a server that is late by turns
        bus.wait(CYCLE)
        bus.arrivals.stamp(bus.now, (bus.now - n % 2 * 4 * MS) / S)
        bus.held.clear()
        bus.arrivals.empty(bus.now)
    assert not bus.arrivals.is_behind
