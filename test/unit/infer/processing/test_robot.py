"""A robot's names, units and range come from its parameter files; nothing is assumed."""

from __future__ import annotations

from math import pi
from pathlib import Path

import pytest

from reflex_ros.core.errors import ConfigError
from reflex_ros.infer.processing.robot import JOINTS, RobotMap, plain_name, read_robot, robot_map

ROOT = Path(__file__).parents[4]


def test_the_files_of_the_repository_describe_a_piper():
    robot = read_robot(ROOT / 'config/robots/piper.yaml', ROOT / 'config/robot.yaml')
    assert robot.arm_names == JOINTS
    assert (robot.joint_unit, robot.gripper_unit, robot.gripper_max_m) == ('rad', 'm', 0.07)
    assert robot.joint_names[0] == 'joint_1.pos' and len(robot.joint_names) == 7


def test_a_file_that_declares_no_unit_leaves_it_undeclared():
    robot = read_robot(ROOT / 'config/robots/piper.yaml')
    assert robot.joint_unit == robot.gripper_unit == 'undeclared'
    with pytest.raises(ConfigError, match="policy.joint_unit: got 'undeclared', expected one of"):
        robot.scales()


def test_later_files_win(tmp_path):
    file = tmp_path / 'own.yaml'
    file.write_text('/**: {ros__parameters: {policy: {joint_unit: deg}, arm: {prefix: left_}}}')
    robot = read_robot(ROOT / 'config/robot.yaml', file)
    assert robot.joint_unit == 'deg'
    assert robot.arm_names[0] == 'left_joint1' and robot.arm_names[6] == 'left_gripper'


@pytest.mark.parametrize(('unit', 'scale'), [('rad', 1.0), ('deg', 180 / pi)])
@pytest.mark.parametrize(('gripper', 'full'), [('m', 0.07), ('mm', 70.0), ('fraction', 1.0),
                                               ('percent', 100.0)])
def test_scales_take_an_arm_to_the_units_of_a_policy(unit, scale, gripper, full):
    scales = RobotMap(joint_unit=unit, gripper_unit=gripper).scales()
    assert scales[:6] == (scale,) * 6
    assert scales[6] * 0.07 == pytest.approx(full)


@pytest.mark.parametrize(('changes', 'name'), [
    ({'joint_unit': 'grad'}, 'policy.joint_unit: got .grad'),
    ({'gripper_unit': 'undeclared'}, 'policy.gripper_unit: got .undeclared'),
    ({'gripper_max_m': 0.0}, 'arm.gripper_max_m: got 0.0'),
    ({'gripper_max_m': 70.0}, 'arm.gripper_max_m: got 70.0'),
])
def test_a_unit_or_range_that_is_none_is_named(changes, name):
    values = {'joint_unit': 'rad', 'gripper_unit': 'm'} | changes
    with pytest.raises(ConfigError, match=name):
        RobotMap(**values).scales()


def test_parameters_are_taken_by_name():
    robot = robot_map({'policy.joint_names': ('a',), 'policy.gripper_unit': 'mm',
                       'arm.gripper_max_m': 0.1, 'other': 3})
    assert (robot.joint_names, robot.gripper_unit, robot.gripper_max_m) == (('a',), 'mm', 0.1)


@pytest.mark.parametrize('name', ['joint_1.pos', 'Joint1', 'JOINT_1', 'joint 1'])
def test_habits_of_naming_do_not_count(name):
    assert plain_name(name) == 'joint1'
