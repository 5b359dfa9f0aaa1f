"""Which parameters an episode takes is what its stages are given, and the others are refused."""

from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.core.errors import ConfigError
from reflex_ros.core.param_table import BRIDGE, ENCODER, POLICY, SIMULATOR
from reflex_ros.core.params import PARAMS
from reflex_ros.study import episode
from reflex_ros.study.episode import EpisodeSpec, run_episode
from reflex_ros.study.episode_params import BY_KEY, NETWORK, TAKEN, check_taken
from reflex_ros.study.experiment_file import TYPES
from reflex_ros.study.grid import Cell

OF_EPISODES = [spec for spec in PARAMS if {BRIDGE, ENCODER, POLICY, SIMULATOR} & set(spec.nodes)]


class Given(Exception):
    """Carries what a virtual run was given."""


@pytest.fixture
def given(monkeypatch):
    """Return what the stages of an episode are given, as text."""
    def run(config, *, limits, **_):
        raise Given(f'{config} {limits}')

    monkeypatch.setattr(episode, 'VirtualRun', run)
    monkeypatch.setattr(episode, 'World', lambda *_, **__: None)

    def ask(**params):
        with np.printoptions(precision=12), pytest.raises(Given) as caught:
            run_episode(EpisodeSpec(policy='tiny', params=params))
        return str(caught.value)

    return ask


def other(spec, now):
    """Return another value that a parameter may have; ``now``: that of an episode, if any."""
    value = spec.default if now is None else now
    if spec.choices:
        return next(one for one in reversed(spec.choices)
                    if one not in (value, 'settled'))  # settled is for sync alone
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return 'another'
    if isinstance(value, tuple):
        return tuple(one * 0.9 for one in value) if value and isinstance(
            value[0], float) else ('another',)
    low, high = spec.bounds
    middle = type(value)(low + (high - low) / 3)
    return middle if middle != value else type(value)(high)


def taken(given):
    """Return the parameters that change what the stages are given."""
    plain, chosen = given(), EpisodeSpec(policy='tiny').chosen()
    return {spec.name for spec in OF_EPISODES
            if given(**{spec.name: other(spec, chosen.get(spec.name))}) != plain}


def test_what_an_episode_takes_is_what_changes_its_stages(given):
    found = taken(given)
    assert found - set(BY_KEY) == set(TAKEN) - set(NETWORK)
    assert {'chunk.mode', 'delay.injected_s'} <= found


def test_parameters_that_a_stage_ignores_can_fail(given, monkeypatch):
    fixed = episode.policy_config(EpisodeSpec(policy='tiny').parameters())
    monkeypatch.setattr(episode, 'policy_config', lambda params: fixed)
    missing = set(TAKEN) - set(NETWORK) - taken(given)
    assert 'chunk.threshold' in missing and 'safety.ramp_s' not in missing


def test_every_parameter_of_a_key_names_one():
    keys = {*TYPES, 'seeds'}
    assert set(BY_KEY.values()) <= keys and not set(BY_KEY) & set(TAKEN)
    assert {*BY_KEY, *TAKEN} <= {spec.name for spec in OF_EPISODES}


@pytest.mark.parametrize('name', sorted({spec.name for spec in PARAMS} - set(TAKEN)))
def test_a_parameter_that_would_change_nothing_is_refused_by_name(name):
    with pytest.raises(ConfigError, match=f'block 3: params: got {name!r}'):
        check_taken([name], 'block 3: params')


def test_what_is_taken_is_not_refused():
    check_taken(TAKEN, 'x')


@pytest.mark.parametrize(('params', 'says'), [
    ({'camera.period_s': 0.02}, 'camera.period_s'), ({'policy.seed': 3}, 'policy.seed')])
def test_a_grid_refuses_them_as_well(params, says):
    cell = Cell('one', 'reflex', 5, 0.0, params=params)
    with pytest.raises(ConfigError, match=f'cell one: got {says!r}'):
        cell.spec(0)
    assert Cell('one', 'reflex', 5, 0.0, params={'chunk.row0': 'observation'}).spec(0)
