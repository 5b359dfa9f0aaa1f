"""Every refusal refuses, says what to do, and lets a healthy arm pass."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reflex_ros.arm import checks, wire
from reflex_ros.core.clock import S
from reflex_ros.core.errors import ArmError, ConfigError
from reflex_ros.core.limits import piper_limits
from reflex_ros.core.types import JOINT_NAMES

LIMITS = piper_limits()
JUMP = np.array([0.35] * 6 + [0.05])
POSE = np.array([0.0, 0.5, -0.7, 0.0, 0.2, 0.0, 0.035])


def refuse(call, *args, **kwargs):
    with pytest.raises(ArmError) as caught:
        call(*args, **kwargs)
    text = str(caught.value)
    assert 'got' in text and 'expected' in text and text.rstrip().endswith('.')
    return caught.value.code


def check(position, last=POSE):
    return checks.check_command(position, JOINT_NAMES, limits=LIMITS, last=last, max_jump=JUMP)


def test_good_command_passes_unchanged_as_a_copy():
    command = check(POSE)
    assert np.array_equal(command, POSE) and command is not POSE


def changed(i, value):
    command = POSE.copy()
    command[i] = value
    return command


@pytest.mark.parametrize('bad', [
    changed(2, np.nan), changed(6, np.inf), changed(0, 200.0), changed(1, -0.01),
    changed(6, 0.0702), changed(3, 0.4), changed(6, 0.09), POSE[:6], POSE.reshape(1, 7), None,
    'left', [object()] * 7,
])
def test_bad_command_is_refused(bad):
    with pytest.raises(ConfigError) as caught:
        check(bad)
    assert 'Nothing was sent' in str(caught.value)


def test_bad_command_is_named_by_joint():
    with pytest.raises(ConfigError, match='Command joint3: got nan'):
        check(changed(2, np.nan))
    with pytest.raises(ConfigError, match=r'Command joint4: got 0\.4.* last command'):
        check(changed(3, 0.4))


def test_a_joint_sent_where_it_stands_does_not_jump():
    last, there = np.zeros(7), np.zeros(7)
    there[0] = 0.8
    with pytest.raises(ConfigError, match='of the last command'):
        checks.check_command(there, JOINT_NAMES, limits=LIMITS, last=last, max_jump=JUMP)
    with pytest.raises(ConfigError, match='of the last command'):
        checks.check_command(there, JOINT_NAMES, limits=LIMITS, last=last, max_jump=JUMP,
                             measured=np.full(7, np.nan))
    measured = there + 0.005
    sent = checks.check_command(there, JOINT_NAMES, limits=LIMITS, last=last, max_jump=JUMP,
                                measured=measured)
    assert sent[0] == there[0]


def test_jump_needs_a_last_command():
    assert check(changed(3, 0.4), last=None)[3] == 0.4


def test_rounding_past_the_limit_is_clipped():
    assert check(changed(1, -5e-5), last=None)[1] == 0.0


def test_healthy_arm_passes_every_check(healthy, now_ns):
    view = healthy()
    checks.check_feedback(view, ())
    checks.check_mode(view, now_ns=now_ns)
    checks.check_faults(view)
    limits = checks.arm_limits(view, LIMITS, gripper_max_m=0.07)
    assert np.allclose(limits.upper, LIMITS.upper, atol=1e-3)
    assert np.allclose(checks.check_pose(view.position, JOINT_NAMES, limits), view.position)


def test_zeros_without_frames_are_not_a_pose(healthy):
    view = healthy(joints_ns=0, joints_mdeg=(0,) * 6, status=None)
    assert refuse(checks.check_feedback, view, wire.CYCLIC_IDS) == 'feedback_none'
    assert refuse(checks.check_feedback, healthy(joints_ns=0), ()) == 'feedback_incomplete'


def test_slow_feedback_is_a_warning(rates):
    assert checks.rate_warnings(rates) == ()
    rates[0x2A5] = 90.0
    assert '0x2A5 90 Hz' in checks.rate_warnings(rates)[0]


def test_missing_id_is_named(healthy):
    with pytest.raises(ArmError, match='0x263') as caught:
        checks.check_feedback(healthy(), (0x263,))
    assert caught.value.code == 'feedback_incomplete'


@pytest.mark.parametrize('change', [
    {'joints_ns': 0, 'status': None, 'foreign_ns': 99 * S}, {'leader_ns': 99 * S},
])
def test_leader_traffic_is_recognised(healthy, change):
    assert refuse(checks.check_feedback, healthy(**change), wire.CYCLIC_IDS) == 'leader_mode'


def test_arm_that_is_a_follower_again_is_not_taken_for_a_leader(healthy):
    checks.check_feedback(healthy(leader_ns=S, foreign_ns=S), ())


@pytest.mark.parametrize(('mode', 'code'), [
    (2, 'teach_mode'), (6, 'leader_mode'), (3, 'control_mode'), (4, 'control_mode'),
    (5, 'control_mode'), (7, 'control_mode'),
])
def test_mode_of_somebody_else_is_refused(healthy, now_ns, mode, code):
    view = healthy(status=wire.Status(mode, 0, 1, 0, 0, 0, 0))
    assert refuse(checks.check_mode, view, now_ns=now_ns) == code


def test_foreign_commander_is_refused_while_recent(healthy, now_ns):
    view = healthy(foreign_ns=now_ns - S // 2, foreign_id=0x155)
    assert refuse(checks.check_mode, view, now_ns=now_ns) == 'foreign_commander'
    checks.check_mode(healthy(foreign_ns=now_ns - 2 * S), now_ns=now_ns)


def status(arm_status=0, limit=0, comm=0):
    return wire.Status(1, arm_status, 1, 0, 0, limit, comm)


@pytest.mark.parametrize(('change', 'code'), [
    ({'status': status(1)}, 'arm_estop'),
    ({'status': status(4)}, 'arm_target_beyond_limit'),
    ({'status': status(0x42)}, 'arm_status_unknown'),
    ({'status': status(0, limit=0b10)}, 'joint2_angle_limit'),
    ({'status': status(0, comm=0b100000)}, 'joint6_no_comm'),
    ({'drivers': (wire.DriverState(24.0, 35, 38, 0x44),) * 6}, 'joint1_overcurrent'),
    ({'gripper': wire.GripperState(0.0, 0.0, 0x60)}, 'gripper_error'),
])
def test_reported_fault_is_refused(healthy, change, code):
    assert refuse(checks.check_faults, healthy(**change)) == code


def test_homed_gripper_is_not_a_fault(healthy):
    checks.check_faults(healthy(gripper=wire.GripperState(0.0, 0.0, 0xC0)))


def test_firmware_gate():
    assert refuse(checks.check_firmware, '', '1.7-3') == 'firmware_unknown'
    assert refuse(checks.check_firmware, 'S-V1.6-5', '1.7-3') == 'firmware_old'
    assert any('older than' in text for text in checks.check_firmware('S-V1.8-3', '1.7-3'))
    assert any('mode codes' in text for text in checks.check_firmware('S-V1.8-9', '1.7-3'))


def limits_of(view, gripper=0.07):
    return checks.arm_limits(view, LIMITS, gripper_max_m=gripper)


def joint(view, number, **change):
    angles = dict(view.angle_limits)
    angles[number] = angles[number]._replace(**change)
    return angles


def test_unanswered_limits_are_refused(healthy):
    view = healthy()
    without = {i: v for i, v in view.angle_limits.items() if i != 4}
    assert refuse(limits_of, healthy(angle_limits=without)) == 'limits_unknown'
    assert refuse(limits_of, healthy(acceleration_limits={})) == 'limits_unknown'


@pytest.mark.parametrize('change', [
    {'lower_rad': math.radians(-0.1), 'upper_rad': math.radians(0.1)},
    {'lower_rad': 1.0, 'upper_rad': -1.0},
    {'speed_rad_s': 0.0},
    {'speed_rad_s': 65.535},
])
def test_implausible_limits_are_refused(healthy, change):
    angles = joint(healthy(), 3, **change)
    assert refuse(limits_of, healthy(angle_limits=angles)) == 'limits_implausible'


def test_corrupt_acceleration_is_refused(healthy):
    rates = dict(healthy().acceleration_limits)
    rates[2] = wire.AccelerationLimit(2, 655.34)
    assert refuse(limits_of, healthy(acceleration_limits=rates)) == 'limits_implausible'


def test_ranges_without_overlap_are_refused(healthy):
    angles = joint(healthy(), 3, lower_rad=0.5, upper_rad=1.5)
    assert refuse(limits_of, healthy(angle_limits=angles)) == 'limits_disjoint'


def test_limits_are_the_intersection(healthy):
    angles = joint(healthy(), 1, lower_rad=-1.0, upper_rad=9.0, speed_rad_s=1.5)
    limits = limits_of(healthy(angle_limits=angles), gripper=0.05)
    assert limits.lower[0] == -1.0 and limits.upper[0] == LIMITS.upper[0]
    assert limits.velocity[0] == 1.5 and limits.upper[6] == 0.05


def test_gripper_range():
    assert refuse(checks.check_gripper_range, 0.0, 0.07) == 'gripper_range_zero'
    assert checks.check_gripper_range(0.1, 0.07) == (0.07, '')
    assert checks.check_gripper_range(0.05, 0.07) == (0.05, '')
    assert checks.check_gripper_range(None, 0.07)[1]


def test_pose_leaning_on_a_stop_is_held_inside_and_a_far_one_refused():
    lean = POSE.copy()
    lean[1] = -0.05
    assert checks.check_pose(lean, JOINT_NAMES, LIMITS)[1] == 0.0
    lean[1] = -0.5
    assert refuse(checks.check_pose, lean, JOINT_NAMES, LIMITS) == 'pose_implausible'
    lean[1] = np.nan
    assert refuse(checks.check_pose, lean, JOINT_NAMES, LIMITS) == 'pose_implausible'


def test_empty_frames_are_not_the_zero_pose(healthy):
    blank = wire.DriverState(0.0, 0, 0, 0)
    view = healthy(joints_mdeg=(0,) * 6, drivers=(blank,) * 6)
    assert refuse(checks.check_feedback, view, ()) == 'feedback_zeros'


@pytest.mark.parametrize('changes', [
    {'joints_mdeg': (0,) * 6},
    {'joints_mdeg': (0, 0, 0, 0, 0, 3), 'drivers': (wire.DriverState(0.0, 0, 0, 0),) * 6},
], ids=['the zero pose of a powered arm', 'an angle'])
def test_empty_frames_can_fail(healthy, changes):
    checks.check_feedback(healthy(**changes), ())


@pytest.mark.parametrize('opening', [-0.02, 0.09, float('nan')])
def test_gripper_with_a_wrong_zero_is_refused(opening):
    pose = changed(6, opening)
    assert refuse(checks.check_pose, pose, JOINT_NAMES, LIMITS) == 'gripper_uncalibrated'


def test_gripper_with_a_wrong_zero_can_fail():
    assert checks.check_pose(changed(6, -0.004), JOINT_NAMES, LIMITS)[6] == 0.0
    assert checks.check_pose(changed(6, 0.075), JOINT_NAMES, LIMITS)[6] == 0.07


def test_gripper_that_does_not_know_its_zero_is_named(healthy):
    assert checks.gripper_warnings(healthy()) == ()
    lost = healthy(gripper=wire.GripperState(0.035, 0.0, 0x40))
    assert 'zero' in checks.gripper_warnings(lost)[0]
