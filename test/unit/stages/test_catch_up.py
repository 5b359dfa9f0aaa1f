"""The command stream never jumps, and joints that are behind their chunk do not sprint."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reflex_ros.arm.protocol import Sent
from reflex_ros.core.clock import MS
from reflex_ros.core.interpolate import Setpoint
from reflex_ros.core.limits import Limiter, piper_limits
from reflex_ros.core.types import ArmState, Verdict
from reflex_ros.stages import bridge_readings
from reflex_ros.stages.mover import Mover

SPEED = 1.5
"""rad/s of joint1 in the chunk."""
FACTOR = 1.25


def sweep(r):
    """Return a chunk that accelerates joint1 and goes on at its speed."""
    chunk = r.chunk(rows=80)
    t = np.arange(80) * 0.02
    rows = chunk.positions.copy()
    rows[:, 0] = np.minimum(np.where(t < 0.3, 2.5 * t * t, 0.225 + SPEED * (t - 0.3)), 2.2)
    return replace(chunk, positions=rows)


@pytest.fixture
def swept(rig):
    """Return rigs whose joint1 is at speed."""
    def make(**config):
        r = rig(max_age_ns=2000 * MS, **config)
        r.run_up()
        assert r.offer(sweep(r)) is None
        assert speeds(r, r.tick(25))[-1] == pytest.approx(SPEED)
        return r

    return make


def speeds(r, ticks):
    """Return the speed of joint1 in each tick but the first, rad/s."""
    del r
    return np.abs(np.diff([t.command[0] for t in ticks])) / 0.02


def within_limits(commands):
    """Return whether commands keep all limits, by order."""
    for bound in (piper_limits().velocity, piper_limits().acceleration, piper_limits().jerk):
        commands = np.diff(commands, axis=0) / 0.02
        if (np.abs(commands) > bound * (1.0 + 1e-6) + 1e-6).any():
            return False
    return True


# ---- after a hold, a gap ---------------------------------------------------------------------


def after_hold(r, ticks):
    """Let joint5 be pushed for some ticks, then let go of it; return the speeds after that."""
    r.plant.offset[4] = 0.3
    held = r.tick(ticks)
    assert {t.verdict for t in held} == {Verdict.HELD}
    r.plant.offset[4] = 0.0
    return speeds(r, [held[-1], *r.tick(25)])


@pytest.mark.parametrize('ticks', [2, 6, 12, 18])
def test_after_a_hold_the_arm_is_little_faster_than_its_chunk(swept, ticks):
    r = swept()
    found = after_hold(r, ticks)
    assert SPEED < found.max() <= FACTOR * SPEED * (1.0 + 1e-6)
    assert r.bridge.states.state is ArmState.TRACKING


def test_after_a_hold_the_arm_is_little_faster_can_fail(swept):
    assert after_hold(swept(catch_up_factor=1000.0), 12).max() > 2.4


@pytest.mark.parametrize('skipped', [1, 3, 4, 8, 12])
def test_after_lost_ticks_the_arm_is_little_faster_than_its_chunk(swept, skipped):
    r = swept()
    r.index += skipped
    found = speeds(r, r.tick(25)[skipped:])
    assert found.max() <= FACTOR * SPEED * (1.0 + 1e-6)


def test_after_lost_ticks_the_arm_is_little_faster_can_fail(swept):
    r = swept(catch_up_factor=1000.0)
    r.index += 4
    assert speeds(r, r.tick(25)[4:]).max() > FACTOR * SPEED * 1.1


def after_every_other(r, lose):
    """Lose every other of eight commands; return the speeds on the wire meanwhile and after."""
    ticks = r.tick(1)
    for _ in range(4):
        ticks += lose(r)
        ticks += r.tick(1)
    sent = [t for t in [*ticks, *r.tick(20)] if t.is_sent]
    times = np.diff([t.due_ns for t in sent]) / 1e9
    return np.abs(np.diff([t.command[0] for t in sent])) / times


def skip(r):
    r.index += 1
    return []


def late(r):
    return r.tick(1, late_ns=11 * MS)


def not_taken(r):
    send, r.arm.send = r.arm.send, lambda command: Sent.nothing(len(command))
    ticks = r.tick(1)
    r.arm.send = send
    return ticks


@pytest.mark.parametrize('lose', [skip, late, not_taken])
def test_lost_commands_one_by_one_are_made_up_for_at_little_more(swept, lose):
    """None of them ends the motion, but all together the joint falls behind its chunk."""
    assert after_every_other(swept(), lose).max() <= FACTOR * SPEED * (1.0 + 1e-6)


@pytest.mark.parametrize('lose', [skip, late, not_taken])
def test_lost_commands_one_by_one_can_fail(swept, lose):
    assert after_every_other(swept(catch_up_factor=1000.0), lose).max() > FACTOR * SPEED * 1.1


def test_what_was_missed_is_made_up_for_and_the_bound_ends(swept):
    r = swept()
    after_hold(r, 2)
    tick = r.tick(24)[-1]
    assert tick.verdict is Verdict.FRESH and tick.command == pytest.approx(tick.setpoint)
    assert not r.bridge._mover._is_catching_up


def test_a_slow_chunk_is_caught_up_with_at_a_speed_of_its_own(rig, move):
    """A pose that another chunk asks for after a hold is still reached."""
    r = rig(max_age_ns=2000 * MS)
    r.run_up()
    r.tick(30)
    assert r.bridge.states.state is ArmState.HOLDING
    assert r.offer(r.chunk(start=move(0.4), rows=90)) is None
    ticks = r.tick(70)
    assert speeds(r, ticks).max() <= 0.5 * (1.0 + 1e-6)
    assert ticks[-1].command[0] == pytest.approx(0.4)


@pytest.mark.parametrize('least', [0.5, 2.0])
def test_a_limiter_that_is_slowed_down_brakes_to_the_bound_within_its_limits(least):
    limiter = Limiter(piper_limits(), period_ns=20 * MS)
    start = np.array([0.0, 1.0, -1.0, 0.0, 0.0, 0.0, 0.02])
    limiter.reset(start)
    away = start + np.array([2.0, 0, 0, 0, 0, 0, 0])
    commands = [start, start, start]
    for n in range(80):
        if n == 15:
            limiter.slow_down(np.full(7, least))
        commands.append(limiter.step(Setpoint(away, np.zeros(7))).position)
    found = np.diff(np.array(commands)[:, 0]) / 0.02
    assert within_limits(np.array(commands))
    assert found[40:60].max() <= least * (1.0 + 1e-6) and found[:18].max() > 1.0


# ---- resume ----------------------------------------------------------------------------------


def pushed_while_it_brakes(r, joint=4):
    """Hold an arm at speed and push another joint aside; return what was commanded so far."""
    r.bridge.hold(r.now)
    r.plant.offset[joint] = 0.3
    return r.tick(8)


def test_resume_is_refused_while_the_commands_of_a_pushed_arm_brake(swept):
    r = swept()
    braked = pushed_while_it_brakes(r)
    reply = r.bridge.resume(r.now)[0]
    assert not reply.accepted and 'still brakes' in reply.reason
    commands = np.array([t.command for t in [*braked, *r.tick(20)]])
    assert within_limits(commands)


def test_resume_leads_the_commands_to_a_pushed_arm_within_the_limits(swept):
    r = swept()
    ticks = [*pushed_while_it_brakes(r), *r.tick(25)]
    there = r.plant.position + r.plant.offset
    assert r.bridge.resume(r.now)[0].accepted
    r.plant.offset[4] = 0.0
    ticks += r.tick(60)
    assert within_limits(np.array([t.command for t in ticks]))
    assert ticks[-1].command[0] == pytest.approx(there[0])


def test_a_pushed_arm_that_stays_there_is_where_the_ramp_begins(rig):
    r = rig()
    r.run_up()
    r.bridge.hold(r.now)
    r.plant.offset[0], where = 0.3, 0.3
    r.tick(8)
    assert r.bridge.resume(r.now)[0].accepted
    ticks = []
    for _ in range(60):  # somebody keeps it where it is
        r.plant.offset[0] = where - r.plant.position[0]
        ticks += r.tick()
    assert within_limits(np.array([t.command for t in ticks]))
    assert ticks[-1].command[0] == pytest.approx(where) and r.bridge.is_at_rest
    assert r.bridge.resume(r.now)[0].accepted
    pose = ticks[-1].command
    assert r.offer(r.chunk(start=pose)) is None
    ramped = r.tick(3)
    assert {t.verdict for t in ramped} == {Verdict.RAMPING}
    assert [t.command[0] for t in ramped] == [pytest.approx(where)] * 3


def test_resume_leads_there_within_the_limits_can_fail(swept, monkeypatch):
    def jump(self, there=None):
        if there is not None:
            self.seed(there)
        arm_motion(self)

    arm_motion = Mover.arm_motion
    monkeypatch.setattr(Mover, 'arm_motion', jump)
    r = swept()
    ticks = [*pushed_while_it_brakes(r), *r.tick(25)]
    assert r.bridge.resume(r.now)[0].accepted
    assert not within_limits(np.array([t.command for t in [*ticks, *r.tick(5)]]))


def test_a_hold_on_the_way_stops_there(rig):
    r = rig()
    r.run_up()
    r.bridge.hold(r.now)
    r.plant.offset[0] = 0.4
    r.tick(8)
    r.bridge.resume(r.now)
    assert r.bridge.resume(r.now)[0].reason == 'already on its way to where the arm rests'
    r.tick(10)
    assert r.bridge.hold(r.now)[0].accepted
    ticks = r.tick(30)
    assert 0.0 < ticks[-1].command[0] < 0.35 and r.bridge.is_at_rest
    assert within_limits(np.array([t.command for t in ticks]))


def test_a_gripper_that_grips_keeps_its_command(rig):
    r = rig()
    r.run_up()
    r.bridge.hold(r.now)
    r.plant.offset[0], r.plant.offset[6] = 0.3, 0.01
    r.tick(8)
    assert r.bridge.resume(r.now)[0].accepted
    ticks = r.tick(40)
    assert [t.command[6] for t in ticks] == [pytest.approx(0.02)] * 40


def test_an_arm_that_drifts_does_not_rest(rig):
    r = rig()
    r.run_up()
    r.bridge.hold(r.now)
    for n in range(12):
        r.plant.offset[0] = 0.3 + 0.004 * n  # 0.2 rad/s
        r.tick()
    assert 'does not rest' in r.bridge.resume(r.now)[0].reason


def test_an_arm_that_drifts_can_fail(rig, monkeypatch):
    monkeypatch.setattr(bridge_readings, 'RESTING_RAD', 1.0)
    r = rig()
    r.run_up()
    r.bridge.hold(r.now)
    for n in range(12):
        r.plant.offset[0] = 0.3 + 0.004 * n
        r.tick()
    assert r.bridge.resume(r.now)[0].accepted
