"""A correction of the system clock within a run: figures are those of the run without it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reflex_ros.analysis import straight
from reflex_ros.analysis.budgets import Budget, judge
from reflex_ros.analysis.collect import Recorded
from reflex_ros.analysis.figures import analyse_run
from reflex_ros.analysis.run import RecordedRun
from reflex_ros.core.clock import MS, S
from reflex_ros.core.clock_steps import find_steps
from reflex_ros.core.ledger import to_records
from reflex_ros.study.episode import EpisodeSpec, run_episode

AT_NS = 1600 * MS
"""When the clock steps, after the first tick."""
STEPS_MS = (-3000, -500, -30, 30, 500, 3_600_000)
KEPT = ('stall_ratio', 'seam_deg', 'camera_missing_share', 'gap_ticks', 'faults', 'start_s',
        'camera_skew_p95_ms', 'unexplained_ticks', 'tick_late_p99_ms', 'stalled_chunks')


@pytest.fixture(scope='module')
def log():
    return run_episode(EpisodeSpec(duration_s=4.0, seed=1)).log


def run_of(log, step_ns, *, lost=()):
    """Return the run as recorded, with every stamp after ``AT_NS`` moved."""
    begin_ns = log.ticks[0].stamp_ns + AT_NS

    def moved(stamp_ns):
        return stamp_ns + (step_ns if stamp_ns >= begin_ns else 0)

    def moved_trace(trace):
        names = ('stamp_ns', 'newest_stamp_ns', 'observation_stamp_ns', 'first_command_stamp_ns')
        return replace(trace, **{name: moved(getattr(trace, name)) for name in names})

    def aged(tick):
        seen_ns = tick.stamp_ns - tick.observation_age_ns
        return -1 if tick.observation_age_ns < 0 else moved(tick.stamp_ns) - moved(seen_ns)

    ticks = [replace(t, stamp_ns=moved(t.stamp_ns), observation_age_ns=aged(t)) for t in log.ticks]
    truths = [replace(t, stamp_ns=moved(t.stamp_ns), events=tuple(
        replace(e, stamp_ns=moved(e.stamp_ns)) for e in t.events)) for t in log.truths]
    frames = [log.ticks[0].stamp_ns + n * 33 * MS for n in range(120) if n not in lost]
    recorded = Recorded(truths=truths, images={'/camera/main/image_raw': list(map(moved, frames))})
    return RecordedRun(log.ticks and '.', to_records(ticks), 20 * MS, 'bag',
                       traces=tuple(map(moved_trace, log.traces)), recorded=recorded)


@pytest.fixture(scope='module')
def whole(log):
    return analyse_run(run_of(log, 0))


@pytest.mark.parametrize('step_ms', STEPS_MS)
def test_figures_of_a_run_are_those_without_the_step(log, whole, step_ms):
    found = analyse_run(run_of(log, step_ms * MS))
    assert whole.notes == ()
    assert found.notes[0] == (
        f'ROS time stepped by {step_ms / 1000:+.3f} s at 1.58 s: times are those of an axis '
        'without the step')
    for name in KEPT:
        assert found.figures[name] == whole.figures[name], name
    for name in ('reaction_p95_ms', 'observation_to_command_p95_ms', 'staleness_p95_ms'):
        one, other = found.figures[name], whole.figures[name]
        assert 0 < one.value <= other.high and other.n - 10 <= one.n <= other.n, name


@pytest.mark.parametrize('step_ms', [ms for ms in STEPS_MS if ms != -30])
def test_figures_of_a_run_are_those_without_the_step_can_fail(log, whole, step_ms, monkeypatch):
    """Whoever does not see the step tells other figures."""
    monkeypatch.setattr(straight, 'find_steps', lambda *_: find_steps([], []))
    found = analyse_run(run_of(log, step_ms * MS))
    names = (*KEPT, 'reaction_p95_ms', 'observation_to_command_p95_ms', 'staleness_p95_ms')
    assert any(found.figures[name] != whole.figures[name] for name in names)
    assert not found.figures['observation_to_command_p50_ms'].value < 0


@pytest.mark.parametrize('step_ms', STEPS_MS)
def test_frames_lost_beside_a_step_are_counted(log, step_ms):
    found = analyse_run(run_of(log, step_ms * MS, lost=(20, 21, 80)))
    assert [camera.missing for camera in found.cameras] == [3]


def test_a_latency_over_a_step_that_is_not_sure_is_left_out_and_counted(log, whole):
    """A frame of just before looks 30 ms younger than it is."""
    found = analyse_run(run_of(log, -30 * MS))
    lost = whole.figures['observation_to_command_p50_ms'].n - (
        found.figures['observation_to_command_p50_ms'].n)
    assert f'{lost} reactions are left out: the clock may have stepped within' in found.notes


def test_a_budget_of_reactions_that_were_all_left_out_is_not_met(log):
    run = run_of(log, 0)
    budget = Budget('reaction_p95_ms', at_most=400.0)
    assert judge([budget], analyse_run(run).figures)[0].is_met
    late = replace(run, recorded=Recorded(), traces=tuple(
        replace(t, newest_stamp_ns=t.first_command_stamp_ns + S if t.first_command_stamp_ns else 0)
        for t in run.traces))
    found = analyse_run(late)
    assert judge([budget], found.figures)[0].reason == 'no samples: it was not measured'
    assert any('later than their first command' in note for note in found.notes)


def test_lost_events_are_not_replaced_by_another_figure(log):
    run = replace(run_of(log, 0), recorded=Recorded(), lost_events=1)
    assert not analyse_run(run).figures['reaction_p95_ms'].is_measured
    assert analyse_run(replace(run, lost_events=0)).figures['reaction_p95_ms'].is_measured


def test_damage_drift_and_simulated_time_are_no_steps():
    due = np.arange(0, 400, dtype=np.int64) * 20 * MS
    damaged = due + S
    damaged[[50, 51, 200, 399]] += 7 * S
    assert find_steps(due, damaged).steps_ns == ()
    assert find_steps(due, due + due // 2000).steps_ns == ()
    assert find_steps(due, due * 0).steps_ns == ()
    assert find_steps(due, due // (50 * MS) * 50 * MS).steps_ns == ()
    stepped = due + np.where(due >= 2 * S, 30 * MS, 0) - np.where(due >= 5 * S, 10 * MS, 0)
    assert find_steps(due, stepped).steps_ns == (30 * MS, -10 * MS)


def test_a_step_is_taken_out_once(log):
    once = straight.straighten(run_of(log, -500 * MS))
    twice = straight.straighten(once)
    assert np.array_equal(once.records['stamp_ns'], twice.records['stamp_ns'])
    assert twice.notes == once.notes


def stream(steps, at_ns, *, period_ns, delay_ns, jitter=3 * MS, seconds=6):
    """Return (receipt, stamp, straight stamp) of frames; the recorder's clock steps as well."""
    rng = np.random.default_rng(4)
    born = [n * period_ns + int(rng.integers(0, jitter)) for n in range(seconds * S // period_ns)]

    def moved(ns):
        return ns + (steps if ns >= at_ns else 0)

    return [(moved(ns + delay_ns), moved(ns), ns) for ns in born]


@pytest.mark.parametrize('order', ['written', 'received', 'sorted'])
@pytest.mark.parametrize('step_ms', [-3000, -700, -90])
def test_frames_of_both_sides_of_a_step_back_find_their_side(order, step_ms):
    """One whose receipt has stepped and whose stamp has not falls, and tells nothing."""
    due = np.arange(0, 300, dtype=np.int64) * 20 * MS
    at_ns = 3000 * MS
    steps = find_steps(due, due + np.where(due >= at_ns, step_ms * MS, 0))
    rows = stream(step_ms * MS, at_ns, period_ns=40 * MS, delay_ns=70 * MS)
    if order != 'written':
        rows = sorted(rows, key=lambda row: row[0 if order == 'received' else 1])
    found = steps.assign([stamp for _, stamp, _ in rows])
    off = [place[1] - born for place, (_, _, born) in zip(found, rows, strict=True)]
    if order == 'written':
        assert not any(off)
    straight = np.sort([place[1] for place in found])
    assert np.abs(straight - np.sort([born for _, _, born in rows])).max() < 20 * MS


def test_the_order_of_writing_tells_sides_that_periods_cannot():
    """Frames without jitter whose period divides the step have the same stamps twice."""
    due = np.arange(0, 300, dtype=np.int64) * 20 * MS
    steps = find_steps(due, due - np.where(due >= 3 * S, 2 * S, 0))
    born = [n * 40 * MS for n in range(150)]
    stamps = [ns - (2 * S if ns >= 3 * S else 0) for ns in born]
    assert [place[1] for place in steps.assign(stamps)] == born
    mixed = sorted(range(150), key=lambda row: (stamps[row], -row))
    assert sorted(place[1] for place in steps.assign([stamps[row] for row in mixed])) == born
