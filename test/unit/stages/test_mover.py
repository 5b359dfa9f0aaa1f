"""How a chunk joins the motion that the mover is in."""

from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.arm.protocol import Sent
from reflex_ros.core.limits import Limiter, piper_limits
from reflex_ros.core.types import ArmState, Cause, RejectReason, Stitch, Verdict
from reflex_ros.stages.mover import Mover
from reflex_ros.study.fault_judge import judge

STEP = 5e-4
"""rad; what a blend of 60 ms takes up within the limits of the arm."""


def seams(rig, chunk):
    return [t.seam_position for t in rig.traces() if t.chunk_id == chunk.chunk_id]


@pytest.fixture
def moving(rig):
    """A rig that tracks the home pose."""
    r = rig()
    r.run_up()
    return r


def test_a_blended_chunk_starts_where_the_arm_was_going(moving, move):
    moving.offer(moving.chunk(start=move(STEP), to=move(STEP)))
    ticks = moving.tick(5)
    wanted = [t.setpoint[0] for t in ticks]
    assert wanted[0] == pytest.approx(0.0, abs=1e-12)
    assert wanted[3:] == pytest.approx([STEP] * 2)
    assert np.all(np.diff(wanted) >= 0.0)


def test_a_blend_within_the_limits_is_not_limited(moving, move):
    moving.offer(moving.chunk(start=move(STEP), to=move(STEP)))
    assert [t.verdict for t in moving.tick(5)] == [Verdict.FRESH] * 5


def test_a_step_that_is_not_blended_is_limited(moving, move):
    at = move(10 * STEP)
    moving.offer(moving.chunk(start=at, to=at, stitch=Stitch.REPLACE))
    assert moving.tick(1)[0].verdict is Verdict.LIMITED


@pytest.mark.parametrize('stitch', [Stitch.BLEND, Stitch.REPLACE])
def test_the_trace_tells_the_step_between_two_chunks(moving, move, stitch):
    chunk = moving.chunk(start=move(0.02), to=move(0.02), stitch=stitch)
    moving.offer(chunk)
    moving.tick(3)
    moving.offer(moving.chunk(start=move(0.02), to=move(0.02)))
    moving.tick(1)
    assert seams(moving, chunk) == pytest.approx([0.02])


def test_a_step_is_judged_from_the_motion_and_not_from_a_chunk_that_never_ran(moving, move):
    assert moving.offer(moving.chunk(start=move(0.15), to=move(0.15))) is None
    refused = moving.offer(moving.chunk(start=move(0.9), to=move(0.9), at_ns=moving.now.mono_ns))
    assert refused.reason is RejectReason.SEAM and '+0.900 rad' in refused.text


def test_an_older_observation_may_lie_further_off_by_what_the_arm_can_move(rig, move):
    """0.5 rad, and the velocity limit of 3 rad/s for the time since the frame."""
    moving = rig(blend_above_rad=10.0)
    moving.run_up()

    def offer(step, age_ms):
        stamp = moving.now.stamp_ns - age_ms * 1_000_000
        return moving.offer(moving.chunk(
            start=move(step), to=move(step), at_ns=moving.now.mono_ns, oldest_stamp_ns=stamp,
            observation_stamp_ns=stamp, newest_stamp_ns=stamp))

    refused = offer(0.9, 80)
    assert refused.reason is RejectReason.SEAM
    assert 'expected at most 0.800 rad (0.300 rad' in refused.text
    assert offer(0.9, 180) is None
    assert offer(1.3, 180).reason is RejectReason.SEAM


def test_row_0_of_a_chunk_that_ends_a_rest_has_no_such_freedom(rig, move):
    """The arm has not moved since the observation: a chunk that starts elsewhere is wrong."""
    resting = rig()
    resting.tick(3)
    stamp = resting.now.stamp_ns - 180_000_000
    far = resting.chunk(start=move(0.9), to=move(0.9), at_ns=resting.now.mono_ns - 180_000_000,
                        oldest_stamp_ns=stamp, observation_stamp_ns=stamp, newest_stamp_ns=stamp)
    refused = resting.offer(far)
    assert refused.reason is RejectReason.SEAM and 'expected at most 0.500 rad' in refused.text
    honest = resting.chunk(start=move(0.0), to=move(1.4), at_ns=resting.now.mono_ns - 180_000_000,
                           oldest_stamp_ns=stamp, observation_stamp_ns=stamp,
                           newest_stamp_ns=stamp)
    assert resting.offer(honest) is None


def test_a_hold_in_between_takes_that_freedom_away(moving, move):
    """The plan has run out and the arm has settled; what was seen since shows the held pose."""
    moving.offer(moving.chunk())
    moving.tick(45)
    assert moving.bridge.states.state is ArmState.HOLDING

    def offer(start, age_ms):
        stamp = moving.now.stamp_ns - age_ms * 1_000_000
        return moving.offer(moving.chunk(
            start=start, to=start, at_ns=moving.now.mono_ns - age_ms * 1_000_000,
            oldest_stamp_ns=stamp, observation_stamp_ns=stamp, newest_stamp_ns=stamp))

    refused = offer(move(0.7), 180)
    assert refused.reason is RejectReason.SEAM and 'expected at most 0.500 rad' in refused.text
    assert offer(move(0.0), 180) is None


