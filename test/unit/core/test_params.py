"""The parameter table and the files checked against it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from reflex_ros.core.errors import ConfigError
from reflex_ros.core.params import (
    NODES,
    PARAMS,
    check_value,
    defaults,
    kind,
    load,
    load_yaml,
    node_specs,
    to_markdown,
)

ROOT = Path(__file__).parents[3]
OTHERS = ('budgets.yaml', 'budgets_growth.yaml', 'experiments', 'faults')
"""Files with readers of their own."""
SHIPPED = sorted(path for path in (ROOT / 'config').rglob('*.yaml')
                 if path.relative_to(ROOT / 'config').parts[0] not in OTHERS)
BRIDGE = 'controller_bridge'


@pytest.fixture
def write(tmp_path):
    """Write a parameter file and return its path."""

    def write(text):
        path = tmp_path / 'params.yaml'
        path.write_text(text)
        return path

    return write


def section(node, body):
    return f'{node}:\n  ros__parameters:\n    {body}\n'


def spec(name):
    return next(spec for spec in PARAMS if spec.name == name)


@pytest.mark.parametrize('spec', PARAMS, ids=lambda spec: spec.name)
def test_every_default_is_allowed_and_documented(spec):
    assert check_value(spec, spec.default) == spec.default
    assert spec.doc.endswith('.')
    assert spec.nodes
    assert set(spec.nodes) <= set(NODES)


def test_names_are_unique_and_grouped():
    names = [spec.name for spec in PARAMS]
    assert len(names) == len(set(names))
    assert all(name.count('.') == 1 and name == name.lower() for name in names)


@pytest.mark.parametrize(('suffix', 'unit'), [
    ('_s', 's'), ('_m', 'm'), ('_rad', 'rad'), ('_hz', 'Hz'), ('_rad_s', 'rad/s'),
    ('_m_s', 'm/s'), ('_nm', 'N·m'), ('_rad_s2', 'rad/s²'), ('_rad_s3', 'rad/s³'),
    ('_m_s2', 'm/s²'), ('_m_s3', 'm/s³'), ('_steps', 'steps'), ('_percent', '%'),
])
def test_physical_names_end_in_their_unit(suffix, unit):
    with_unit = [spec for spec in PARAMS if spec.unit == unit]
    assert with_unit
    assert all(spec.name.endswith(suffix) or spec.name == 'chunk.horizon' for spec in with_unit)


@pytest.mark.parametrize('path', SHIPPED, ids=lambda path: path.stem)
@pytest.mark.parametrize('node', NODES)
def test_shipped_files_load_for_every_node(path, node):
    values = load([path], node)
    assert values.keys() == node_specs(node).keys()


def test_shipped_files_were_found():
    assert [path.stem for path in SHIPPED] == ['robot', 'piper', 'sim']


def test_robot_over_arm_file_keeps_the_limits_of_the_arm():
    values = load([ROOT / 'config/robots/piper.yaml', ROOT / 'config/robot.yaml'], BRIDGE)
    assert values['arm.upper_rad'][5] == 1.745
    assert values['safety.speed_scale'] == 0.3
    assert values['arm.transport'] == 'socketcan'


def test_node_section_wins_over_wildcards_whatever_their_order(write):
    path = write(section(BRIDGE, 'arm: {channel: can1}') + section('/**', 'arm: {channel: can2}'))
    assert load_yaml(path, BRIDGE) == {'arm.channel': 'can1'}
    assert load_yaml(path, 'simulator') == {'arm.channel': 'can2'}


@pytest.mark.parametrize(('name', 'node', 'is_met'), [
    ('controller_bridge', 'controller_bridge', True),
    ('/controller_bridge', 'left/controller_bridge', True),
    ('/left/controller_bridge', '/left/controller_bridge', True),
    ('/left/controller_bridge', '/right/controller_bridge', False),
    ('/*/controller_bridge', '/left/controller_bridge', True),
    ('/**/controller_bridge', '/a/b/controller_bridge', True),
    ('/left/**', '/left/controller_bridge', True),
    ('/left/**', '/right/controller_bridge', False),
    ('policy', 'controller_bridge', False),
])
def test_sections_match_as_ros_node_names_do(write, name, node, is_met):
    path = write(section(name, 'policy: {seed: 3}' if 'policy' in name else 'arm: {channel: x1}'))
    assert bool(load_yaml(path, node)) is is_met


def test_nested_namespaces_and_dotted_keys_are_read(write):
    path = write('left:\n  controller_bridge:\n    ros__parameters:\n      arm.channel: can3\n')
    assert load_yaml(path, 'left/controller_bridge') == {'arm.channel': 'can3'}


def test_parameters_of_ros_itself_are_left_to_it(write):
    path = write(section('/**', 'use_sim_time: true'))
    assert load_yaml(path, BRIDGE) == {}


def test_an_empty_list_of_names_is_refused_unless_it_is_the_default(write):
    path = write(section('/**', 'camera: {names: []}'))
    with pytest.raises(ConfigError, match=r'camera.names is wrong: got \[\], .* one name'):
        load_yaml(path, 'vision_encoder')
    path = write(section('/**', 'camera: {topics: []}'))
    assert load_yaml(path, 'vision_encoder') == {'camera.topics': ()}


def test_lists_come_back_as_tuples(write):
    path = write(section('/**', 'camera: {names: [front, wrist]}'))
    assert load_yaml(path, 'vision_encoder') == {'camera.names': ('front', 'wrist')}


@pytest.mark.parametrize(('body', 'words'), [
    ('control: {rate_hz: 50}', ['control.rate_hz', 'got 50', 'a decimal point', '(Hz)']),
    ('control: {rate_hz: 500.0}', ['got 500.0', 'expected 10 to 200 (Hz)']),
    ('control: {rate_hz: .nan}', ['got nan', 'expected 10 to 200']),
    ('control: {rate: 50.0}', ['control.rate', 'Nearest: control.rate_hz']),
    ('safety: {speed_scale: true}', ['got True', 'a decimal point']),
    ('arm: {send: 1}', ['got 1', 'true or false']),
    ('arm: {port: 0}', ['got 0', '1 to 65534']),
    ('arm: {channel: 0}', ['got 0', 'a string']),
    ('arm: {lower_rad: [0.0, 1]}', ['got [0.0, 1]', 'a list of numbers']),
    ('arm: {lower_rad: [0.0, 99.0]}', ['expected -6.3 to 6.3 (rad)']),
    ('arm: {lower_rad: [0.0, 1.0]}', ['got [0.0, 1.0]', 'expected 6 numbers (rad)']),
    ('chunk: {mode: fast}', ["got 'fast'", 'one of sync, async_naive, reflex']),
    ('policy: {seed: 1}', ['policy.seed', 'is not taken by this node', 'under policy']),
    ('control: {1: 2}', ['control has a wrong key: got 1']),
    ('control: 3', ['control is no parameter']),
])
def test_wrong_entry_names_file_key_got_and_expected(write, body, words):
    path = write(section(BRIDGE, body))
    with pytest.raises(ConfigError) as caught:
        load_yaml(path, BRIDGE)
    for word in [str(path), *words]:
        assert word in str(caught.value)


@pytest.mark.parametrize(('text', 'words'), [
    ('a: [', 'cannot be read'),
    ('- 1', 'got list, expected node names'),
    ('', 'got NoneType'),
    ('controller_bridge: {arm: 3}', 'expected node names'),
    (section('contrller_bridge', 'arm: {port: 5}'), 'Nearest: controller_bridge'),
    (section('/**', 'arm: {port: 5, port: 6}'), "key 'port' twice"),
])
def test_file_with_wrong_layout_is_refused(write, text, words):
    with pytest.raises(ConfigError) as caught:
        load_yaml(write(text), BRIDGE)
    assert words in str(caught.value)


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match='No such file'):
        load_yaml(tmp_path / 'none.yaml', BRIDGE)


def test_error_in_the_section_of_another_node_is_found(write):
    path = write(section('policy', 'policy: {seed: -1}'))
    with pytest.raises(ConfigError, match=r'policy\.seed'):
        load_yaml(path, BRIDGE)


def test_yaml_cannot_run_code(write):
    path = write('/**: !!python/object/apply:os.getcwd []\n')
    with pytest.raises(ConfigError, match='cannot be read'):
        load_yaml(path, BRIDGE)


def test_later_files_and_overrides_win(write, tmp_path):
    first = write(section('/**', 'arm: {channel: can1, port: 5}'))
    second = tmp_path / 'second.yaml'
    second.write_text(section('/**', 'arm: {port: 6}'))
    values = load([first, second], BRIDGE, overrides={'arm.host': '::1'})
    assert [values[f'arm.{name}'] for name in ('channel', 'port', 'host')] == ['can1', 6, '::1']


def test_unknown_override_and_node_are_refused():
    with pytest.raises(ConfigError, match=r'Nearest: arm\.channel'):
        load([], BRIDGE, overrides={'arm.chanel': 'can0'})
    with pytest.raises(ConfigError, match="got 'bridge'"):
        defaults('bridge')


@pytest.mark.parametrize('value', [math.inf, -math.inf, math.nan])
def test_number_that_is_not_finite_is_refused(value):
    with pytest.raises(ConfigError):
        check_value(spec('safety.speed_scale'), value)


@pytest.mark.parametrize(('name', 'expected'), [
    ('control.rate_hz', 'float'), ('arm.port', 'int'), ('arm.send', 'bool'), ('arm.host', 'str'),
    ('camera.names', 'str[]'), ('camera.topics', 'str[]'), ('arm.lower_rad', 'float[]'),
])
def test_type_follows_the_default(name, expected):
    assert kind(spec(name)) == expected


def test_document_names_every_parameter_with_its_unit():
    text = to_markdown()
    for item in PARAMS:
        row = next(line for line in text.splitlines() if line.startswith(f'| `{item.name}` |'))
        assert f'| {item.unit} |' in row
        assert item.doc in text


@pytest.mark.parametrize('text', [
    '!!set [a, b]', '/**:\n  ros__parameters: !!map [1, 2]', '/**: !!set\n- control.rate_hz',
    'a: !!omap {b: 1}', 'a: !!pairs 3',
])
def test_a_value_that_is_not_what_its_tag_says_is_refused(tmp_path, text):
    path = tmp_path / 'p.yaml'
    path.write_text(text)
    with pytest.raises(ConfigError, match='got'):
        load_yaml(path, BRIDGE)
