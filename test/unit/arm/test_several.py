"""Two arms as one: every vector side by side, a fault of one a fault of both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reflex_ros.arm.direct import DirectArm
from reflex_ros.arm.faults import explain
from reflex_ros.arm.several import SeveralArms
from reflex_ros.core.clock import MS, ManualClock, S
from reflex_ros.core.errors import ArmError, ConfigError
from reflex_ros.core.limits import piper_limits
from reflex_ros.core.params import defaults
from reflex_ros.core.types import JOINT_NAMES
from reflex_ros.stages.build import channels_from, make_driver

LEFT = np.array([0.0, 0.5, -0.7, 0.0, 0.2, 0.0, 0.035])
RIGHT = LEFT + 0.01
BOTH = np.array([*LEFT, *RIGHT])


class Plant:
    """Arrives at once."""

    def __init__(self, position):
        self.position, self.commands = position.copy(), 0

    def command(self, joints_rad, gripper_m):
        self.position, self.commands = np.append(joints_rad, gripper_m), self.commands + 1

    def joint_state(self):
        return self.position.copy(), np.zeros(7)


class Pair:
    """Two direct arms on a manual clock."""

    def __init__(self):
        self.clock = ManualClock(S)
        self.plants = {'left': Plant(LEFT), 'right': Plant(RIGHT)}
        self.one = {
            side: DirectArm(plant, self.clock, limits=piper_limits(),
                            names=tuple(f'{side}_{name}' for name in JOINT_NAMES))
            for side, plant in self.plants.items()}
        self.arm = SeveralArms(self.one)

    def ready(self):
        self.arm.connect()
        self.report = self.arm.check()
        self.held = self.arm.enable()
        return self


@pytest.fixture
def pair():
    return Pair().ready()


def test_vectors_stand_side_by_side(pair):
    assert pair.arm.names[0] == 'left_joint1' and pair.arm.names[13] == 'right_gripper'
    assert np.array_equal(pair.arm.feedback().position, BOTH)
    assert np.array_equal(pair.report.position, BOTH) and np.array_equal(pair.held, BOTH)
    assert pair.arm.limits().upper.shape == (14,) and pair.arm.feedback().control_mode == 1
    assert pair.report.firmware == 'left direct, right direct'


def test_each_arm_gets_its_part(pair):
    command = BOTH.copy()
    command[[0, 7]] = 0.1, -0.2
    assert pair.arm.send(command)
    assert pair.plants['left'].position[0] == 0.1
    assert pair.plants['right'].position[0] == -0.2
    assert pair.arm.stats().sent_commands == 2


def test_a_fault_of_one_stops_both(pair):
    pair.one['right'].inject_faults(('joint2_stall',))
    before = [plant.commands for plant in pair.plants.values()]
    assert pair.arm.faults() == ('right:joint2_stall',) and not pair.arm.send(BOTH)
    assert [plant.commands for plant in pair.plants.values()] == before
    assert explain('right:joint2_stall').startswith('right:joint2_stall: Motor stalled.')


def test_a_fault_of_one_stops_both_can_fail(pair):
    before = [plant.commands for plant in pair.plants.values()]
    assert pair.arm.send(BOTH)
    assert [plant.commands for plant in pair.plants.values()] != before


def test_recovery_asks_the_faulted_arm_and_checks_both(pair):
    pair.one['right'].inject_faults(('joint2_stall',))
    reply = pair.arm.clear_faults(arm_supported=False)
    assert reply.accepted and reply.reason.startswith('right: ') and not pair.arm.faults()
    pair.arm.check()
    pair.arm.enable()
    assert pair.arm.send(BOTH)


def test_enabling_can_be_ended_between_two_arms(pair):
    asked = []

    def go_on():
        asked.append(len(asked))
        if len(asked) == 2:
            raise ArmError('got a hold, expected none', code='recovery_ended')

    before = [plant.commands for plant in pair.plants.values()]
    with pytest.raises(ArmError, match='got a hold'):
        pair.arm.enable(go_on=go_on)
    assert [plant.commands for plant in pair.plants.values()] == [before[0] + 1, before[1]]


def test_feedback_is_as_old_as_the_oldest(pair):
    pair.one['left'].silence(True)
    pair.clock.advance(150 * MS)
    assert pair.arm.feedback().mono_ns == S
    assert pair.arm.stats().feedback_age_ns == 150 * MS
    assert pair.arm.faults() == ('left:feedback_lost',)


def misses_faults(arm, wanted):
    """Return whether a reading is without faults that are in force."""
    assert arm.faults() == wanted
    return arm.feedback().faults != wanted


def test_a_reading_has_the_faults_in_force(pair):
    left, right = pair.one.values()
    left.silence(True)
    pair.clock.advance(150 * MS)
    right.inject_faults(('joint2_stall',))
    assert not misses_faults(left, ('feedback_lost',))
    assert not misses_faults(right, ('joint2_stall',))
    assert not misses_faults(pair.arm, ('left:feedback_lost', 'right:joint2_stall'))


def test_the_faults_of_a_reading_can_fail(pair, monkeypatch):
    reading = replace(pair.one['left'].feedback(), faults=())
    pair.one['left'].inject_faults(('joint2_stall',))
    monkeypatch.setattr(DirectArm, 'feedback', lambda self: reading)
    assert misses_faults(pair.one['left'], ('joint2_stall',))


def test_an_arm_that_does_not_connect_leaves_none_open():
    pair = Pair()

    def refuse():
        raise ArmError('CAN: got no server, expected one. Start it.', code='can_unreachable')

    pair.one['right'].connect = refuse
    with pytest.raises(ArmError):
        pair.arm.connect()
    assert not pair.one['left'].stats().is_connected


def test_a_command_for_one_arm_alone_is_refused(pair):
    with pytest.raises(ConfigError, match=r'expected \(14,\)'):
        pair.arm.send(LEFT)


def test_two_arms_with_the_same_joints_are_refused():
    clock = ManualClock(S)
    arms = {side: DirectArm(Plant(LEFT), clock, limits=piper_limits()) for side in 'ab'}
    with pytest.raises(ConfigError, match='own prefix'):
        SeveralArms(arms)


# ---- by configuration ------------------------------------------------------------------------


def params(*several):
    return {**defaults('controller_bridge'), 'arm.several': several}


def test_arms_come_from_the_parameters():
    assert channels_from(params()) == {}
    arm = make_driver(params('left=can_left', 'right = can_right'), ManualClock(S))
    assert arm.names == tuple(f'{side}_{name}' for side in ('left', 'right')
                              for name in JOINT_NAMES)
    assert make_driver(params(), ManualClock(S)).names == JOINT_NAMES


@pytest.mark.parametrize('several', [
    ('left',), ('left=',), ('=can0',), ('left=can0', 'left=can1'), ('left=can0', 'right=can0'),
    ('a b=can0',),
])
def test_arms_that_share_a_name_or_a_channel_are_refused(several):
    with pytest.raises(ConfigError, match='own CAN channel'):
        channels_from(params(*several))
