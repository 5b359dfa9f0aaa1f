"""Two arms under one bridge: a fault of one brakes the other within its limits."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

from reflex_ros.arm.direct import DirectArm
from reflex_ros.arm.protocol import Sent
from reflex_ros.arm.several import SeveralArms
from reflex_ros.core.clock import MS, ManualClock, S
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.limits import piper_limits
from reflex_ros.core.types import (
    JOINT_NAMES,
    ActionChunk,
    ArmState,
    Cause,
    ControlTick,
    Entry,
    Stitch,
    Verdict,
)
from reflex_ros.stages.bridge import Bridge
from reflex_ros.stages.bridge_config import BridgeConfig
from reflex_ros.stages.bridge_recovery import Recovery
from reflex_ros.study.fault_judge import judge

HOME = np.tile([0.0, 1.0, -1.0, 0.0, 0.5, 0.0, 0.02], 2)
TICK = 20 * MS
SIDES = ('left', 'right')


class Plant:
    """Is where it was told to be, and remembers what it was told."""

    def __init__(self, clock):
        self.clock, self.pose = clock, HOME[:7].copy()
        self.times, self.commands = [], []

    def command(self, joints_rad, gripper_m):
        self.pose = np.array([*joints_rad, gripper_m])
        self.times.append(self.clock.mono_ns() / S)
        self.commands.append(self.pose)

    def joint_state(self):
        return self.pose, np.zeros(7)

    def judge(self):
        return judge(np.array(self.times), np.array(self.commands), limits=piper_limits(),
                     period_s=0.02).violations

    @property
    def speed(self):
        return abs(self.commands[-1][0] - self.commands[-2][0]) / 0.02


class Pair:
    """A bridge whose two arms move their joint1 at 1.9 rad/s."""

    def __init__(self):
        self.clock, self.index, self.chunks = ManualClock(S), 0, 0
        self.plants = {side: Plant(self.clock) for side in SIDES}
        self.one = {side: DirectArm(plant, self.clock, limits=piper_limits(),
                                    names=tuple(f'{side}_{name}' for name in JOINT_NAMES))
                    for side, plant in self.plants.items()}
        self.arm = SeveralArms(self.one)
        self.bridge = Bridge(self.arm, BridgeConfig(
            ramp_ns=100 * MS, instruction='go', is_autostarted=True), self.clock)
        self.bridge.connect()
        self.bridge.activate()
        for _ in range(6):
            self.offer(HOME, 20)
            self.tick(5)
        far = HOME.copy()
        far[[0, 7]] = 1.9
        self.offer(far, 50)
        self.tick(22)
        assert min(plant.speed for plant in self.plants.values()) > 1.8

    def tick(self, count=1, *, late_ns=0):
        ticks = []
        for _ in range(count):
            due_ns = S + self.index * TICK
            self.clock.sleep_until(due_ns + late_ns)
            ticks += [o.value for o in self.bridge.step(self.clock.now(), due_ns, self.index)
                      if isinstance(o.value, ControlTick)]
            self.index += 1
        return ticks

    def offer(self, to, rows):
        now, self.chunks = self.clock.now(), self.chunks + 1
        seen_ns = now.stamp_ns - 30 * MS
        at_ns = now.stamp_ns - now.mono_ns + S + self.index * TICK
        self.bridge.offer(ActionChunk(
            number=self.chunks, chunk_id=self.chunks, block_number=self.chunks,
            epoch=self.bridge.epoch, observation_stamp_ns=seen_ns, newest_stamp_ns=seen_ns,
            oldest_stamp_ns=seen_ns, step0_at_ns=at_ns, state_at_ns=at_ns, step_period_ns=TICK,
            execute_steps=5, joint_names=self.arm.names,
            positions=np.linspace(HOME, to, rows), predicted_state=HOME, stitch=Stitch.BLEND,
            entry=Entry.ALIGNED, inference_start_ns=now.mono_ns - 20 * MS,
            inference_start_stamp_ns=now.stamp_ns - 20 * MS), now)

    def count(self, side):
        return len(self.plants[side].commands)


@pytest.fixture
def pair():
    return Pair()


@pytest.mark.parametrize(('faulted', 'healthy'), [SIDES, SIDES[::-1]])
def test_a_fault_of_one_brakes_the_other_within_its_limits(pair, faulted, healthy):
    before = pair.count(faulted)
    pair.one[faulted].inject_faults(('gripper_sensor',))
    ticks = pair.tick(40)
    plant = pair.plants[healthy]
    assert plant.judge() == () and plant.speed == 0.0
    assert pair.count(faulted) == before
    assert pair.bridge.states.state is ArmState.FAULTED
    assert {(t.verdict, t.cause) for t in ticks} == {(Verdict.STOPPED, Cause.ARM_FAULT)}


def test_nothing_is_sent_once_the_other_stands(pair):
    pair.one['left'].inject_faults(('gripper_sensor',))
    pair.tick(40)
    before, ticks = pair.count('right'), pair.tick(20)
    assert pair.count('right') == before and not any(t.is_sent for t in ticks)


def test_the_bridge_is_not_at_rest_before_the_other_arm_is(pair):
    pair.one['left'].inject_faults(('gripper_sensor',))
    pair.tick(3)
    assert not pair.bridge.is_at_rest
    pair.tick(40)
    assert pair.bridge.is_at_rest


def test_an_arm_that_fell_silent_gets_nothing_and_the_other_is_braked(pair):
    pair.one['left'].silence(True)
    pair.tick(10)
    assert pair.bridge.states.state is ArmState.FAULTED
    before = pair.count('left')
    pair.tick(40)
    assert pair.count('left') == before
    assert pair.plants['right'].judge() == () and pair.plants['right'].speed == 0.0


def test_an_arm_whose_fault_is_over_gets_nothing_either(pair):
    pair.one['left'].inject_faults(('gripper_sensor',))
    pair.tick(2)
    before = pair.count('left')
    pair.one['left'].inject_faults(())
    pair.tick(40)
    assert not pair.arm.faults() and pair.count('left') == before


def test_an_arm_that_refuses_its_command_is_left_out(pair):
    def refuse(position):
        raise ConfigError('command: got a jump, expected none.')

    pair.one['left'].send = refuse
    pair.tick(40)
    assert pair.bridge.states.state is ArmState.FAULTED
    assert pair.plants['right'].judge() == () and pair.plants['right'].speed == 0.0


@pytest.mark.parametrize('skipped', [3, 10])
def test_an_arm_that_stopped_in_a_gap_is_not_set_in_motion_to_brake_it(pair, skipped):
    pair.one['left'].inject_faults(('gripper_sensor',))
    before = pair.count('right')
    pair.index += skipped
    pair.tick(20)
    assert pair.count('right') == before


def test_both_move_again_after_a_recovery(pair):
    pair.one['left'].inject_faults(('gripper_sensor',))
    pair.tick(40)
    assert pair.bridge.recover(arm_supported=True).accepted
    assert pair.bridge.resume(pair.clock.now())[0].accepted
    assert pair.tick(3)[-1].is_sent
    pair.one['right'].inject_faults(('gripper_sensor',))
    before = pair.count('left')
    assert pair.arm.brake(pair.arm.feedback().position, seen_after_ns=0).columns[:7].all()
    assert pair.count('left') == before + 1


def test_a_stream_that_is_cut_is_seen_can_fail(pair, monkeypatch):
    monkeypatch.setattr(SeveralArms, 'brake', lambda self, position, **_: Sent.nothing(14))
    pair.one['left'].inject_faults(('gripper_sensor',))
    pair.tick(40)
    assert pair.plants['right'].speed > 1.8 and pair.bridge.is_at_rest


# ---- a recovery has the arms for itself ---------------------------------------------------------


class Calls:
    """Notes who sends while a recovery runs, and lets the loop tick in the middle of it."""

    def __init__(self, pair):
        self.pair, self.sent_in_it, self.before = pair, 0, 0
        self.clear = pair.arm.clear_faults
        pair.arm.clear_faults = self.in_the_middle

    def in_the_middle(self, **kwargs):
        before = sum(len(plant.commands) for plant in self.pair.plants.values())
        self.pair.tick(5)
        self.sent_in_it += sum(
            len(plant.commands) for plant in self.pair.plants.values()) - before
        return self.clear(**kwargs)


def test_a_recovery_waits_until_the_other_arm_rests(pair):
    calls = Calls(pair)
    pair.one['left'].inject_faults(('gripper_sensor',))
    pair.tick(2)
    reply = pair.bridge.recover(arm_supported=True)
    assert not reply.accepted and 'still being brought to rest' in reply.reason
    pair.tick(40)
    assert pair.plants['right'].judge() == () and pair.plants['right'].speed == 0.0
    assert pair.bridge.recover(arm_supported=True).accepted and calls.sent_in_it == 0


def test_a_recovery_waits_for_the_first_tick_after_the_fault_too(pair):
    """The send itself failed: no tick has begun to brake the other arm yet."""
    def refuse(position):
        raise ConfigError('command: got a jump, expected none.')

    pair.one['left'].send = refuse
    pair.tick()
    assert pair.bridge.states.state is ArmState.FAULTED
    assert 'still being brought to rest' in pair.bridge.recover(arm_supported=True).reason


def test_the_tick_sends_nothing_while_a_recovery_runs(pair, monkeypatch):
    """Even if it began while the other arm was in motion."""
    monkeypatch.setattr(Recovery, '_refusal', lambda self, arm_supported: None)
    calls = Calls(pair)
    pair.one['left'].inject_faults(('gripper_sensor',))
    pair.tick(2)
    pair.bridge.recover(arm_supported=True)
    assert calls.sent_in_it == 0


def test_two_senders_are_seen_can_fail(pair, monkeypatch):
    monkeypatch.setattr(Recovery, '_refusal', lambda self, arm_supported: None)
    monkeypatch.setattr(Recovery, 'braking', lambda self: nullcontext(True))
    calls = Calls(pair)
    pair.one['left'].inject_faults(('gripper_sensor',))
    pair.tick(2)
    pair.bridge.recover(arm_supported=True)
    assert calls.sent_in_it > 0
