"""Contact: the arm gives way to what it pushes against, inside its limits, and waits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reflex_ros.core.clock import MS
from reflex_ros.core.limits import piper_limits
from reflex_ros.core.types import (
    JOINT_NAMES,
    ArmFeedback,
    ArmState,
    CameraStatus,
    Cause,
    RejectReason,
    StageStatus,
    Verdict,
)
from reflex_ros.stages import contact
from reflex_ros.stages.contact import LEAST_READINGS, ContactBounds, ContactWatch

TICK = 20 * MS
ZERO = np.zeros(7)


def reading(at_ms, *, position=None, effort=0.0, joint=1):
    torque = np.zeros(7)
    torque[joint] = effort
    return ArmFeedback(at_ms * MS, ZERO if position is None else position, ZERO, torque,
                       (True,) * 7, 1, 0)


def command(error, joint=1):
    wanted = ZERO.copy()
    wanted[joint] = error
    return wanted


def looks(watch, wanted, readings):
    return [watch.look(wanted, one) for one in readings]


@pytest.fixture
def watch():
    return ContactWatch(ContactBounds(), JOINT_NAMES)


def test_lag_with_high_current_for_a_tenth_of_a_second_is_contact(watch):
    found = looks(watch, command(0.2), [reading(20 * k, effort=9.0) for k in range(1, 8)])
    assert [one is not None for one in found] == [False] * 5 + [True, False]
    assert found[5].joints.tolist() == [False, True] + [False] * 5
    assert 'joint2' in found[5].text and '9.0 N' in found[5].text and 'resume' in found[5].text


@pytest.mark.parametrize('case', [
    {'effort': 7.9}, {'effort': 9.0, 'error': 0.11}, {'effort': float('nan')},
    {'effort': 9.0, 'joint': 6},
], ids=['weight', 'lag of a fast move', 'no current known', 'gripper'])
def test_one_sign_alone_is_no_contact(watch, case):
    joint, error = case.get('joint', 1), case.get('error', 0.2)
    readings = [reading(20 * k, effort=case['effort'], joint=joint) for k in range(1, 60)]
    assert not any(looks(watch, command(error, joint), readings))


def test_load_without_lag_is_named_and_moves_nothing(watch):
    assert watch.overload(reading(20, effort=7.9)) == ''
    assert 'joint2 9.0 N' in watch.overload(reading(20, effort=-9.0))
    assert watch.overload(reading(20, effort=float('nan'))) == ''


def test_two_damaged_readings_far_apart_are_no_contact(watch):
    readings = [reading(200, effort=9.0), reading(400, effort=9.0)]
    assert not any(looks(watch, command(0.2), readings))


@pytest.mark.parametrize('damaged', range(3))
def test_one_damaged_reading_is_not_where_the_arm_is(watch, damaged):
    """The arm is led to where it is: of the last three readings one may lie."""
    far = np.full(7, 2.0)
    readings = [reading(20 * k, effort=9.0, position=far if k == 6 - damaged else None)
                for k in range(1, 7)]
    found = looks(watch, command(0.2), readings)[-1]
    assert found.position.tolist() == [0.0] * 7 and 'got 0.20 rad behind' in found.text


def test_a_reading_that_is_seen_again_does_not_count_again(watch):
    assert not any(looks(watch, command(0.2), [reading(20, effort=9.0)] * 30))


def test_the_second_arm_has_its_own_joints(watch):
    names = tuple(side + name for side in ('left_', 'right_') for name in JOINT_NAMES)
    both = ContactWatch(ContactBounds(), names)
    wanted, effort = np.zeros(14), np.zeros(14)
    wanted[8], effort[8] = 0.2, 9.0
    one = ArmFeedback(0, np.zeros(14), np.zeros(14), effort, (True,) * 14, 1, 0)
    found = [both.look(wanted, replace(one, mono_ns=20 * k * MS)) for k in range(1, 8)]
    assert next(c for c in found if c).text.startswith('contact at right_joint2')


# ---- in the bridge ---------------------------------------------------------------------------


def blocked(r, monkeypatch, effort=10.0):
    """Let joint1 of the plant be stopped 0.2 rad behind its command by something."""
    where = r.plant.position.copy()
    feedback = r.arm.feedback

    def read():
        one = feedback()
        position, torque = one.position.copy(), np.zeros(7)
        position[0] = where[0]
        torque[0] = effort
        return replace(one, position=position, effort=torque)

    monkeypatch.setattr(r.arm, 'feedback', read)
    return where


def push(r, move, ticks=70):
    """Drive joint1 away from home until the arm is 0.2 rad ahead, and go on for a while."""
    r.offer(r.chunk(to=move(0.4), rows=30))
    return r.tick(ticks)


def test_a_blocked_arm_gives_way_to_where_it_was_measured_and_waits(rig, move, monkeypatch):
    r = rig(max_age_ns=2000 * MS)
    r.run_up()
    where = blocked(r, monkeypatch)
    ticks = push(r, move)
    assert max(t.command[0] for t in ticks) > where[0] + 0.12, 'it did push'
    assert ticks[-1].command[0] == pytest.approx(where[0], abs=1e-3), 'and does no more'
    assert ticks[-1].cause is Cause.TRACKING and ticks[-1].verdict is Verdict.HELD
    assert 'joint1' in r.bridge.contact
    assert r.offer(r.chunk()).reason is RejectReason.ARM_STATE, 'only the operator goes on'
    assert r.tick()[0].cause is Cause.TRACKING
    reply, _ = r.bridge.resume(r.now)
    assert reply.accepted and not r.bridge.contact


def led(r, move, monkeypatch):
    """Push until contact, whose last reading is damaged; return the furthest command after."""
    r.run_up()
    blocked(r, monkeypatch)
    honest = r.arm.feedback

    def feedback():
        found, watch = honest(), r.bridge._contacts
        if watch._readings[0] < LEAST_READINGS or found.mono_ns - watch._since_ns[0] < 100 * MS:
            return found
        return replace(found, position=found.position + 1.8 * (np.arange(7) == 0))

    monkeypatch.setattr(r.arm, 'feedback', feedback)
    r.offer(r.chunk(to=move(1.0), rows=100))
    before = 0.0
    while not r.bridge.contact:
        before = r.tick(1)[0].command[0]
    return max(t.command[0] for t in r.tick(20)) - before


def test_a_damaged_reading_does_not_lead_the_arm_into_what_blocks_it(rig, move, monkeypatch):
    assert led(rig(max_age_ns=3000 * MS), move, monkeypatch) < 0.05


def test_a_damaged_reading_does_not_lead_the_arm_can_fail(rig, move, monkeypatch):
    monkeypatch.setattr(contact, 'middle', lambda positions: positions[-1])
    assert led(rig(max_age_ns=3000 * MS), move, monkeypatch) > 0.1


def test_giving_way_keeps_the_limits(rig, move, monkeypatch):
    r = rig(max_age_ns=2000 * MS)
    r.run_up()
    blocked(r, monkeypatch)
    commands = np.array([t.command for t in push(r, move)])
    limits, h = piper_limits(), TICK / 1e9
    for bound in (limits.velocity, limits.acceleration, limits.jerk):
        commands = np.diff(commands, axis=0) / h
        assert (np.abs(commands) <= bound * (1 + 1e-6) + 1e-6).all()


def test_giving_way_can_fail(rig, move, monkeypatch):
    """Without current the arm goes on pushing: the check above would see it."""
    r = rig(max_age_ns=2000 * MS)
    r.run_up()
    where = blocked(r, monkeypatch, effort=0.0)
    assert push(r, move)[-1].command[0] > where[0] + 0.12
    assert not r.bridge.contact


def test_shadow_mode_knows_no_contact(rig, move, monkeypatch):
    r = rig(send=False, max_age_ns=2000 * MS)
    r.run_up()
    blocked(r, monkeypatch)
    push(r, move)
    assert not r.bridge.contact


# ---- a camera that repeats its picture -------------------------------------------------------


def camera(r, equal_frames):
    now = r.now.mono_ns
    seen = CameraStatus('main', 0, now, now - 600 * MS, equal_frames)
    return StageStatus(number=1, stamp_ns=0, node='vision_encoder', state='active',
                       last_input_ns=now, last_output_ns=now, busy_since_ns=0, sent_ns=now,
                       cameras=(seen,))


def moves_with(r, move, equal_frames):
    r.run_up()
    r.offer(r.chunk(to=move(0.3), rows=60))
    ticks = []
    for _ in range(15):
        r.bridge.status(camera(r, equal_frames), r.now)
        ticks += r.tick(2)
    return ticks


def test_a_frozen_camera_holds_the_arm_though_chunks_go_on(rig, move):
    r = rig(max_age_ns=2000 * MS)
    ticks = moves_with(r, move, 12)
    assert {t.cause for t in ticks} == {Cause.CAMERA_FROZEN}
    assert r.bridge.states.state is ArmState.HOLDING
    assert np.ptp([t.command[0] for t in ticks]) < 1e-3
    r.bridge.status(camera(r, 0), r.now)
    r.offer(r.chunk(start=ticks[-1].command))
    assert r.tick(2)[-1].verdict is Verdict.FRESH, 'it goes on by itself'


def test_a_frozen_camera_can_fail(rig, move):
    ticks = moves_with(rig(max_age_ns=2000 * MS), move, 5)
    assert np.ptp([t.command[0] for t in ticks]) > 0.05
