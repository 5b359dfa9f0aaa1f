"""How a chunk joins the motion that the mover is in."""

from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.core.types import ArmState, RejectReason, Stitch, Verdict

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
    assert moving.offer(moving.chunk(start=move(0.3), to=move(0.3))) is None
    refused = moving.offer(moving.chunk(start=move(0.9), to=move(0.9), at_ns=moving.now.mono_ns))
    assert refused.reason is RejectReason.SEAM and '+0.900 rad' in refused.text


def test_an_older_observation_may_lie_further_off_by_what_the_arm_can_move(moving, move):
    """0.5 rad, and the velocity limit of 3 rad/s for the time since the frame."""
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
    assert moving.offer(moving.chunk(start=move(0.3), to=move(0.3), at_ns=first_ns)) is None
    late = moving.chunk(start=move(0.6), to=move(0.6), at_ns=first_ns + 100_000_000)
    assert moving.offer(late) is None
