from __future__ import annotations

import pytest

from reflex_ros.bringup.settings import (
    config_file,
    effective,
    parse_overrides,
    write_params,
)
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.params import NODES, load


def test_the_shipped_simulation_file_is_right():
    values = effective([config_file('sim.yaml')], {})
    assert values['simulator']['simulator.task'] == 'jump'
    assert values['controller_bridge']['arm.acceleration_rad_s2'] == (20.0,) * 6


def test_a_missing_file_says_where_it_was_looked_for():
    with pytest.raises(ConfigError, match=r'nothing\.yaml is missing'):
        config_file('nothing.yaml')


@pytest.mark.parametrize('namespace', ['', '/left'])
def test_the_written_file_gives_every_node_every_value_back(tmp_path, namespace):
    overrides = {'run.instruction': 'yes: 1.0 "ü" #', 'arm.channel': '1e3', 'policy.seed': 7,
                 'camera.topics': ['a/b']}
    values = effective([config_file('sim.yaml')], overrides)
    path = tmp_path / 'params' / 'run.yaml'
    write_params(path, values, namespace=namespace)
    for node in NODES:
        assert load([path], f'{namespace}/{node}' if namespace else node) == values[node]


def test_an_override_reaches_every_node_that_takes_it_and_no_other():
    values = effective([], {'policy.seed': 3, 'arm.port': 1234})
    assert values['policy']['policy.seed'] == 3
    assert values['simulator']['arm.port'] == values['controller_bridge']['arm.port'] == 1234
    assert 'arm.port' not in values['policy']


def test_an_unknown_override_is_refused():
    with pytest.raises(ConfigError, match=r'arm\.prot is no parameter'):
        effective([], {'arm.prot': 1})


def test_assignments_are_read_as_yaml():
    assert parse_overrides(['a.b:=1', 'a.c:=[x, y]', 'a.d:=true', 'a.e:=x:=y']) == {
        'a.b': 1, 'a.c': ['x', 'y'], 'a.d': True, 'a.e': 'x:=y'}


@pytest.mark.parametrize('text', ['a.b', 'a.b=1', ':=1', 'a.b:=[1'])
def test_a_wrong_assignment_is_refused(text):
    with pytest.raises(ConfigError, match='expected'):
        parse_overrides([text])
