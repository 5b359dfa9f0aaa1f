"""The event queue of the virtual wiring."""

from __future__ import annotations

import pytest

from reflex_ros.core.clock import MS, ManualClock
from reflex_ros.core.timeline import Timeline


@pytest.fixture
def clock():
    return ManualClock(mono_ns=100 * MS)


@pytest.fixture
def timeline(clock):
    return Timeline(clock)


def test_calls_come_in_order_of_instant_then_priority_then_insertion(clock, timeline):
    seen = []
    for name, at_ms, priority in [
        ('d', 130, 0), ('c', 120, 1), ('a', 120, 0), ('b', 120, 0), ('first', 110, 9)
    ]:
        timeline.at(at_ms * MS, lambda name=name: seen.append((name, clock.mono_ns() // MS)),
                    priority=priority)
    assert timeline.run_until(200 * MS) == 5
    assert seen == [('first', 110), ('a', 120), ('b', 120), ('c', 120), ('d', 130)]


def test_clock_ends_where_the_run_ends(clock, timeline):
    timeline.at(150 * MS, lambda: None)
    timeline.run_until(140 * MS)
    assert clock.mono_ns() == 140 * MS
    assert timeline.next_ns == 150 * MS
    assert len(timeline) == 1


def test_event_at_the_end_of_the_run_is_called(timeline):
    seen = []
    timeline.at(150 * MS, lambda: seen.append(1))
    timeline.run_until(150 * MS)
    assert seen == [1]


def test_called_function_may_schedule_at_the_present_instant(clock, timeline):
    seen = []

    def again():
        seen.append(clock.mono_ns() // MS)
        if len(seen) < 3:
            timeline.at(clock.mono_ns(), again)

    timeline.at(120 * MS, again)
    timeline.run_until(130 * MS)
    assert seen == [120, 120, 120]


def test_event_in_the_past_is_refused(timeline):
    with pytest.raises(ValueError, match='in the past: got -1'):
        timeline.at(99 * MS, lambda: None)


def test_empty_timeline_has_no_next_instant(timeline):
    assert timeline.next_ns is None
    assert timeline.run_until(500 * MS) == 0
