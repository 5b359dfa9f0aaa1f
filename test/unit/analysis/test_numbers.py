from __future__ import annotations

import pytest

from reflex_ros.analysis.numbers import Numbers, is_count, is_possible, spell


def counted(*numbers):
    log = Numbers()
    for number in numbers:
        log.add(number)
    return log


def test_skipped_numbers_are_missing():
    assert counted(3, 4, 7, 8, 10).gaps == [(5, 6), (9, 9)]
    assert counted(3, 4, 7, 8, 10).missing == 3


def test_without_a_gap_nothing_is_missing():
    assert counted(5, 6, 7).missing == 0
    assert Numbers().missing == 0


def test_a_restarted_publisher_counts_from_one():
    log = counted(8, 9, 1, 2)
    assert (log.restarts, log.gaps) == (1, [])
    assert counted(8, 9, 3).gaps == [(1, 2)]


def test_the_same_number_twice_is_a_duplicate_and_no_loss():
    log = counted(1, 2, 2, 3)
    assert (log.duplicates, log.restarts, log.missing) == (1, 0, 0)


def test_what_the_recorder_wrote_bounds_both_ends():
    log = counted(4, 5)
    log.bound(2, 8)
    assert log.gaps == [(2, 3), (6, 8)]
    empty = Numbers()
    empty.bound(1, 2)
    assert empty.gaps == [(1, 2)]


def test_a_lost_tail_before_the_next_bag_is_counted_once():
    log = counted(1, 2)
    log.bound(1, 5)  # 3, 4 and 5 were written and are gone
    for number in (8, 9):  # 6 and 7 came while the recorder was down
        log.add(number)
    log.bound(8, 9)
    assert log.gaps == [(3, 5), (6, 7)]
    assert log.missing == 5


def test_a_lost_head_of_the_next_bag_is_counted_once():
    log = counted(1, 2)
    log.bound(1, 2)
    log.add(5)
    log.bound(3, 5)
    assert log.gaps == [(3, 4)]


def test_a_bag_of_which_nothing_is_left_is_missing_once():
    log = counted(1, 2)
    log.bound(1, 2)
    log.bound(4, 6)
    log.add(7)
    log.bound(7, 7)
    assert log.gaps == [(3, 6)]
    first = Numbers()
    first.bound(1, 3)
    first.add(4)
    first.bound(4, 4)
    assert first.gaps == [(1, 3)]


def test_a_publisher_that_was_restarted_between_two_bags_counts_from_one():
    log = counted(10, 11)
    log.bound(10, 11)
    for number in (1, 2):
        log.add(number)
    log.bound(1, 3)
    assert (log.restarts, log.gaps) == (1, [(3, 3)])
    again = counted(10, 11)
    again.bound(10, 11)
    again.bound(1, 2)
    assert (again.restarts, again.gaps) == (1, [(1, 2)])


def test_ranges_in_words_are_cut():
    assert spell([(1, 1), (3, 5)]) == '1, 3-5'
    assert spell([(i, i) for i in range(1, 40, 2)], limit=2) == '1, 3 and 18 more runs'


LOG = {'messages': 9, 'missing': 1, 'restarts': 0, 'first': 3, 'last': 12}


@pytest.mark.parametrize(('changed', 'is_believed'), [
    ({}, True), ({'restarts': 1, 'last': 2}, True), ({'last': 10**15}, False),
    ({'missing': 10**15, 'last': 10**15 + 11}, False), ({'first': -4}, False),
    ({'messages': True}, False), ({'last': 2}, False), ({'missing': '1'}, False),
])
def test_counts_of_the_recorder_that_contradict_themselves_are_not_believed(changed, is_believed):
    assert is_possible({**LOG, **changed}) == is_believed


def test_a_count_is_a_number_that_a_bag_can_hold():
    assert [is_count(n) for n in (0, 5, -1, 1.0, True, '5', 10**12)] == [
        True, True, False, False, False, False, False]
