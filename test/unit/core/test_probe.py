"""Measured and modelled stage times."""

from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.core.clock import MS, ManualClock
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.probe import (
    ClockProbe,
    ConstantCost,
    CostModel,
    LognormalCost,
    ModelProbe,
    RecordedCost,
    constant_costs,
    recorded_costs,
)
from reflex_ros.core.types import StageTime


def test_clock_probe_measures_each_span():
    clock = ManualClock(mono_ns=5 * MS)
    probe = ClockProbe(clock)
    with probe.span('encode'):
        clock.advance(3 * MS)
    clock.advance(1 * MS)
    with probe.span('publish'):
        clock.advance(2 * MS)
    assert probe.times() == (
        StageTime('encode', 5 * MS, 8 * MS), StageTime('publish', 9 * MS, 11 * MS)
    )
    assert probe.ready_ns == 11 * MS


def test_model_probe_moves_its_own_cursor_and_no_clock():
    costs = CostModel(constant_costs(encode=3.0, publish=0.5))
    probe = ModelProbe(100 * MS, costs)
    with probe.span('encode'):
        pass
    with probe.span('publish'):
        pass
    assert probe.times()[1] == StageTime('publish', 103 * MS, 103 * MS + MS // 2)
    assert probe.ready_ns == 103 * MS + MS // 2


@pytest.mark.parametrize('make', [
    lambda: ClockProbe(ManualClock()),
    lambda: ModelProbe(0, CostModel({'encode': ConstantCost(5)})),
], ids=['clock', 'model'])
def test_failed_body_leaves_no_span(make):
    probe = make()
    with pytest.raises(ZeroDivisionError), probe.span('encode'):
        raise ZeroDivisionError
    assert probe.times() == ()


def test_cost_depends_on_seed_name_and_call_number_alone():
    def draws(names, seed=3):
        model = CostModel({name: LognormalCost(10 * MS, 0.3) for name in 'ab'}, seed)
        drawn = [(name, model.draw(name)) for name in names]
        return [value for name, value in drawn if name == 'a']

    assert draws('aaa') == draws('abbabba')
    assert draws('aaa') != draws('aaa', seed=4)
    assert len(set(draws('aaa'))) == 3


def test_lognormal_cost_has_its_median_and_cut():
    cost = LognormalCost(10 * MS, 0.3, max_ns=20 * MS)
    drawn = [cost.duration_ns(n, (1, 2)) for n in range(2000)]
    assert np.median(drawn) == pytest.approx(10 * MS, rel=0.03)
    assert max(drawn) == 20 * MS


def test_recorded_costs_repeat_the_recording_in_order():
    table = recorded_costs([
        (StageTime('encode', 0, 5), StageTime('denoise', 5, 25)),
        (StageTime('encode', 100, 107),),
    ])
    assert table == {'encode': RecordedCost((5, 7)), 'denoise': RecordedCost((20,))}
    model = CostModel(table)
    assert [model.draw('encode') for _ in range(5)] == [5, 7, 5, 7, 5]


def test_unknown_stage_names_the_known_ones():
    with pytest.raises(ConfigError, match="got 'decode', expected one of denoise, encode"):
        CostModel(constant_costs(encode=1.0, denoise=2.0)).draw('decode')


def test_empty_recording_is_refused():
    with pytest.raises(ConfigError, match='got 0 samples'):
        RecordedCost(())
