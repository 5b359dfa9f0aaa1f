"""What the towers are to read off an image is what the scene would show."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from reflex_ros.sim.kinematics import LOWER, UPPER, Kinematics, grasp_attitude
from reflex_ros.sim.mjcf import HOME, scene_xml
from reflex_ros.train import sight
from reflex_ros.train.poses import tool_poses


@pytest.fixture(name='seen')
def seen_fixture(make_demonstrations):
    """Sixty frames near home, cube on the table, ball shown in every other."""
    data = make_demonstrations(cameras=2)
    rng = np.random.default_rng(1)
    data.measured[:, :6] = np.array(HOME) + rng.normal(0, 0.1, (60, 6))
    data.scene[:, :3] = (0.33, 0.0, 0.15) + rng.uniform(-0.05, 0.05, (60, 3))
    data.scene[::2, 2] = -0.5
    data.scene[:, 3:7] = (0.3, 0.05, 0.018, 0.2) + rng.uniform(-0.02, 0.02, (60, 4)) * [1, 1, 0, 1]
    data.scene[:, 7:] = (0.38, 0.24, 0.07)
    return data


def test_the_tool_s_attitude_is_the_scene_s():
    kinematics = Kinematics()
    joints = np.random.default_rng(0).uniform(LOWER, UPPER, (10, 6))
    tips, attitudes = tool_poses(joints)
    for joint, tip, attitude in zip(joints, tips, attitudes, strict=True):
        expected = kinematics.tip(joint)
        np.testing.assert_allclose(tip, expected[0], atol=1e-6)
        np.testing.assert_allclose(attitude, expected[1], atol=1e-6)


def test_a_point_is_in_the_wrist_s_view_where_the_scene_s_camera_shows_it():
    model = mujoco.MjModel.from_xml_string(scene_xml(props=False))
    data = mujoco.MjData(model)
    data.qpos[:6] = HOME
    mujoco.mj_forward(model, data)
    number = model.camera('wrist').id
    at, axes = data.cam_xpos[number], data.cam_xmat[number].reshape(3, 3)
    tip, attitude = tool_poses(np.array(HOME))
    points = np.random.default_rng(0).uniform(-0.15, 0.15, (400, 3))
    in_camera = (tip + points @ attitude.T - at) @ axes
    depth, edge = -in_camera[:, 2], np.tan(np.radians(model.cam_fovy[number] / 2))
    expected = (depth > 0.02) & (np.abs(in_camera[:, :2]) < edge * depth[:, None]).all(1)
    assert 50 < expected.sum() < 350
    assert np.array_equal(sight.in_wrist_view(points), expected)


def test_grasp_joints_bring_the_tool_around_the_cube(seen):
    joints = sight.grasp_joints(seen)
    tips, attitudes = tool_poses(joints)
    assert np.abs(tips[:, :2] - seen.scene[:, 3:5]).max() < 3e-3
    wanted = grasp_attitude(np.array([*seen.scene[0, 3:5], 0.024]), float(seen.scene[0, 6]))
    angle = np.arccos((np.trace(attitudes[0] @ wanted.T) - 1) / 2)
    assert angle < np.radians(6)


def test_readings_are_valid_only_where_there_is_something_to_read(seen):
    ball, *_ = sight.scene_readings(seen)
    assert np.array_equal(ball.valid, np.arange(60) % 2 == 1)
    seen.scene[5, 5] = 0.1
    lifted = sight.scene_readings(seen)[4]
    assert not lifted.valid[5]
    assert lifted.valid[[4, 6]].all()


def test_the_wrist_reads_the_cube_at_the_origin_when_the_tool_is_around_it(seen):
    seen.measured[:, :6] = sight.grasp_joints(seen)
    cube = sight.wrist_readings(seen)[1]
    assert np.abs(cube.values).max() < 0.012
    assert cube.valid.all()
    turns = sight.wrist_readings(seen)[5]
    assert np.abs(turns.values).max() < 1e-3
