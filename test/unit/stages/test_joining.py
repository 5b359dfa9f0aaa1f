"""A step that is too large for what a chunk asked for is blended within the limits, or refused."""

from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.core import fit
from reflex_ros.core.clock import MS
from reflex_ros.core.fit import Fit
from reflex_ros.core.limits import piper_limits
from reflex_ros.core.stitch import blend, measure_seam
from reflex_ros.core.types import ArmState, Fate, RejectReason, Stitch, Verdict
from reflex_ros.stages.follower import Follower
from reflex_ros.stages.mover import Mover

FIVE_CM = 0.1
"""rad; 5 cm at the tip of an arm that reaches half a metre."""
TIGHT = {'max_seam_rad': 0.01}
"""A bound of 0.055 rad at the 50 ms that the observations of these chunks are old at the switch,
for an arm of 0.9 rad/s; 0.163 rad if they wait for six ticks more."""
STEP = 0.2
ROWS = 40


@pytest.fixture
def moving(rig):
    """Return rigs that track the home pose."""
    def make(**config):
        r = rig(activate=False, max_age_ns=2000 * MS, **config)
        r.arm._limits = piper_limits().scaled(0.3)
        r.bridge.connect()
        r.bridge.activate()
        r.run_up()
        return r

    return make


def joined(rig, chunk) -> str:
    return next(t.text for t in rig.traces() if t.chunk_id == chunk.chunk_id)


def step(rig, pose, **changes):
    """Offer a chunk that stays in a pose; return it and what was answered at once."""
    chunk = rig.chunk(start=pose, to=pose, rows=ROWS, **changes)
    return chunk, rig.offer(chunk)


def finish(rig, pose, ticks: int):
    """Run ticks, then let a further chunk end the one before; return the records."""
    records = rig.tick(ticks)
    rig.offer(rig.chunk(start=pose, to=pose))
    rig.tick(1)
    return records


@pytest.mark.parametrize('stitch', list(Stitch))
def test_a_seam_of_5_cm_is_blended_whatever_the_chunk_asked_for(moving, move, stitch):
    r = moving()
    chunk, answer = step(r, move(FIVE_CM), stitch=stitch)
    assert answer is None
    records = finish(r, move(FIVE_CM), 22)
    assert {t.verdict for t in records} == {Verdict.FRESH}
    assert records[-1].command[0] == pytest.approx(FIVE_CM, abs=1e-9)
    assert joined(r, chunk).endswith(
        f's to stay within the limits (asked for {stitch.value})')
    assert 'followed by chunk' in joined(r, chunk) and '; blended over 0.3' in joined(r, chunk)
    assert [t.seam_position for t in r.traces() if t.chunk_id == chunk.chunk_id] == (
        pytest.approx([FIVE_CM]))


@pytest.mark.parametrize('stitch', list(Stitch))
def test_a_seam_of_5_cm_is_blended_can_fail(moving, move, stitch):
    """Left to the stitcher the same step is cut by the limiter."""
    r = moving(blend_above_rad=10.0)
    chunk, _ = step(r, move(FIVE_CM), stitch=stitch)
    assert Verdict.LIMITED in {t.verdict for t in finish(r, move(FIVE_CM), 22)}
    assert 'blended' not in joined(r, chunk)


def test_a_small_step_joins_as_the_chunk_asks(moving, move):
    r = moving()
    chunk, _ = step(r, move(0.04), stitch=Stitch.REPLACE)
    assert r.tick(1)[0].setpoint[0] == pytest.approx(0.04)
    finish(r, move(0.04), 5)
    assert 'blended' not in joined(r, chunk)


def test_the_plan_shows_the_blend(moving, move):
    r = moving()
    step(r, move(FIVE_CM), stitch=Stitch.REPLACE)
    r.tick(2)
    plan = r.plans()[-1].setpoints[:, 0]
    assert plan[0] < 0.01 and plan[-1] == pytest.approx(FIVE_CM) and (np.diff(plan) >= 0).all()


# ---- above the bound -------------------------------------------------------------------------


@pytest.mark.parametrize('ahead', [0, 6])
def test_a_step_above_the_bound_is_blended_if_the_limits_allow(moving, move, ahead):
    """At once, or at a tick that is still ahead."""
    r = moving(**TIGHT)
    r.offer(r.chunk(rows=ROWS))
    r.tick(1)
    chunk, answer = step(r, move(STEP), at_ns=r.next_due_ns + ahead * 20 * MS)
    assert answer is None
    records = finish(r, move(STEP), ahead + 27)
    assert {t.verdict for t in records} == {Verdict.FRESH}
    assert records[-1].command[0] == pytest.approx(STEP, abs=1e-9)
    assert 'blended over' in joined(r, chunk)


