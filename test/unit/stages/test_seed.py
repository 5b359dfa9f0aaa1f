"""Where the command stream begins, and the limits that it keeps from there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reflex_ros.arm import direct
from reflex_ros.arm.states import may_send
from reflex_ros.core.clock import S
from reflex_ros.core.errors import ArmError
from reflex_ros.core.limits import Limiter, piper_limits
from reflex_ros.core.types import ArmState
from reflex_ros.stages import mover
from reflex_ros.stages.mover import Mover


def joint1(ticks):
    return np.array([t.command[0] for t in ticks])


def begun_beside_a_damaged_reading(r, *, how):
    """Recover or activate, the first reading after it being wrong; return joint2's commands."""
    r.run_up()
    sent, command, enable = [], r.plant.command, r.arm.enable

    def noted(joints, gripper):
        sent.append(joints[1])
        command(joints, gripper)

    def enabled(**kwargs):
        pose = enable(**kwargs)
        r.plant.offset[1] = 0.3
        return pose

    r.plant.command, r.arm.enable = noted, enabled
    if how == 'recover':
        r.arm.inject_faults(('arm_estop',))
        r.tick(2)
        sent.clear()
        assert r.bridge.recover(arm_supported=True).accepted
    else:
        stopped(r)
        sent.clear()
        r.bridge.activate(may_autostart=False)
    r.plant.offset[1] = 0.0
    r.tick(3)
    return sent


def stopped(r):
    """Deactivate, so that the next activation checks the arm again."""
    r.bridge.request_stop(r.now)
    r.tick(5)
    r.bridge.close(r.now)
    r.clock.advance(S)
    r.index, r.start_ns = 0, r.now.mono_ns


@pytest.mark.parametrize('how', ['recover', 'activate'])
def test_the_stream_begins_at_the_pose_that_enabling_proved(rig, how):
    sent = begun_beside_a_damaged_reading(rig(), how=how)
    assert len(sent) == 4 and sent == pytest.approx([1.0] * 4)


def test_the_stream_begins_at_the_pose_that_enabling_proved_can_fail(rig, monkeypatch):
    seed = Mover.seed
    monkeypatch.setattr(
        Mover, 'seed', lambda self, pose: seed(self, self._arm.feedback().position))
    sent = begun_beside_a_damaged_reading(rig(), how='recover')
    assert sent == pytest.approx([1.0, 1.3, 1.3, 1.3])


def resumed_beside_a_damaged_reading(r):
    """Resume after a push of 0.3 rad, the second reading being wrong; return the command."""
    r.run_up()
    r.bridge.hold(r.now)
    r.plant.offset[1] = 0.3
    r.tick(6)
    read, asked = r.arm.feedback, []

    def feedback():
        asked.append(read())
        r.plant.offset[1] = 0.6
        return asked[-1]

    r.arm.feedback = feedback
    assert r.bridge.resume(r.now)[0].accepted
    return r.bridge._mover.held[1]


def test_resume_begins_at_the_reading_that_it_judged(rig):
    assert resumed_beside_a_damaged_reading(rig()) == pytest.approx(1.3)


def test_resume_begins_at_the_reading_that_it_judged_can_fail(rig, monkeypatch):
    arm_motion = Mover.arm_motion
    monkeypatch.setattr(Mover, 'arm_motion', lambda self, there=None: arm_motion(
        self, self._arm.feedback().position))
    assert resumed_beside_a_damaged_reading(rig()) == pytest.approx(1.6)


# ---- limits of a re-check --------------------------------------------------------------------


def begun_anew(r, how, **changes):
    """Recover or activate an arm that says at its check that its limits changed."""
    r.run_up()
    r.arm._limits = replace(r.arm.limits(), **changes)
    if how == 'recover':
        r.arm.inject_faults(('arm_estop',))
        r.tick(2)
        assert r.bridge.recover(arm_supported=True).accepted
        r.bridge.resume(r.now)
    else:
        stopped(r)
        r.bridge.activate()
    r.run_up()


def fastest(r, move):
    """Return the largest speed of joint1 on its way to 0.9 rad, rad/s."""
    r.offer(r.chunk(to=move(0.9), rows=50))
    return float(np.abs(np.diff(joint1(r.tick(30)))).max() / 0.02)


@pytest.mark.parametrize('how', ['recover', 'activate'])
def test_limits_that_a_new_check_found_are_kept(rig, move, how):
    r = rig()
    begun_anew(r, how, velocity=r.arm.limits().velocity * 0.1)
    assert 0.2 < fastest(r, move) <= 0.3 * (1.0 + 1e-6)


def test_limits_that_a_new_check_found_are_kept_can_fail(rig, move, monkeypatch):
    old = piper_limits()
    monkeypatch.setattr(mover, 'Limiter', lambda limits, **kwargs: Limiter(old, **kwargs))
    r = rig()
    begun_anew(r, 'recover', velocity=r.arm.limits().velocity * 0.1)
    assert fastest(r, move) > 1.0


@pytest.mark.parametrize('how', ['recover', 'activate'])
def test_a_range_that_a_new_check_found_is_kept(rig, move, how):
    r = rig()
    upper = r.arm.limits().upper.copy()
    upper[0] = 0.2
    begun_anew(r, how, upper=upper)
    r.offer(r.chunk(to=move(0.9), rows=50))
    commands = joint1(r.tick(60))
    assert r.bridge.states.state is not ArmState.FAULTED
    assert 0.15 < commands.max() <= 0.2 + 1e-9


def refused_outside(r, how):
    """Begin anew where the range now ends before the arm; return why not, and what was sent."""
    r.run_up()
    sent = []
    if how == 'recover':
        r.arm.inject_faults(('arm_estop',))
        r.tick(2)
    else:
        stopped(r)
    r.plant.command = lambda joints, gripper: sent.append(joints)
    upper = r.arm.limits().upper.copy()
    upper[1] = 0.8
    r.arm._limits = replace(r.arm.limits(), upper=upper)
    if how == 'recover':
        reason = r.bridge.recover(arm_supported=True).reason
        r.tick(5)
        return reason, sent
    with pytest.raises(ArmError) as caught:
        r.bridge.activate()
    return str(caught.value), sent


@pytest.mark.parametrize('how', ['recover', 'activate'])
def test_an_arm_outside_its_new_range_is_refused_and_not_moved(rig, how):
    r = rig()
    reason, sent = refused_outside(r, how)
    assert reason.startswith('Arm pose joint2: got 1.000 rad, expected 0.000 to 0.800 rad.')
    assert not sent and not may_send(r.bridge.states.state)


def test_a_stream_never_begins_outside_the_range_whoever_enabled_the_arm(rig, monkeypatch):
    """The arm's own refusals are gone: the stream has its own."""
    monkeypatch.setattr(direct, 'check_pose', lambda pose, names, limits: pose)
    r = rig()
    reason, sent = refused_outside(r, 'recover')
    assert reason.startswith('Arm pose joint2: got 1.000 rad')
    assert len(sent) == 1 and sent[0][1] == 1.0, 'the pose that it held'
    assert r.bridge.states.state is ArmState.FAULTED


def test_an_arm_pushed_out_of_its_range_is_not_resumed_there(rig):
    r = rig()
    r.run_up()
    r.bridge.hold(r.now)
    r.plant.offset[4] = 1.0
    held = r.tick(6)[-1].command
    reply = r.bridge.resume(r.now)[0]
    assert not reply.accepted and reply.reason.startswith('Arm pose joint5: got 1.500 rad')
    assert r.tick(3)[-1].command == pytest.approx(held)
