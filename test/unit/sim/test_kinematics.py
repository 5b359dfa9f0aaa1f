from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.sim.kinematics import (
    LOWER,
    UPPER,
    Kinematics,
    grasp_attitude,
    leaning,
    leaning_pose,
    small_turn,
    yaw_matrix,
)
from reflex_ros.sim.mjcf import HOME

TARGETS = np.random.default_rng(1).uniform((0.25, -0.17, 0.10), (0.41, 0.17, 0.30), (60, 3))


@pytest.mark.parametrize('dh', ['new', 'old'])
def test_closed_form_pose_puts_the_tip_on_the_target(dh):
    kinematics = Kinematics(dh)
    for target, joints in zip(TARGETS, leaning_pose(TARGETS, dh=dh), strict=True):
        np.testing.assert_allclose(kinematics.tip(joints)[0], target, atol=1e-9)
        assert (joints >= LOWER).all() and (joints <= UPPER).all()


def test_closed_form_agrees_with_iteration_at_the_height_of_the_targets():
    kinematics = Kinematics('new')
    for target in TARGETS[:15] * (1, 1, 0) + (0, 0, 0.15):
        iterated = kinematics.solve(HOME, target, leaning(target), iterations=60)
        np.testing.assert_allclose(leaning_pose(target), iterated, atol=1e-6)


def test_closed_form_keeps_the_point_where_the_wrist_is_at_its_limit():
    target = np.array([0.30, 0.0, 0.36])
    joints = leaning_pose(target)
    assert joints[4] == pytest.approx(UPPER[4])
    np.testing.assert_allclose(Kinematics().tip(joints)[0], target, atol=1e-9)


def test_closed_form_of_a_point_out_of_reach_is_finite_and_within_limits():
    joints = leaning_pose([[2.0, 0.5, 0.1], [0.0, 0.0, 0.0]])
    assert np.isfinite(joints).all()
    assert (joints >= LOWER).all() and (joints <= UPPER).all()


def test_iteration_keeps_the_point_when_a_joint_reaches_its_limit():
    kinematics = Kinematics()
    joints, attitude = np.array(HOME), grasp_attitude(np.array([0.3, 0.05, 0.0]), 0.6)
    start, _ = kinematics.tip(joints)
    joints = kinematics.solve(joints, start, attitude, iterations=40)
    np.testing.assert_allclose(kinematics.tip(joints)[0], start, atol=1e-4)
    assert joints[4] == pytest.approx(UPPER[4])


def test_small_turn_is_axis_times_sine():
    np.testing.assert_allclose(small_turn(yaw_matrix(0.3)), (0, 0, np.sin(0.3)))
