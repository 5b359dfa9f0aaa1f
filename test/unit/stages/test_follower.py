"""Active and waiting chunks."""

from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.core.clock import MS, S
from reflex_ros.core.interpolate import Setpoint
from reflex_ros.core.types import Stitch
from reflex_ros.stages.follower import MOST_ROWS, MOST_WAITING, Follower, make_running

TICK = 20 * MS


@pytest.fixture
def make(rig, move):
    r = rig(activate=False)

    def running(at_ns, *, rad=0.0, rows=10, **changes):
        chunk = r.chunk(start=move(rad), to=move(rad), rows=rows, **changes)
        return make_running(chunk, step0_ns=at_ns, observation_ns=at_ns - 50 * MS,
                            accepted_ns=at_ns, covered_ns=0)

    return running


def test_a_chunk_covers_its_rows_and_the_period_of_the_last(make):
    running = make(S)
    assert not running.covers(S - 1, S)
    assert running.covers(S, S) and running.covers(S + 10 * TICK - 1, S)
    assert not running.covers(S + 10 * TICK, S)


def test_a_chunk_ends_with_the_age_of_its_observation(make):
    running = make(S)
    assert running.covers(S + 50 * MS, 100 * MS) and not running.covers(S + 51 * MS, 100 * MS)
    assert running.live_until(100 * MS) == S + 50 * MS
    assert running.live_until(10 * S) == S + 10 * TICK


def test_rows_are_counted_from_row_0(make):
    assert make(S).row(S + 30 * MS) == 1.5


def test_nothing_switches_before_row_0_is_due(make, home):
    follower = Follower()
    follower.offer(make(S))
    assert not follower.is_due(S - 1)
    assert follower.switch(S - 1, Setpoint(home, np.zeros(7))) == () and follower.active is None
    follower.switch(S, None)
    assert follower.active.entered_row == 0 and follower.pending is None


def test_a_late_chunk_enters_at_the_row_that_is_due(make):
    follower = Follower()
    follower.offer(make(S))
    follower.switch(S + 70 * MS, None)
    assert follower.active.entered_row == 3


def test_blend_starts_where_the_arm_was_going_and_ends_on_the_chunk(make, move):
    follower = Follower(blend_ns=60 * MS)
    follower.offer(make(S, rad=0.1))
    follower.switch(S, Setpoint(move(0.0), np.zeros(7)))
    assert follower.setpoint(S).position[0] == pytest.approx(0.0)
    assert follower.setpoint(S + 60 * MS).position[0] == pytest.approx(0.1)
    assert follower.active.seam.position == pytest.approx(0.1)


def test_replace_jumps_to_the_chunk_but_tells_the_seam(make, move):
    follower = Follower()
    follower.offer(make(S, rad=0.1, stitch=Stitch.REPLACE))
    follower.switch(S, Setpoint(move(0.0), np.zeros(7)))
    assert follower.setpoint(S).position[0] == pytest.approx(0.1)
    assert follower.active.seam.position == pytest.approx(0.1)


def test_nothing_is_stitched_where_a_ramp_leads_over(make):
    follower = Follower()
    follower.offer(make(S, rad=0.1))
    follower.switch(S, None)
    assert follower.active.seam is None
    assert follower.setpoint(S).position[0] == pytest.approx(0.1)


def test_the_newest_of_several_due_chunks_takes_over_and_the_others_end(make):
    follower, first, second, third = Follower(), make(S), make(S + TICK), make(S + 9 * TICK)
    for running in (first, second, third):
        assert follower.offer(running) == ()
    assert follower.switch(S + 2 * TICK, None) == (first,)
    assert follower.active is second and follower.pending is third


def test_a_newer_chunk_replaces_only_what_begins_no_earlier(make):
    follower, early, late, new = Follower(), make(S), make(S + 9 * TICK), make(S + 5 * TICK)
    follower.offer(early)
    follower.offer(late)
    assert follower.offer(new) == (late,)
    assert follower.pending is early and follower.newest is new


def test_waiting_chunks_are_bounded(make):
    follower = Follower()
    replaced = [r for i in range(50) for r in follower.offer(make(S + i * TICK))]
    assert len(follower.drop()) == MOST_WAITING and len(replaced) == 50 - MOST_WAITING


def test_the_remaining_plan_changes_over_to_the_waiting_chunk(make):
    follower = Follower()
    follower.offer(make(S, rad=0.1))
    follower.switch(S, None)
    follower.offer(make(S + 4 * TICK, rad=0.2))
    times, rows = follower.remaining(S + 2 * TICK)
    assert times[0] == S + 2 * TICK and times[-1] == S + 13 * TICK
    assert rows[:, 0].tolist() == pytest.approx([0.1] * 2 + [0.2] * 10)


def test_without_an_active_chunk_there_is_no_plan(make):
    follower = Follower()
    follower.offer(make(S))
    assert len(follower.remaining(S)[0]) == 0 and follower.setpoint(S) is None


def test_drop_returns_every_chunk_once(make):
    follower, first, second = Follower(), make(S), make(S + 5 * TICK)
    follower.offer(first)
    follower.switch(S, None)
    follower.offer(second)
    assert follower.drop() == (first, second) and follower.drop() == ()


def test_an_opening_beyond_the_gripper_is_clamped_and_joints_are_not(rig, move):
    r = rig(activate=False)
    chunk = r.chunk(start=move(9.0), to=move(9.0), rows=3)
    chunk.positions[:, 6] = [-0.01, 0.05, 0.09]
    running = make_running(chunk, step0_ns=S, observation_ns=S, accepted_ns=S, covered_ns=0,
                           gripper_m=(0.0, 0.07))
    openings = [running.path.at(S + k * TICK).position[6] for k in range(3)]
    assert openings == [0.0, 0.05, 0.07]
    assert running.path.at(S).position[0] == chunk.positions[0, 0]
    assert chunk.positions[2, 6] == 0.09


@pytest.mark.parametrize('step_ns', [1_000_000, TICK])
def test_a_long_or_dense_chunk_publishes_few_rows_at_the_instants_of_commands(rig, home, step_ns):
    """1000 rows took 9.5 ms to convert in the thread of the loop."""
    r = rig(max_age_ns=2 * S)
    r.run_up()
    chunk = r.chunk(rows=1000, step_period_ns=step_ns)
    chunk.positions[:, 0] = 0.2 * np.linspace(0.0, 1.0, 1000)**2
    assert r.offer(chunk) is None
    ticks = r.tick(12)
    plan = next(p for p in reversed(r.plans()) if p.stamp_ns < ticks[4].stamp_ns)
    assert 40 < len(plan.setpoints) <= MOST_ROWS
    assert set(np.diff(plan.setpoint_stamps_ns)) == {TICK}
    wanted = dict(zip(plan.setpoint_stamps_ns.tolist(), plan.setpoints, strict=True))
    sent = {t.stamp_ns: t.setpoint for t in ticks if t.stamp_ns in wanted}
    assert len(sent) > 7
    assert all(np.allclose(wanted[at], sent[at], atol=1e-9) for at in sent)
