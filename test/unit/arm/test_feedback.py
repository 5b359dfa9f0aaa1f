"""Frames become one coherent view."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest

from reflex_ros.arm import wire
from reflex_ros.arm.feedback import FeedbackBook
from reflex_ros.core.clock import MS, S


def pair(can_id, first, second):
    return wire.Frame(can_id, struct.pack('>ii', first, second))


def give(book, frame, ms):
    book.on_frame(frame, mono_ns=int(ms * MS) + 1, stamp_s=1.7e9 + ms * 1e-3)


def cycle(book, value, ms, *, skip=()):
    for can_id in (0x2A5, 0x2A6, 0x2A7):
        if can_id not in skip:
            give(book, pair(can_id, value, value), ms)


def test_complete_cycle_is_read_with_its_receive_time():
    book = FeedbackBook()
    cycle(book, 90_000, 5)
    view = book.view()
    assert view.joints_mdeg == (90_000,) * 6 and view.joints_ns == 5 * MS + 1


def test_nothing_is_read_before_all_parts_arrived():
    book = FeedbackBook()
    cycle(book, 1, 5, skip=(0x2A7,))
    assert book.view().joints_ns == 0
    assert np.isnan(book.view().position).all()


@pytest.mark.parametrize('lost', [0x2A5, 0x2A6, 0x2A7])
def test_lost_part_never_mixes_two_cycles(lost):
    book = FeedbackBook()
    cycle(book, 1, 0)
    cycle(book, 2, 5, skip=(lost,))
    for value, ms in ((3, 10), (4, 15)):
        cycle(book, value, ms)
        assert len(set(book.view().joints_mdeg)) == 1
    assert book.view().joints_mdeg == (4,) * 6 and book.view().incoherent_sets >= 1


@pytest.mark.parametrize('same', [True, False])
def test_a_frame_that_the_bus_repeats_changes_nothing_but_another_value_does(same):
    book = FeedbackBook()
    for can_id in (0x2A5, 0x2A6, 0x2A7):
        give(book, pair(can_id, 7, 7), 5)
        if can_id != 0x2A7:
            give(book, pair(can_id, 7 if same else 8, 7), 5)
    assert (book.view().joints_ns > 0) is same
    assert (book.view().incoherent_sets == 0) is same


def test_an_angle_that_no_joint_reaches_is_not_believed():
    book = FeedbackBook()
    cycle(book, 1_000, 0)
    for value in (360_001, -2**31, 2**31 - 1):
        cycle(book, value, 5)
    view = book.view()
    assert (view.joints_mdeg, view.joints_ns, view.incoherent_sets) == ((1_000,) * 6, 1, 3)


def test_parts_in_another_order_are_still_one_cycle():
    book = FeedbackBook()
    for can_id in (0x2A7, 0x2A5, 0x2A6):
        give(book, pair(can_id, 7, 7), 5)
    assert book.view().joints_mdeg == (7,) * 6


def test_short_frame_is_counted_and_changes_nothing():
    book = FeedbackBook()
    cycle(book, 1, 0)
    give(book, wire.Frame(0x2A5, b'\x01\x02'), 5)
    give(book, wire.Frame(0x2A1, b''), 5)
    assert book.view().decode_errors == 2 and book.view().joints_mdeg == (1,) * 6


def test_position_velocity_and_effort_are_si():
    book = FeedbackBook()
    cycle(book, 180_000, 0)
    give(book, wire.Frame(0x2A8, struct.pack('>ihBB', 50_000, 0, 0x40, 0)), 0)
    give(book, wire.Frame(0x252, struct.pack('>hhi', -500, 1000, 0)), 0)
    view = book.view()
    assert view.position == pytest.approx([math.pi] * 6 + [0.05])
    assert view.velocity[1] == pytest.approx(-0.5) and np.isnan(view.velocity[0])
    assert view.effort(is_old_scale=False)[1] == pytest.approx(1.18125)
    assert view.enabled == (False,) * 6 + (True,)


def grip(book, bits, ms):
    give(book, wire.Frame(0x2A8, struct.pack('>ihBB', 35_000, 0, bits, 0)), ms)


@pytest.mark.parametrize('lost', [wire.ENABLED_BIT, wire.HOMED_BIT])
def test_what_the_gripper_loses_for_one_frame_is_kept(lost):
    book = FeedbackBook()
    grip(book, 0xC0, 0)
    book.watch_gripper()
    assert book.view().gripper_lost == 0
    grip(book, 0xC0 & ~lost, 5)
    grip(book, 0xC0, 10)
    assert book.view().gripper_lost == lost
    book.watch_gripper()
    assert book.view().gripper_lost == 0, 'enabled anew'


def test_what_the_gripper_never_had_is_not_lost():
    book = FeedbackBook()
    book.watch_gripper()
    grip(book, wire.ENABLED_BIT, 0)
    book.watch_gripper()
    grip(book, wire.ENABLED_BIT, 5)
    assert book.view().gripper_lost == 0, 'some grippers never report a zero'


def test_gripper_speed_is_the_slope_of_its_opening():
    book = FeedbackBook()
    for k in range(30):
        give(book, wire.Frame(0x2A8, struct.pack('>ihBB', 500 * k, 0, 0, 0)), 5 * k)
    assert book.view().gripper_speed_m_s == pytest.approx(0.1)


def test_rates_are_per_id_and_fall_to_zero_in_silence():
    book = FeedbackBook()
    for k in range(400):
        give(book, wire.Frame(0x2A1, bytes(8)), 5 * k)
    rates = book.rates_hz(int(2 * S))
    assert rates[0x2A1] == pytest.approx(200, rel=0.02)
    assert book.rates_hz(20 * S)[0x2A1] < 6


def test_silent_ids_are_those_not_heard_for_a_second():
    book = FeedbackBook()
    assert book.silent_ids(0) == wire.CYCLIC_IDS
    for can_id in wire.CYCLIC_IDS:
        give(book, wire.Frame(can_id, bytes(8)), 0)
    give(book, wire.Frame(0x2A1, bytes(8)), 500)
    assert book.silent_ids(S) == ()
    assert set(book.silent_ids(S + 1)) == {*wire.CYCLIC_IDS} - {0x2A1}


def test_answers_are_forgotten_on_request():
    book = FeedbackBook()
    give(book, wire.Frame(0x473, struct.pack('>BhhHB', 2, 1800, 0, 3000, 0)), 0)
    give(book, wire.Frame(0x47C, bytes([2, 1, 0xF4, 0, 0, 0, 0, 0])), 0)
    give(book, wire.Frame(0x47E, bytes([100, 70, 1, 0, 0, 0, 0, 0])), 0)
    give(book, wire.Frame(0x4AF, b'S-V1.8-3'), 0)
    view = book.view()
    assert view.angle_limits[2].upper_rad == pytest.approx(math.pi)
    assert view.gripper_range_m == pytest.approx(0.07) and view.firmware == 'S-V1.8-3'
    book.forget_answers()
    view = book.view()
    assert not view.angle_limits and not view.acceleration_limits and not view.firmware
    assert view.gripper_range_m is None


def test_cleared_book_is_as_new():
    book = FeedbackBook()
    cycle(book, 1, 0)
    book.on_foreign(0x155, mono_ns=7)
    book.clear()
    assert book.view() == FeedbackBook().view() and book.rates_hz(9 * S) == {}


def test_view_does_not_change_after_it_was_taken():
    book = FeedbackBook()
    cycle(book, 1, 0)
    view = book.view()
    cycle(book, 2, 5)
    assert view.joints_mdeg == (1,) * 6


def test_foreign_and_leader_frames_are_noted():
    book = FeedbackBook()
    book.on_foreign(0x155, mono_ns=7)
    give(book, wire.Frame(0x3A1, bytes(8)), 9)
    view = book.view()
    assert (view.foreign_ns, view.foreign_id, view.foreign_frames) == (7, 0x155, 1)
    assert view.leader_ns == 9 * MS + 1


CHANGES = {
    'a frame': lambda book: book.on_frame(
        wire.Frame(wire.STATUS, bytes(8)), mono_ns=7, stamp_s=0.0),
    'a foreign command': lambda book: book.on_foreign(0x155, mono_ns=7),
    'answers forgotten': FeedbackBook.forget_answers,
    'the gripper watched': FeedbackBook.watch_gripper,
    'cleared': FeedbackBook.clear,
}


def kept_views(book: FeedbackBook) -> list[str]:
    """Return the changes after which the view is still the one from before."""
    kept = []
    for name, change in CHANGES.items():
        before = book.view()
        assert book.view() is before
        change(book)
        if book.view() is before:
            kept.append(name)
    return kept


def test_a_view_is_kept_until_something_changes():
    assert kept_views(FeedbackBook()) == []


def test_a_view_that_is_kept_too_long_can_fail():
    class Forgetful(FeedbackBook):
        def view(self):
            newest = super().view()
            return self.__dict__.setdefault('first', newest)

    assert kept_views(Forgetful()) == list(CHANGES)
