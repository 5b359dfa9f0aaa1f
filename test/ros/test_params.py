"""ROS parameters come from the table and nothing wrong gets past it."""

from __future__ import annotations

import pytest

pytest.importorskip('reflex_msgs.msg._plan', reason='reflex_msgs is not built: run make setup')
from rclpy.node import Node
from rclpy.parameter import Parameter

from reflex_ros.core.errors import ConfigError
from reflex_ros.core.params import NODES, defaults, node_specs
from reflex_ros.ros.params import descriptor, read_params

pytestmark = pytest.mark.ros


@pytest.fixture
def make_node(ros):
    nodes = []

    def make(name, **overrides):
        given = [
            Parameter(key.replace('__', '.'), value=value) for key, value in overrides.items()
        ]
        nodes.append(Node(name, parameter_overrides=given))
        return nodes[-1]

    yield make
    for node in nodes:
        node.destroy_node()


@pytest.mark.parametrize('name', NODES)
def test_every_node_reads_its_defaults(make_node, name):
    assert read_params(make_node(name)) == defaults(name)


def test_an_override_wins_and_ros_tells_it(make_node):
    node = make_node('controller_bridge', control__rate_hz=100.0)
    assert read_params(node)['control.rate_hz'] == 100.0
    assert node.get_parameter('control.rate_hz').value == 100.0


def test_reading_again_after_a_cleanup_gives_the_same(make_node):
    node = make_node('vision_encoder', camera__topics=['camera/main/image_raw'])
    first = read_params(node)
    assert first['camera.topics'] == ('camera/main/image_raw',)
    assert read_params(node) == first


@pytest.mark.parametrize(
    ('overrides', 'says'),
    [
        ({'control__rate': 50.0}, r'control\.rate is no parameter.*Nearest: control\.rate_hz'),
        ({'control__rate_hz': 50}, r'control\.rate_hz is wrong: got 50, expected a number'),
        ({'control__rate_hz': 1.0}, r'expected 10 to 200 \(Hz\)'),
        ({'control__rate_hz': float('nan')}, 'got nan'),
    ],
)
def test_a_wrong_override_is_refused_by_name(make_node, overrides, says):
    with pytest.raises(ConfigError, match=says):
        read_params(make_node('controller_bridge', **overrides))


def test_what_ros_itself_takes_is_no_unknown_parameter(make_node):
    node = make_node('policy', use_sim_time=False)
    assert read_params(node) == defaults('policy')


def test_a_read_only_parameter_cannot_be_set_later(make_node):
    node = make_node('controller_bridge')
    read_params(node)
    (result,) = node.set_parameters([Parameter('control.rate_hz', value=60.0)])
    assert not result.successful


def test_the_descriptor_tells_meaning_unit_and_range():
    msg = descriptor(node_specs('controller_bridge')['control.rate_hz'])
    assert (msg.description, msg.read_only) == ('Rate of the control loop. [Hz]', True)
    (allowed,) = msg.floating_point_range
    assert (allowed.from_value, allowed.to_value) == (10.0, 200.0)
