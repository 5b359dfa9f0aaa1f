"""The plant without physics follows, sags and stops exactly as its equations say."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reflex_ros.core.clock import MS, ManualClock, S
from reflex_ros.core.errors import ConfigError
from reflex_ros.sim.plant import HOME, KinematicPlant, Releasable

GOAL = np.array([0.5, 0.8, -0.9, 0.1, 0.2, -0.3])


@pytest.fixture
def clock():
    return ManualClock(S)


def test_it_starts_at_rest_in_the_given_pose(clock):
    position, velocity = KinematicPlant(clock, start=HOME, gripper_m=0.02).joint_state()
    np.testing.assert_allclose(position, [*HOME, 0.02])
    np.testing.assert_array_equal(velocity, np.zeros(7))


def test_it_closes_63_percent_of_the_error_in_one_lag(clock):
    plant = KinematicPlant(clock, start=[0.0] * 6, lag_s=0.05)
    plant.command(GOAL, 0.04)
    clock.advance(50 * MS)
    position, velocity = plant.joint_state()
    np.testing.assert_allclose(position, np.append(GOAL, 0.04) * (1 - math.exp(-1)))
    np.testing.assert_allclose(velocity, np.append(GOAL, 0.04) * math.exp(-1) / 0.05)


def test_the_number_of_readings_does_not_change_the_motion():
    ends = []
    for steps in (1, 7, 100):
        clock = ManualClock(S)
        plant = KinematicPlant(clock)
        plant.command(GOAL, 0.04)
        for _ in range(steps):
            clock.advance(700 * MS // 7 // steps)
            plant.joint_state()
        ends.append(plant.joint_state()[0])
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-7)
    np.testing.assert_allclose(ends[0], ends[2], atol=1e-7)


def test_a_released_joint_sags_and_ignores_commands_until_engaged(clock):
    plant = KinematicPlant(clock)
    plant.release(1)
    plant.command(GOAL, 0.0)
    clock.advance(4 * S)
    position, _ = plant.joint_state()
    assert position[1] == pytest.approx(0.0, abs=1e-3)
    assert position[0] == pytest.approx(0.5, abs=1e-6)
    plant.engage(1)
    held = plant.joint_state()[0][1]
    clock.advance(S)
    assert plant.joint_state()[0][1] == held
    plant.command(GOAL, 0.0)
    clock.advance(S)
    assert plant.joint_state()[0][1] == pytest.approx(0.8, abs=1e-6)


def test_a_joint_without_gravity_load_stays_where_it_was_released(clock):
    plant = KinematicPlant(clock, start=[0.4, 0.5, -0.6, 0.1, 0.2, 0.3])
    plant.release(0)
    clock.advance(S)
    assert plant.joint_state()[0][0] == 0.4


def test_readings_are_copies(clock):
    plant = KinematicPlant(clock)
    plant.joint_state()[0][:] = 9.0
    assert plant.joint_state()[0][0] == HOME[0]
    assert isinstance(plant, Releasable)


@pytest.mark.parametrize('arguments', [
    {'start': [0.0] * 5}, {'start': [math.nan] * 6}, {'gripper_m': math.inf}, {'lag_s': 0.0},
    {'sag_s': -1.0},
])
def test_nonsense_is_refused(clock, arguments):
    with pytest.raises(ConfigError, match='Kinematic plant'):
        KinematicPlant(clock, **arguments)
