"""The direct arm on a manual clock; what both arms promise is tested in integration."""

from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.arm.direct import DirectArm
from reflex_ros.core.clock import MS, ManualClock, S
from reflex_ros.core.errors import ArmError, ConfigError
from reflex_ros.core.limits import piper_limits

POSE = np.array([0.0, 0.5, -0.7, 0.0, 0.2, 0.0, 0.035])


class Plant:
    """Arrives at once."""

    def __init__(self):
        self.position = POSE.copy()
        self.commands = []

    def command(self, joints_rad, gripper_m):
        self.commands.append((joints_rad, gripper_m))
        self.position = np.append(joints_rad, gripper_m)

    def joint_state(self):
        return self.position.copy(), np.zeros(7)


@pytest.fixture
def clock():
    return ManualClock(S)


@pytest.fixture
def plant():
    return Plant()


@pytest.fixture
def arm(plant, clock):
    arm = DirectArm(plant, clock, limits=piper_limits())
    arm.connect()
    arm.check()
    arm.enable()
    return arm


def test_enable_holds_the_measured_pose(arm, plant):
    assert np.array_equal(arm.feedback().position, POSE) and len(plant.commands) == 1
    assert arm.feedback().enabled == (True,) * 7 and arm.feedback().control_mode == 1


def test_enable_returns_the_pose_that_it_commanded(arm, plant):
    joints, gripper = plant.commands[0]
    plant.position = POSE + 0.01
    held = arm.enable()
    assert np.array_equal(held, POSE + 0.01) and np.array_equal(plant.commands[-1][0], held[:6])
    assert np.array_equal([*joints, gripper], POSE), 'that of the enabling before'


def test_a_pose_outside_the_range_is_refused(arm, plant):
    plant.position = POSE.copy()
    plant.position[0] = 3.0
    for refuse in (arm.check, arm.enable):
        with pytest.raises(ArmError, match='Arm pose joint1: got 3.000 rad'):
            refuse()
    assert len(plant.commands) == 1


def test_command_reaches_the_plant(arm, plant):
    assert arm.send(POSE + 0.01)
    assert np.allclose(plant.position, POSE + 0.01)


def test_bad_command_never_reaches_the_plant(arm, plant):
    bad = POSE.copy()
    bad[3] = np.nan
    with pytest.raises(ConfigError):
        arm.send(bad)
    assert len(plant.commands) == 1


def test_injected_fault_stops_commands_until_enabled_again(arm, plant):
    arm.inject_faults(('arm_collision',))
    assert not arm.send(POSE) and arm.stats().last_refusal == 'arm_collision'
    with pytest.raises(ArmError):
        arm.enable()
    assert arm.clear_faults(arm_supported=False).accepted
    assert not arm.send(POSE) and arm.stats().last_refusal == 'not_enabled'
    arm.check()
    arm.enable()
    assert arm.send(POSE)


def test_silence_longer_than_the_timeout_is_a_fault(arm, clock):
    arm.silence(True)
    clock.advance(100 * MS)
    assert arm.faults() == ()
    clock.advance(1)
    assert arm.faults() == ('feedback_lost',) and not arm.send(POSE)
    arm.silence(False)
    assert arm.faults() == () and arm.send(POSE)


def test_reading_at_time_zero_is_not_taken_for_none(plant):
    arm = DirectArm(plant, ManualClock(0), limits=piper_limits())
    arm.connect()
    assert arm.feedback().mono_ns > 0


def test_shadow_mode_moves_nothing(plant, clock):
    arm = DirectArm(plant, clock, limits=piper_limits(), send=False)
    arm.connect()
    arm.check()
    arm.enable()
    assert not arm.send(POSE + 0.01) and arm.stats().last_refusal == 'shadow'
    assert not plant.commands and arm.stats().is_shadow and arm.faults() == ()


def test_disconnected_arm_reads_nothing(plant, clock):
    arm = DirectArm(plant, clock, limits=piper_limits())
    clock.advance(S)
    assert arm.feedback().mono_ns == 0 and np.isnan(arm.feedback().position).all()
    with pytest.raises(ArmError):
        arm.check()
