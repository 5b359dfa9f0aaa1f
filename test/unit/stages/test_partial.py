"""A command of which only a part left: what moved goes on, the rest starts from where it is.

The frames of a command leave one after the other, and two arms have two buses: any of them may not
be taken. Each joint's stream, as its own arm saw it, keeps the limits.
"""

from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.arm.direct import DirectArm
from reflex_ros.arm.protocol import Sent
from reflex_ros.arm.several import SeveralArms
from reflex_ros.core.clock import MS, ManualClock, S
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.limits import Limiter, piper_limits
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
from reflex_ros.study.fault_judge import judge

HOME = np.array([0.0, 1.0, -1.0, 0.0, 0.5, 0.0, 0.02])
TICK = 20 * MS
FRAMES = (slice(0, 2), slice(2, 4), slice(4, 6), slice(6, 7))


class Frames(DirectArm):
    """An arm whose bus does not take some frames of the next commands; each joint has its wire."""

    def __init__(self, clock, side):
        super().__init__(self, clock, limits=piper_limits(),
                         names=tuple(f'{side}{name}' for name in JOINT_NAMES))
        self.clock, self.pose = clock, HOME.copy()
        self.lost, self.refused = [], 0
        self.wires = [([], []) for _ in HOME]

    def command(self, joints_rad, gripper_m):
        """Take a pose, as the plant that this arm is too."""

    def joint_state(self):
        return self.pose.copy(), np.zeros(7)

    def send(self, position):
        if self.refused:
            self.refused -= 1
            raise ConfigError('command: got a jump, expected none.')
        columns = np.ones(7, bool)
        for frame in self.lost.pop(0) if self.lost else ():
            columns[FRAMES[frame]] = False
        if not super().send(np.where(columns, position, self.pose)):
            return Sent.nothing(7)
        for joint in np.flatnonzero(columns):
            self.pose[joint] = position[joint]
            times, values = self.wires[joint]
            times.append(self.clock.mono_ns() / S)
            values.append(position[joint])
        return Sent(columns)

    def judge(self):
        """Return what is wrong with each joint's wire, as its own stream."""
        found = []
        for joint, (times, values) in enumerate(self.wires):
            pose = np.tile(HOME, (len(times), 1))
            pose[:, joint] = values
            found += judge(np.array(times), pose, limits=piper_limits(),
                           period_s=0.02).violations
        return found

    def speed(self, at=-1):
        times, values = self.wires[0]
        return np.diff(values)[at] / np.diff(times)[at]


class Moving:
    """A bridge over one or two such arms whose first and fifth joints move at 1.5 rad/s."""

    def __init__(self, count, *, period_ns=TICK):
        self.clock, self.index, self.chunks = ManualClock(S), 0, 0
        self.period_ns = period_ns
        self.arms = [Frames(self.clock, side) for side in ('left_', 'right_')[:count]]
        self.arm = self.arms[0] if count == 1 else SeveralArms(
            {arm.names[0].split('_')[0]: arm for arm in self.arms})
        self.bridge = Bridge(self.arm, BridgeConfig(
            period_ns=period_ns, ramp_ns=100 * MS, instruction='go', is_autostarted=True,
            max_age_ns=4 * S), self.clock)
        self.bridge.connect()
        self.bridge.activate()
        self.offer()
        self.tick(round(0.9 * S / period_ns))
        assert min(arm.speed() for arm in self.arms) > 1.4

    def tick(self, count=1, *, late_ns=0):
        ticks = []
        for _ in range(count):
            due_ns = S + self.index * self.period_ns
            self.clock.sleep_until(due_ns + late_ns)
            ticks += [o.value for o in self.bridge.step(self.clock.now(), due_ns, self.index)
                      if isinstance(o.value, ControlTick)]
            self.index += 1
        return ticks

    def offer(self):
        times_s = np.arange(150) * 0.02
        way = np.where(times_s < 0.3, 0.0, np.where(
            times_s < 0.6, 2.5 * (times_s - 0.3)**2, 0.225 + 1.5 * (times_s - 0.6)))
        rows = np.tile(HOME, (150, len(self.arms)))
        for n in range(len(self.arms)):
            rows[:, 7 * n] += np.minimum(way, 2.2)
            rows[:, 7 * n + 4] -= np.minimum(way, 1.4)
        now, self.chunks = self.clock.now(), self.chunks + 1
        at_ns = now.stamp_ns - now.mono_ns + S + self.index * self.period_ns
        self.bridge.offer(ActionChunk(
            number=self.chunks, chunk_id=self.chunks, block_number=self.chunks,
            epoch=self.bridge.epoch, observation_stamp_ns=now.stamp_ns,
            newest_stamp_ns=now.stamp_ns, oldest_stamp_ns=now.stamp_ns, step0_at_ns=at_ns,
            state_at_ns=at_ns, step_period_ns=TICK, execute_steps=5, joint_names=self.arm.names,
            positions=rows, predicted_state=rows[0], stitch=Stitch.BLEND, entry=Entry.ALIGNED,
            inference_start_ns=now.mono_ns, inference_start_stamp_ns=now.stamp_ns), now)

    def judge(self):
        return [text for arm in self.arms for text in arm.judge()]


