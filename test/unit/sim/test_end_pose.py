"""The reported flange pose is the SDK's own forward kinematics."""

from __future__ import annotations

import random

import pytest
from piper_sdk.kinematics.piper_fk import C_PiperForwardKinematics

from reflex_ros.sim.end_pose import end_pose
from reflex_ros.sim.mjcf import JOINT_RANGE


def test_the_zero_pose_is_the_documented_one():
    assert end_pose([0.0] * 6) == (56128, 0, 213266, 0, 85000, 0)


def test_random_poses_agree_with_the_sdk_to_the_wire_resolution():
    rng = random.Random(2)
    oracle = C_PiperForwardKinematics(1)
    for _ in range(300):
        joints = [rng.uniform(low, high) for low, high in JOINT_RANGE]
        expected = [value * 1e3 for value in oracle.CalFK(joints)[-1]]
        assert end_pose(joints) == pytest.approx(expected, abs=0.6)


def test_a_vertical_flange_has_yaw_zero_and_the_same_attitude_nearby():
    joints = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    joints[4] = 5 * 3.141592653589793 / 180  # pitch 85 deg + 5 deg
    pose = end_pose(joints)
    assert pose.ry == 90000
    assert pose.rz == 0
