"""Nodes of a pretrained checkpoint say on ``/diagnostics`` how they run it."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.ros
rclpy = pytest.importorskip('rclpy')


@pytest.fixture
def context(monkeypatch):
    monkeypatch.setenv('ROS_AUTOMATIC_DISCOVERY_RANGE', 'LOCALHOST')
    rclpy.init()
    yield
    rclpy.shutdown()


def test_both_nodes_tell_device_and_acceleration(context, family_checkpoint, family_params):
    from rclpy.parameter import Parameter

    from reflex_ros.nodes.policy import PolicyNode
    from reflex_ros.nodes.vision_encoder import EncoderNode
    from reflex_ros.ros.spin import Stop
    from reflex_ros.stages.assemble import Shared

    params = family_params('pi0', family_checkpoint('pi0', action_std=0.1))
    shared, stop, nodes = Shared(), Stop(), []
    for kind in (EncoderNode, PolicyNode):
        node = kind(stop, shared=shared)
        for name in ('policy.name', 'policy.checkpoint', 'policy.joint_unit', 'camera.names',
                     'policy.gripper_unit', 'policy.step_period_s', 'policy.joint_names'):
            value = params[name]
            value = list(value) if isinstance(value, tuple) else value
            node._parameter_overrides[name] = Parameter(name, value=value)
        assert node.trigger_configure().name == 'SUCCESS'
        nodes.append(node)
    encoder, policy = (node._facts() for node in nodes)
    for facts in (encoder, policy):
        assert (facts['device'], facts['acceleration'], facts['lane']) == (
            'cpu', 'traced', 'thread')
    assert policy['denoise_ms'] > 0
    for node in reversed(nodes):
        node.trigger_cleanup()
        node.destroy_node()
