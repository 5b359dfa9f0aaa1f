"""What of the suite runs on which of two machines."""

from __future__ import annotations

import pytest

from reflex_ros.bringup.graph import ALL, INFERENCE, PARTS, ROBOT, suite


@pytest.mark.parametrize('simulated', [False, True])
@pytest.mark.parametrize('one_process', [False, True])
def test_both_parts_together_are_the_whole_and_share_nothing(simulated, one_process):
    whole, robot, inference = (
        suite(simulated=simulated, one_process=one_process, part=part)
        for part in (ALL, ROBOT, INFERENCE))
    assert not set(robot.configure_order) & set(inference.configure_order)
    assert {*robot.processes, *inference.processes} == {*whole.processes}


def test_the_arm_and_the_bag_stay_on_the_robot():
    assert suite(simulated=False, part=ROBOT).configure_order == ('controller_bridge', 'recorder')
    assert suite(simulated=False, part=INFERENCE).configure_order == ('vision_encoder', 'policy')


@pytest.mark.parametrize('part', PARTS)
def test_only_the_machine_without_the_bridge_is_far_from_the_arm(part):
    assert suite(simulated=False, part=part).is_far_from_the_arm is (part == INFERENCE)