def test_a_step_above_the_bound_that_no_blend_takes_up_is_refused_and_the_plan_goes_on(
        moving, move):
    r = moving(**TIGHT)
    r.offer(r.chunk(to=move(0.3), rows=ROWS))
    r.tick(10)
    going = r.bridge.follower.active
    _, answer = step(r, move(0.6))
    assert answer.reason is RejectReason.SEAM
    assert 'at joint1: got +0.5' in answer.text and 'expected at most 0.055 rad' in answer.text
    assert 'No blend fits the limits: over 0.5 s joint1 would need' in answer.text
    records = r.tick(8)
    assert r.bridge.follower.active is going
    assert {t.verdict for t in records} == {Verdict.FRESH}
    assert [t.command for t in records] == [
        pytest.approx(going.path.at(t.due_ns).position) for t in records]


def test_a_refused_step_moves_nothing_can_fail(moving, move, monkeypatch):
    """Where a blend is claimed that does not fit, the arm leaves its plan and its limits show."""
    monkeypatch.setattr(Mover, 'fit', lambda self, running, due_ns: Fit(running.path, 1))
    r = moving(**TIGHT)
    r.offer(r.chunk(to=move(0.3), rows=ROWS))
    r.tick(10)
    assert step(r, move(0.6))[1] is None
    assert Verdict.LIMITED in {t.verdict for t in r.tick(8)}


def test_a_chunk_that_no_longer_fits_at_its_switch_is_left_out(moving, move, monkeypatch):
    r = moving(**TIGHT)
    r.offer(r.chunk(rows=ROWS))
    r.tick(1)
    going = r.bridge.follower.active
    chunk, answer = step(r, move(STEP), at_ns=r.next_due_ns + 60 * MS)
    assert answer is None
    monkeypatch.setattr(Mover, 'fit', lambda self, running, due_ns: Fit(None, text='changed'))
    records = r.tick(8)
    assert r.bridge.follower.active is going and {t.verdict for t in records} == {Verdict.FRESH}
    assert joined(r, chunk) == 'left out at its switch, 0.200 rad away: changed'
    assert [t.fate for t in r.traces() if t.chunk_id == chunk.chunk_id] == [Fate.SUPERSEDED]


@pytest.mark.parametrize('size', [0.3, 0.6, 0.9])
def test_a_step_that_no_blend_takes_up_is_no_sprint(rig, move, size):
    """The joint goes to a pose that does not move at no more than 0.5 rad/s."""
    assert sprinted(rig(), move, size) <= 0.5 * (1.0 + 1e-6)


def test_the_trace_tells_of_a_step_that_no_blend_takes_up(rig, move):
    r = rig()
    sprinted(r, move, 0.3)
    finish(r, move(0.3), 20)
    assert any('; too far for a blend, joints held to' in t.text for t in r.traces())


@pytest.mark.parametrize('size', [0.3, 0.6, 0.9])
def test_a_step_that_no_blend_takes_up_can_fail(rig, move, size):
    assert sprinted(rig(catch_up_factor=1000.0), move, size) > 1.0


def test_the_bound_of_a_step_ends_when_it_is_made_up_for(rig, move):
    r = rig()
    sprinted(r, move, 0.3)
    r.tick(40)
    assert not r.bridge._mover._is_catching_up


def sprinted(r, move, size):
    """Offer a step to an arm that tracks; return the speed that came of it."""
    r.run_up()
    stamp = r.now.stamp_ns - 150 * MS
    _, answer = step(r, move(size), oldest_stamp_ns=stamp, observation_stamp_ns=stamp,
                     newest_stamp_ns=stamp)
    assert answer is None
    commands = np.array([t.command[0] for t in r.tick(20)])
    assert r.bridge.follower.active.is_apart
    return float(np.abs(np.diff(commands)).max()) / 0.02


def test_under_a_ramp_a_step_below_the_bound_is_no_sprint(rig, move):
    r = rig(ramp_ns=500 * MS)
    r.offer(r.chunk(rows=ROWS))
    r.tick(8)
    assert r.bridge.states.state is ArmState.RAMP_IN
    step(r, move(0.15))
    commands = np.array([t.command[0] for t in r.tick(30)])
    assert np.abs(np.diff(commands)).max() / 0.02 < 0.7
    assert r.bridge.follower.active.path.at(r.now.mono_ns).position[0] == pytest.approx(0.15)


def test_no_blend_leads_from_a_rest_to_a_pose_above_the_bound(rig, move):
    """Nothing has moved since the observation: such a chunk is wrong, however gently it begins."""
    r = rig(**TIGHT)
    r.tick(3)
    answer = step(r, move(STEP))[1]
    assert answer.reason is RejectReason.SEAM and 'No blend' not in answer.text


