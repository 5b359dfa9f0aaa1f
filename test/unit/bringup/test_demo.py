from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from reflex_ros.bringup.demo import (
    FIRST_CHUNK_S,
    DemoSpec,
    lasts,
    parameters,
    run_demo,
    verdict,
    viewer,
)
from reflex_ros.bringup.session import Result
from reflex_ros.bringup.status_line import Progress
from reflex_ros.core.clock import ManualClock, S
from reflex_ros.core.errors import ConfigError


def spec(**changes):
    values = {
        'mode': 'reflex', 'policy': 'tiny', 'task': 'jump', 'delay_ms': 0.0, 'duration_s': 30.0,
        'seed': 3, 'execute_steps': 0, 'one_process': True, 'view': False, 'runs': Path('runs'),
        'overrides': {},
    }
    return DemoSpec(**{**values, **changes})


def test_the_age_limit_follows_the_injected_delay():
    def limit(delay_ms):
        chosen = parameters(spec(delay_ms=delay_ms), Path('x'), port=1)
        return chosen['safety.max_observation_age_s']

    assert limit(0.0) == limit(100.0) == 0.5
    assert limit(400.0) == pytest.approx(0.95)


def test_overrides_win():
    chosen = parameters(spec(overrides={'policy.seed': 9}), Path('x'), port=1)
    assert chosen['policy.seed'] == 9
    assert chosen['simulator.seed'] == 3


def test_a_delay_out_of_bounds_is_named_itself(tmp_path):
    with pytest.raises(ConfigError, match=r'delay.injected_s is wrong: got 99'):
        run_demo(spec(delay_ms=99_000.0, runs=tmp_path / 'runs'))


def test_a_wrong_value_leaves_no_run_folder(tmp_path):
    with pytest.raises(ConfigError, match='simulator.task'):
        run_demo(spec(task='juggle', runs=tmp_path / 'runs'))
    assert not (tmp_path / 'runs').exists()


def test_the_duration_counts_from_the_first_executed_chunk():
    clock = ManualClock(100 * S)
    until = lasts(2.0, clock)
    assert until(Progress(), 90 * S) == ''
    assert until(Progress(first_chunk_ns=99 * S), 90 * S) == ''
    assert until(Progress(first_chunk_ns=98 * S), 90 * S) == '2 s are over'


def test_a_run_without_a_chunk_ends_after_a_while():
    clock = ManualClock(100 * S)
    until = lasts(2.0, clock)
    assert until(Progress(), 0) == ''
    clock.advance(round(FIRST_CHUNK_S * S))
    assert until(Progress(), 0) == ''
    assert 'no chunk' in until(Progress(), 100 * S)


@pytest.mark.parametrize(('result', 'code'), [
    (Result(0, Progress(first_chunk_ns=1, arm_state='holding')), 0),
    (Result(0, Progress(first_chunk_ns=1, arm_state='faulted')), 3),
    (Result(0, Progress()), 4),
    (Result(0, Progress(), 'SIGINT'), 0),
    (Result(2, Progress(arm_state='faulted')), 2),
])
def test_the_exit_code_tells_how_it_ended(result, code):
    assert verdict(result)[0] == code


@pytest.mark.parametrize('has_tkinter', [True, False])
def test_without_a_display_there_is_no_window_and_that_is_said(capsys, monkeypatch, has_tkinter):
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: 'found' if has_tkinter else None)
    assert viewer({}) == ()
    assert 'DISPLAY is not set' in capsys.readouterr().out
    assert len(viewer({'DISPLAY': ':0'})) == has_tkinter
    assert ('Python has no tkinter' in capsys.readouterr().out) is not has_tkinter
