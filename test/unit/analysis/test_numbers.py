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


def stepped_back(count, *, at, by, first=1):
    """Return numbers as a bag gives them whose receipts step back by so many messages."""
    numbers = range(first, first + count)
    receipts = {n: n - (by if n >= at else 0) for n in numbers}
    return sorted(numbers, key=lambda n: receipts[n])


@pytest.mark.parametrize(('at', 'by', 'first'), [
    (150, 100, 1), (150, 2, 1), (20, 50, 1), (20, 500, 1), (150, 100, 7000)])
def test_numbers_out_of_order_are_neither_lost_nor_a_restart(at, by, first):
    log = counted(*stepped_back(300, at=first + at, by=by, first=first))
    assert (log.missing, log.restarts, log.duplicates, log.messages) == (0, 0, 0, 300)


def test_numbers_out_of_order_are_neither_lost_nor_a_restart_can_fail():
    """What is lost among them is missing, and nothing else."""
    numbers = [n for n in stepped_back(300, at=150, by=100) if n not in (90, 200, 201)]
    log = counted(*numbers)
    assert (log.gaps, log.restarts) == ([(90, 90), (200, 201)], 0)


def test_a_swapped_pair_is_no_loss():
    assert counted(1, 2, 4, 3, 5).gaps == [] == counted(2, 1, 3).gaps
    assert counted(1, 2, 4, 3, 5).restarts == counted(2, 1, 3).restarts == 0


def test_an_old_number_again_is_a_duplicate():
    log = counted(1, 2, 3, 2, 4, 5)
    assert (log.duplicates, log.restarts, log.missing) == (1, 0, 0)


def test_a_restart_counts_although_its_numbers_are_interleaved_with_the_old_ones():
    old, new = [*range(1, 201)], [*range(1, 101)]
    mixed = [n for pair in zip(old[100:], new, strict=True) for n in pair]
    log = counted(*old[:100], *mixed, *range(101, 151))
    assert (log.restarts, log.missing) == (1, 0)
    assert counted(*old[:100], *(n for n in mixed if n != 50), 101).gaps == [(50, 50)]


def test_what_the_recorder_saw_as_one_life_is_one():
    """The step came so soon after its start that most numbers seem to be those of another."""
    log = counted(*range(101, 121), 5, 6, 7, 6)
    log.bound(1, 120)
    assert (log.restarts, log.duplicates, log.gaps) == (0, 1, [(1, 4), (8, 100)])


def test_gaps_bound_the_memory_not_messages():
    log = counted(*stepped_back(20_000, at=9000, by=4000))
    assert sum(len(life.starts) for life in log._lives) == 1


def test_a_number_that_no_bag_can_hold_tells_nothing():
    assert counted(1, 2, 2**63, 3).missing == 0