def test_a_step_above_the_bound_is_refused_in_a_ramp(rig, move):
    r = rig(**TIGHT, ramp_ns=500 * MS)
    r.offer(r.chunk(rows=ROWS))
    r.tick(5)
    assert r.bridge.states.state is ArmState.RAMP_IN
    assert step(r, move(STEP))[1].reason is RejectReason.SEAM


def drifted(r, every, seed):
    """Let a ramp meet chunks of jittering rows whose joint 1 steps to and fro.

    Returns:
        How far from home joint 4 is asked to go at most, and how far it goes, rad.
    """
    rng = np.random.default_rng(seed)
    asked = gone = 0.0
    for n in range(0, 40, every):
        rows = r.chunk(rows=ROWS).positions + rng.normal(0.0, 0.01, (ROWS, 7)) * (np.arange(7) < 6)
        rows[:, 0] += 0.1 * (-1) ** (n // every)
        asked = max(asked, np.abs(rows[:, 3]).max())
        stamp = r.now.stamp_ns - 150 * MS
        r.offer(r.chunk(positions=rows, oldest_stamp_ns=stamp, observation_stamp_ns=stamp,
                        newest_stamp_ns=stamp))
        gone = max(gone, *(abs(t.command[3]) for t in r.tick(every)))
    return asked, gone


@pytest.mark.parametrize('every', [1, 2, 5])
@pytest.mark.parametrize('seed', range(4))
def test_under_a_ramp_jitter_does_not_add_up(rig, every, seed):
    asked, gone = drifted(rig(ramp_ns=500 * MS, max_age_ns=2000 * MS), every, seed)
    assert gone <= asked


def test_under_a_ramp_jitter_does_not_add_up_can_fail(rig, monkeypatch):
    """Velocities blended away over half a second, chunk after chunk."""
    def all_of_it(self, running, due_ns, current, fit):
        offset = measure_seam(current, running.path.at(due_ns)).offset
        running.path = blend(running.path, offset=offset, at_ns=due_ns, duration_ns=500 * MS)
        return True

    monkeypatch.setattr(Follower, '_stitch', all_of_it)
    found = [drifted(rig(ramp_ns=500 * MS, max_age_ns=2000 * MS), 2, seed) for seed in range(4)]
    assert max(gone / asked for asked, gone in found) > 2.0


def reached(r, move, size, every):
    """Return where joint 1 is after 1.5 s of chunks that all ask for one pose."""
    r.run_up()
    for _ in range(0, 75, every):
        step(r, move(size))
        commands = r.tick(every)
    return commands[-1].command[0]


@pytest.mark.parametrize('every', [1, 2, 5])
@pytest.mark.parametrize('size', [0.06, 0.15])
def test_chunks_that_come_fast_are_followed(rig, move, size, every):
    assert reached(rig(), move, size, every) == pytest.approx(size, abs=1e-6)


def test_chunks_that_come_fast_can_fail(rig, move, monkeypatch):
    """A blend begun anew in every tick never leaves its begin."""
    monkeypatch.setattr(Follower, '_is_blending', lambda self, due_ns: False)
    assert reached(rig(), move, 0.06, 1) == pytest.approx(0.0, abs=1e-6)


def swung(r, size, every):
    """Let every chunk ask for the other side of home; return how far joint 1 goes, in sizes."""
    r.run_up()
    gone = 0.0
    for n in range(0, 100, every):
        rows = r.chunk(rows=ROWS).positions
        rows[:, 0] += size * (-1) ** (n // every)
        stamp = r.now.stamp_ns - 150 * MS
        r.offer(r.chunk(positions=rows, oldest_stamp_ns=stamp, observation_stamp_ns=stamp,
                        newest_stamp_ns=stamp))
        gone = max(gone, *(abs(t.command[0]) for t in r.tick(every)))
    return gone / size


@pytest.mark.parametrize(('size', 'every', 'most'), [
    (0.04, 2, 1.05), (0.04, 4, 1.4), (0.06, 2, 1.05), (0.06, 4, 1.05), (0.1, 1, 1.05)])
def test_an_arm_swings_little_further_than_chunks_that_step_to_and_fro(rig, size, every, most):
    assert swung(rig(max_age_ns=2000 * MS), size, every) <= most


def test_an_arm_swings_little_further_can_fail(rig, monkeypatch):
    """Blends that lead a moving joint back over a detour, begun anew with each chunk."""
    monkeypatch.setattr(fit, 'STRAY_RAD', 1.0)
    assert swung(rig(max_age_ns=2000 * MS), 0.04, 2) > 2.0