LOSSES = [[(frame,)] for frame in range(4)] + [
    [(0, 1, 2, 3)], [(2, 3)], [(0,), (0,)], [(2,), ()] * 4, [(0,), (1,), (2,), (0, 1)],
    [(0, 1, 2, 3)] * 2, [(0,)] * 3, [(0,)] * 4]


@pytest.mark.parametrize('count', [1, 2])
@pytest.mark.parametrize('lost', LOSSES, ids=str)
def test_what_left_goes_on_and_what_did_not_begins_where_it_is(count, lost):
    moving = Moving(count)
    moving.arms[-1].lost = list(lost)
    moving.tick(60)
    assert moving.judge() == [] and moving.bridge.states.state is ArmState.TRACKING


@pytest.mark.parametrize('count', [1, 2])
def test_what_left_is_not_seen_to_stop_or_start(count):
    """The joints of the frames that were taken go on at their speed; the record says it."""
    moving = Moving(count)
    speed = moving.arms[0].speed()
    moving.arms[-1].lost = [(2,)]
    tick = moving.tick()[-1]
    assert not tick.is_sent
    for _ in range(10):
        assert moving.arms[0].speed() == pytest.approx(speed, abs=1e-6)
        moving.tick()


def test_an_arm_that_refuses_does_not_keep_the_other_from_its_command():
    moving = Moving(2)
    moving.arms[1].refused = 1
    moving.tick()
    assert moving.bridge.states.state is ArmState.FAULTED
    moving.tick(40)
    assert moving.judge() == [] and moving.arms[0].speed() == 0.0


@pytest.mark.parametrize('lost', [[(0,)], [(0, 1, 2, 3)], [(1,), (0,)]], ids=str)
def test_an_arm_that_is_braked_for_the_other_s_fault_is_braked_on_if_a_frame_is_lost(lost):
    moving = Moving(2)
    moving.arms[1].inject_faults(('gripper_sensor',))
    moving.tick(2)
    moving.arms[0].lost = list(lost)
    moving.tick(50)
    assert moving.judge() == [] and moving.arms[0].speed() == 0.0
    assert len(moving.arms[0].wires[0][0]) > len(moving.arms[1].wires[0][0]) + 10
    assert moving.bridge.is_at_rest


def test_a_fault_in_which_no_frame_leaves_any_more_comes_to_an_end():
    moving = Moving(2)
    moving.arms[1].inject_faults(('gripper_sensor',))
    moving.tick(2)
    moving.arms[0].lost = [(0, 1, 2, 3)] * 99
    assert not moving.bridge.is_at_rest
    moving.tick(5)
    assert moving.bridge.is_at_rest


def test_a_frame_that_is_never_taken_brings_the_arm_to_rest():
    moving = Moving(1)
    moving.arms[0].lost = [(2,)] * 99
    moving.tick(40)
    assert moving.judge() == [] and moving.arms[0].speed() == 0.0


@pytest.mark.parametrize('count', [1, 2])
def test_undoing_what_left_is_seen_can_fail(count, monkeypatch):
    undo = Limiter.undo
    monkeypatch.setattr(Limiter, 'undo', lambda self, joints: undo(self) if joints.any() else None)
    moving = Moving(count)
    moving.arms[-1].lost = [(2,)]
    moving.tick(20)
    assert 'acceleration' in '\n'.join(moving.judge())


def test_an_arm_that_keeps_the_other_from_its_command_is_seen_can_fail(monkeypatch):
    def send(self, position):
        return Sent(np.concatenate([arm.send(position[part]).columns for arm, part in zip(
            self._arms.values(), self._parts, strict=True)]))

    monkeypatch.setattr(SeveralArms, 'send', send)
    moving = Moving(2)
    moving.arms[1].refused = 1
    moving.tick(40)
    assert moving.judge() != []


# ---- other rates -------------------------------------------------------------------------------


@pytest.mark.parametrize(('skipped', 'goes_on'), [(1, True), (2, True), (7, True), (8, False)])
def test_at_200_hz_a_gap_ends_a_motion_after_the_same_time(skipped, goes_on):
    """The arm is on its way for as long as at 50 Hz: 40 ms, seven lost ticks."""
    moving = Moving(1, period_ns=5 * MS)
    moving.index += skipped
    moving.tick()
    times, values = moving.arms[0].wires[0]
    assert bool((values[-1] - values[-2]) / 0.005 > 1.4) is goes_on


# ---- a rest that was promised ------------------------------------------------------------------


@pytest.mark.parametrize('how', ['late', 'lost'])
def test_a_rest_that_was_not_sent_is_sent_by_the_next_tick(how):
    """A plan was dropped; the tick that rests for it is overdue or its frames are not taken."""
    moving = Moving(1)
    moving.bridge.set_instruction('another', moving.clock.now())
    if how == 'late':
        feedback = moving.arms[0].feedback

        def late():
            del moving.arms[0].feedback
            moving.clock.advance(11 * MS)
            return feedback()

        moving.arms[0].feedback = late
    else:
        moving.arms[0].lost = [(0, 1, 2, 3)]
    missed = moving.tick()[-1]
    assert not missed.is_sent
    assert (missed.verdict, missed.cause) == (Verdict.HELD, Cause.INSTRUCTION)
    moving.offer()
    rest = moving.tick()[-1]
    assert rest.is_sent and (rest.verdict, rest.cause) == (Verdict.HELD, Cause.INSTRUCTION)
    assert moving.bridge.states.state is ArmState.HOLDING
