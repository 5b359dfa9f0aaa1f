"""How old a frame is at least, told by when there was nothing to read."""

from __future__ import annotations

import pytest

from reflex_ros.arm import arrival
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


@pytest.mark.parametrize('stop_ms', [110, 600, 20_000])
def test_no_frame_that_waited_is_said_to_be_fresh(bus, stop_ms):
    stopped_ns = bus.now
    bus.wait(stop_ms * MS)
    found = bus.read()
    assert {said for _, said in found} == {stopped_ns} and flattered(found) <= 0


@pytest.mark.parametrize('stop_ms', [30, 90])
def test_after_a_short_stop_each_frame_is_as_old_as_it_is(bus, stop_ms):
    """Never said to be younger, and older by no more than clocks may have drifted apart."""
    bus.wait(stop_ms * MS)
    found = bus.read()
    assert len(found) == stop_ms * MS // CYCLE
    assert all(0 <= true - said <= stop_ms * MS // 1000 for true, said in found)


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


# ---- reading takes time -----------------------------------------------------------------------

GAP = 333_000
"""Between two frames, ns: 3000 of them a second."""


class Busy:
    """A reader that needs time for each frame and is held up again and again.

    Args:
        read_ns: Time to read one frame.
        runs_ns: How long it runs between two stalls.
        stall_ns: How long it then does not.
        has_stamps: Whether frames have a time of the bus.
    """

    def __init__(self, read_ns, *, runs_ns, stall_ns, has_stamps=True):
        self.read_ns, self.runs_ns, self.stall_ns = read_ns, runs_ns, stall_ns
        self.has_stamps = has_stamps
        self.now, self.next_ns, self.stall_at_ns = T0, T0 + GAP, T0 + S // 2
        self.set_at_ns, self.set_by_s = 10**30, 0.0
        self.silent_at_ns, self.silent_ns = 10**30, 0
        self.arrivals = Arrivals(T0)
        self.oldest = self.oldest_true = self.flattered = 0
        self.lost = 0

    def run(self, ns):
        """Read for a time; note the age of the newest state before each frame, and of it."""
        end_ns, said, true = self.now + ns, self.now, self.now
        while self.now < end_ns:
            if self.next_ns > self.now:  # nothing is there
                self.arrivals.empty(self.now)
                self._pass(min(self.next_ns - self.now, SURE_NS // 2))
                continue
            self._pass(self.read_ns)
            self._note(said, true)
            true, self.next_ns = self.next_ns, self.next_ns + GAP
            if self.next_ns > self.silent_at_ns:
                self.next_ns, self.silent_at_ns = self.next_ns + self.silent_ns, 10**30
            said = self.arrivals.stamp(self.now, self._bus_s(true))
            self._note(said, true)
        return self

    def _pass(self, ns):
        self.now += ns
        if self.now >= self.stall_at_ns:
            self.now += self.stall_ns
            self.stall_at_ns = self.now + self.runs_ns

    def _note(self, said, true):
        self.oldest = max(self.oldest, self.now - said)
        self.oldest_true = max(self.oldest_true, self.now - true)
        self.flattered = max(self.flattered, said - true)
        self.lost += self.now - said > ABSENT_NS

    def _bus_s(self, at_ns):
        set_s = self.set_by_s if at_ns >= self.set_at_ns else 0.0
        return 1.7e9 + (at_ns - T0) / S + set_s if self.has_stamps else 0.0


def plant_the_age_of_the_whole_stall(monkeypatch):
    monkeypatch.setattr(Arrivals, '_told_by_bus', lambda self, now_ns, bus_ns, *, is_now: 0)


@pytest.mark.parametrize('read_us', [1, 60, 150])
@pytest.mark.parametrize('stall_ms', [30, 60, 90, 98])
def test_a_stall_is_as_long_as_it_is_though_what_it_left_takes_time_to_read(stall_ms, read_us):
    b = Busy(read_us * 1000, runs_ns=200 * MS, stall_ns=stall_ms * MS).run(2 * S)
    assert b.lost == 0 and not b.arrivals.is_behind
    assert stall_ms * MS <= b.oldest < b.oldest_true + MS // 2
    assert b.flattered <= SURE_NS


def test_a_stall_is_as_long_as_it_is_can_fail(monkeypatch):
    plant_the_age_of_the_whole_stall(monkeypatch)
    b = Busy(60_000, runs_ns=200 * MS, stall_ns=90 * MS).run(2 * S)
    assert b.lost > 100 and b.oldest > b.oldest_true + 50 * MS


def test_a_reader_that_is_held_up_all_the_time_says_true_ages():
    """12 ms of every 67 are just too few: it never finds the socket empty."""
    b = Busy(60_000, runs_ns=12 * MS, stall_ns=55 * MS).run(3 * S)
    assert b.lost == 0 and b.oldest < 80 * MS and b.flattered <= SURE_NS


def test_a_reader_that_is_held_up_all_the_time_can_fail(monkeypatch):
    plant_the_age_of_the_whole_stall(monkeypatch)
    b = Busy(60_000, runs_ns=12 * MS, stall_ns=55 * MS).run(3 * S)
    assert b.lost > 1000 and b.oldest > 2 * S and b.oldest_true < 80 * MS


def test_a_reader_that_is_too_slow_is_lost_and_no_age_is_flattered():
    b = Busy(60_000, runs_ns=8 * MS, stall_ns=55 * MS).run(3 * S)
    assert b.lost and b.oldest_true > S // 2 and b.flattered <= SURE_NS


def test_a_stall_of_more_than_the_timeout_is_lost():
    b = Busy(60_000, runs_ns=400 * MS, stall_ns=150 * MS).run(2 * S)
    assert b.lost and b.flattered <= SURE_NS and b.oldest < 150 * MS + 3 * PACE_NS


def always_behind(rate, seconds=30):
    """Read as fast as frames come, 60 ms late and never at the end; return true and said ages."""
    b = Bus()
    b.run(S)
    b.wait(60 * MS)
    ages = []
    for _ in range(seconds * S // CYCLE):
        b.wait(CYCLE)
        true = b.held.pop(0)
        said = b.arrivals.stamp(b.now, b.offset_s + T0 / S + (true - T0) / S * rate)
        ages.append((b.now - true, b.now - said))
    return ages


@pytest.mark.parametrize('rate', [1 - 1e-4, 1.0, 1 + 1e-4])
def test_a_reader_that_stays_a_little_behind_says_its_bounded_true_age(rate):
    for true, said in always_behind(rate)[1:]:
        assert true <= said + MS // 2 and said <= true + 20 * MS


def test_a_reader_that_stays_behind_can_fail(monkeypatch):
    monkeypatch.setattr(arrival, '_DRIFT', 10**9)
    true, said = always_behind(1 + 1e-4)[-1]
    assert true > said + 2 * MS


def set_in_a_stall(by_s):
    """Set the clock of the bus in the middle of a stall of 90 ms; return the reader after it."""
    b = Busy(60_000, runs_ns=10 * S, stall_ns=90 * MS)
    b.set_at_ns, b.set_by_s = b.stall_at_ns + 45 * MS, by_s
    return b.run(S)


@pytest.mark.parametrize(('by_s', 'most_ms'), [
    (-30.0, 1), (-0.05, 1), (-0.004, 1), (0.03, 31), (0.045, 46), (0.055, 1), (0.08, 1), (0.3, 1),
    (3600.0, 1)])
def test_a_clock_of_the_bus_that_is_set_within_a_stall_flatters_little(by_s, most_ms):
    assert set_in_a_stall(by_s).flattered <= most_ms * MS


def test_a_clock_of_the_bus_that_is_set_can_fail(monkeypatch):
    monkeypatch.setattr(arrival, '_JUMPS_NS', (-S, 10**4 * S))
    assert set_in_a_stall(0.08).flattered > 50 * MS


def test_a_clock_of_the_bus_that_was_set_is_relied_on_again_at_the_next_stall():
    b = set_in_a_stall(-0.3)
    b.oldest = b.lost = 0
    b.stall_at_ns = b.now + S // 5
    b.run(S)
    assert b.lost == 0 and b.oldest < 91 * MS


def test_a_bus_that_is_silent_within_a_stall_makes_it_no_longer():
    """Its server was held up as well."""
    b = Busy(60_000, runs_ns=10 * S, stall_ns=95 * MS)
    b.silent_at_ns, b.silent_ns = b.stall_at_ns + 10 * MS, 40 * MS
    b.run(S)
    assert b.lost == 0 and b.oldest < 96 * MS


def test_a_bus_that_is_silent_within_a_stall_can_fail(monkeypatch):
    monkeypatch.setattr(arrival, '_JUMPS_NS', (-5 * MS, 20 * MS))
    b = Busy(60_000, runs_ns=10 * S, stall_ns=95 * MS)
    b.silent_at_ns, b.silent_ns = b.stall_at_ns + 10 * MS, 40 * MS
    assert b.run(S).oldest > 96 * MS


def test_without_stamps_a_stall_counts_with_its_reading_and_nothing_is_flattered():
    b = Busy(60_000, runs_ns=200 * MS, stall_ns=60 * MS, has_stamps=False).run(2 * S)
    assert b.flattered <= SURE_NS and 60 * MS < b.oldest < 80 * MS


def passed_on_late(b):
    """Have a server pass a frame on 25 ms late before a stall; return the frames of that."""
    held = []
    for _ in range(6):
        b.wait(CYCLE)
        held += b.held
        b.held = []
        b.arrivals.empty(b.now)
    b.held = held[:1]
    b.read()
    b.wait(60 * MS)
    return b.read()


def test_a_frame_that_a_server_passed_on_late_does_not_make_a_stall_look_shorter(bus):
    assert flattered(passed_on_late(bus)) <= MS // 2


def test_a_frame_that_a_server_passed_on_late_can_fail(bus, monkeypatch):
    monkeypatch.setattr(arrival, '_FORGET', 1)
    assert flattered(passed_on_late(bus)) > SURE_NS