def test_a_step_is_judged_from_the_waiting_chunk_that_runs_before_it(moving, move):
    moving.tick(1)
    first_ns = moving.next_due_ns + 40_000_000
    assert moving.offer(moving.chunk(start=move(0.15), to=move(0.15), at_ns=first_ns)) is None
    late = moving.chunk(start=move(0.3), to=move(0.3), at_ns=first_ns + 100_000_000)
    assert moving.offer(late) is None


# ---- ticks that sent nothing -----------------------------------------------------------------


class Wire:
    """What an arm was sent, and when."""

    def __init__(self, rig):
        self.rig, self.times, self.commands = rig, [], []
        self._send = rig.arm.send
        rig.arm.send = self.send
        self.is_full = False

    def send(self, position):
        if self.is_full:
            return Sent.nothing(7)
        self.times.append(self.rig.now.mono_ns / 1e9)
        self.commands.append(np.array(position))
        return self._send(position)

    def judge(self):
        return judge(np.array(self.times), np.array(self.commands), limits=piper_limits(),
                     period_s=0.02).violations

    def speed(self, at=-1):
        """Return the speed of joint1 between two commands, rad/s."""
        steps = np.diff(np.array(self.commands)[:, 0]) / np.diff(self.times)
        return steps[at]


@pytest.fixture
def fast(rig, move):
    """A rig whose joint1 is swept at 1.9 rad/s, the chunk live for another 20 ticks, its wire."""
    r = rig(max_age_ns=900_000_000)
    r.run_up()
    wire = Wire(r)
    r.offer(r.chunk(to=move(1.9), rows=50))
    r.tick(24)
    assert wire.speed() > 1.8
    return r, wire


@pytest.mark.parametrize('skipped', [1, 2, 3, 5, 10])
def test_after_skipped_ticks_a_fast_arm_starts_from_rest_on_a_live_chunk(fast, skipped):
    r, wire = fast
    r.index += skipped
    r.tick(60)
    assert wire.judge() == () and r.bridge.is_at_rest


@pytest.mark.parametrize('skipped', [25, 40])
def test_after_skipped_ticks_a_fast_arm_stays_at_its_last_command_if_the_chunk_died(fast, skipped):
    r, wire = fast
    there = wire.commands[-1]
    r.index += skipped
    ticks = r.tick(20)[skipped:]
    assert [t.command for t in ticks] == [pytest.approx(there)] * 20
    assert wire.judge() == ()


def test_late_ticks_are_a_gap_too(fast):
    r, wire = fast
    r.tick(4, late_ns=15_000_000)
    r.tick(20)
    assert wire.judge() == ()


def test_a_lost_tick_does_not_stop_a_fast_arm(fast):
    r, wire = fast
    r.index += 1
    r.tick(2)
    assert wire.speed() > 1.8 and r.bridge.states.state is ArmState.TRACKING


@pytest.mark.parametrize(('skipped', 'state'), [
    (4, ArmState.TRACKING), (5, ArmState.RAMP_IN)])
def test_a_pause_of_more_than_100_ms_ends_in_a_new_ramp(fast, skipped, state):
    r, wire = fast
    there = wire.commands[-1]
    r.index += skipped
    *missed, tick = r.tick()
    assert {(t.verdict, t.cause) for t in missed} == {(Verdict.HELD, Cause.TICK_LATE)}
    assert r.bridge.states.state is tick.arm_state is state
    if state is ArmState.RAMP_IN:
        assert wire.commands[-1] == pytest.approx(there)


@pytest.mark.parametrize('full', [1, 2, 3, 10])
def test_commands_that_the_bus_did_not_take_were_never_given(fast, full):
    r, wire = fast
    wire.is_full = True
    r.tick(full)
    wire.is_full = False
    r.tick(12)
    assert wire.judge() == ()


def test_joints_that_do_not_give_way_stay_where_a_gap_found_them(fast, move):
    r, wire = fast
    mover = r.bridge._mover
    there = wire.commands[-1]
    mover.disarm()
    mover.give_way(there - 0.01, np.arange(7) == 1)
    r.index += 10
    r.tick(20)
    last = wire.commands[-1]
    assert last[0] == pytest.approx(there[0]) and last[1] == pytest.approx(there[1] - 0.01)
    assert wire.judge() == ()


def test_a_shadow_goes_on_as_the_arm_would(rig, move):
    r = rig(send=False)
    r.run_up()
    r.offer(r.chunk(to=move(0.9), rows=50))
    assert r.tick(20)[-1].command[0] > 0.2


@pytest.mark.parametrize('planted', ['time', 'undo'])
def test_a_start_at_full_speed_is_seen_can_fail(fast, monkeypatch, planted):
    r, wire = fast
    if planted == 'time':
        monkeypatch.setattr(Mover, '_after_gap', lambda self, due_ns: None)
        r.index += 10
    else:
        monkeypatch.setattr(Limiter, 'undo', lambda self, joints: None)
        wire.is_full = True
        r.tick(3)
        wire.is_full = False
    r.tick(12)
    assert any('acceleration' in text for text in wire.judge())
