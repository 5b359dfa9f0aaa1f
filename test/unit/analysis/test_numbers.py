from __future__ import annotations

from reflex_ros.analysis.numbers import Numbers, spell


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


def test_ranges_in_words_are_cut():
    assert spell([(1, 1), (3, 5)]) == '1, 3-5'
    assert spell([(i, i) for i in range(1, 40, 2)], limit=2) == '1, 3 and 18 more runs'
