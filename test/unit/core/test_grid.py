from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.core.clock import MS, S
from reflex_ros.core.grid import plausible, usual_period_ns

PERIOD = 20 * MS


def ticks(count=100, first=7):
    index = list(range(first, first + count))
    return index, [5 * S + number * PERIOD for number in index]


def kept(index, due):
    order = sorted(range(len(index)), key=lambda at: index[at])
    index, due = [index[at] for at in order], [due[at] for at in order]
    mask = plausible(index, due, usual_period_ns(index, due, PERIOD))
    return [number for number, is_kept in zip(index, mask, strict=True) if is_kept]


def test_whole_runs_are_plausible():
    index, due = ticks()
    assert kept(index, due) == index
    del index[20:60], due[20:60]
    assert kept(index, due) == index
    assert kept(*ticks(1)) == [7]


@pytest.mark.parametrize('far', [2**63 - 1, 2**62, 2**40, 2**31, 100_000, 500, -1, -2**63])
@pytest.mark.parametrize('field', ['index', 'due', 'both'])
def test_one_damaged_tick_is_left_out(field, far):
    index, due = ticks()
    if field != 'due':
        index[50] = far
    if field != 'index':
        due[50] = 5 * S + far * PERIOD if field == 'both' and abs(far) < 2**32 else far
    found = kept(index, due)
    usual = [number for number in ticks()[0] if number != 57]
    assert [number for number in found if number != far] == usual
    # nine seconds away and on the grid it cannot be told from a true one
    assert (far in found) == (field == 'both' and far == 500)


def test_a_pause_of_the_recorder_is_no_damage():
    index, due = ticks()
    later, due_later = ticks(100, 10_000)
    assert kept(index + later, due + due_later) == index + later


def test_a_rule_that_takes_all_can_fail_these_tests(monkeypatch):
    monkeypatch.setattr('reflex_ros.core.grid.APART_NS', 1 << 61)
    index, due = ticks()
    index[50], due[50] = 100_000, 5 * S + 100_000 * PERIOD
    assert 100_000 in kept(index, due)


def test_the_period_survives_damage():
    index, due = ticks()
    due[3], index[70] = 2**63 - 1, 2**63 - 1
    assert usual_period_ns(index, due, 1) == PERIOD
    assert usual_period_ns([], [], 5) == 5
    assert np.all(plausible([], [], PERIOD) == np.zeros(0, bool))
