"""A blend that was found to fit passes the limiter; one that does not fit is told why."""

from __future__ import annotations

from time import thread_time

import numpy as np
import pytest

from reflex_ros.core import fit
from reflex_ros.core.clock import MS, S
from reflex_ros.core.fit import LONGEST_NS, Window, fit_blend
from reflex_ros.core.interpolate import Setpoint, SetpointPath
from reflex_ros.core.limits import JointLimits, Limiter, piper_limits
from reflex_ros.core.stitch import BLEND_NS, blend, measure_seam
from reflex_ros.core.types import JOINT_NAMES

H_NS = 20 * MS
AT = 3 * S
PIPER = piper_limits(jerk=100.0)
MIDDLE = np.array([0.0, 1.5, -1.5, 0.0, 0.0, 0.0, 0.03])
SEEDS = range(200)


def sweep(rate: np.ndarray, bend: np.ndarray, start: np.ndarray) -> SetpointPath:
    """Return a chunk of 40 rows from 5 rows before ``AT`` on, at ``start`` in ``AT``.

    Args:
        rate: ``float64[7]`` velocity in ``AT``. ``bend``: acceleration there; both fade to rest.
    """
    t = (np.arange(40) - 5)[:, None] * 0.02
    rows = start + rate * np.sin(t) + bend * (1.0 - np.cos(2.0 * t)) / 4.0
    return SetpointPath(AT + (np.arange(40) - 5) * H_NS, rows)


def limiter_on(path: SetpointPath) -> Limiter:
    """Return a limiter whose stream has followed a path up to one period before ``AT``."""
    limiter = Limiter(PIPER, period_ns=H_NS)
    at = [path.at(AT - k * H_NS).position for k in (3, 2, 1)]
    limiter.reset(at[2])
    limiter._v = (at[2] - at[1]) / (H_NS / S)
    limiter._a = (at[2] - 2.0 * at[1] + at[0]) / (H_NS / S) ** 2
    return limiter


def window(path: SetpointPath, **changes) -> Window:
    return Window(**{'at_ns': AT, 'until_ns': path.end_ns - H_NS, 'period_ns': H_NS, **changes})


def scene(seed: int, *, step: float = 0.12, speed: float = 1.8):
    """Return a limiter in fast motion and a chunk that is ``step`` off and a little faster."""
    rng = np.random.default_rng(seed)
    arm = np.arange(7) < 6
    rate, bend = (rng.uniform(-most, most, 7) * arm for most in (speed, 2.0))
    old = sweep(rate, bend, MIDDLE)
    new = sweep(rate + rng.uniform(-0.4, 0.4, 7) * arm, bend + rng.uniform(-1.0, 1.0, 7) * arm,
                MIDDLE + rng.uniform(-step, step, 7) * arm)
    return limiter_on(old), new


def limited_ticks(limiter: Limiter, path, *, until_ns: int) -> int:
    """Return how many commands of a joint, gripper excluded, the limiter changes."""
    return sum(len(set(limiter.step(path.at(t)).limited) - {'gripper'})
               for t in range(AT, until_ns, H_NS))


def fitted(seed: int, **changes):
    limiter, new = scene(seed, **changes)
    return limiter, new, fit_blend(new, limiter.stream, PIPER, window=window(new),
                                   names=JOINT_NAMES)


def changed_by_the_limiter(seeds) -> tuple[int, int]:
    """Return how many of the chunks could be blended, and how many commands were changed."""
    fits = changed = 0
    for seed in seeds:
        limiter, new, found = fitted(seed)
        if found.path is None:
            assert 'would' in found.text
            continue
        fits += 1
        end_ns = min(AT + found.duration_ns + 3 * H_NS, new.end_ns - H_NS)
        changed += limited_ticks(limiter, found.path, until_ns=end_ns)
        assert BLEND_NS <= found.duration_ns <= LONGEST_NS and found.text == ''
    return fits, changed


def test_what_fits_passes_the_limiter_unchanged():
    fits, changed = changed_by_the_limiter(SEEDS)
    assert fits > 0.45 * len(SEEDS) and changed == 0


def test_only_detours_keep_half_of_the_seams_from_a_blend(monkeypatch):
    monkeypatch.setattr(fit, 'STRAY_RAD', 1.0)
    fits, changed = changed_by_the_limiter(SEEDS)
    assert fits > len(SEEDS) // 2 and changed == 0


@pytest.mark.parametrize('unjudged', ['acceleration', 'jerk'])
def test_what_fits_passes_the_limiter_unchanged_can_fail(monkeypatch, unjudged):
    """A search that forgets one kind of limit finds blends that the limiter must change."""
    of = fit._Judged._of
    monkeypatch.setattr(fit._Judged, '_of', lambda self, name: of(self, name) * (
        10.0 if name == unjudged else 1.0))
    assert changed_by_the_limiter(range(50))[1] > 0


def furthest_detour(seeds) -> float:
    """Return how far a blend goes beyond rows, stream and where braking would end, rad."""
    furthest = 0.0
    for seed in seeds:
        limiter, new, found = fitted(seed, speed=0.5)
        if found.path is None:
            continue
        times = np.arange(AT, AT + found.duration_ns + 3 * H_NS, H_NS)
        ends = np.vstack([limiter.position, limiter.stop_position, new.positions(times)])
        gone = found.path.positions(times)
        beyond = np.maximum(ends.min(axis=0) - gone, gone - ends.max(axis=0))
        furthest = max(furthest, beyond[:, :6].max())
    return furthest


def test_no_blend_is_a_detour():
    assert 0.0 < furthest_detour(range(100)) <= fit.STRAY_RAD + 1e-9
    assert any('is asked for' in fitted(seed, speed=0.5)[2].text for seed in range(20))


def test_no_blend_is_a_detour_can_fail(monkeypatch):
    most = fit.STRAY_RAD
    monkeypatch.setattr(fit, 'STRAY_RAD', 1.0)
    assert furthest_detour(range(100)) > 2.0 * most


def test_the_blend_of_60_ms_would_be_limited_can_fail():
    """What the search is for: most seams of this size need longer than the default."""
    limiter, new, found = fitted(3)
    stream = limiter.stream
    at = Setpoint(stream.position + 0.02 * stream.velocity, stream.velocity)
    short = blend(new, offset=measure_seam(at, new.at(AT)).offset, at_ns=AT)
    assert found.duration_ns > BLEND_NS
    assert limited_ticks(limiter, short, until_ns=AT + 200 * MS) > 0


def test_the_shortest_duration_is_taken():
    """One step of the search shorter is too short."""
    limiter, new, found = fitted(3)
    assert found.path is not None
    shorter = round(found.duration_ns / 1.35)
    start, curve = fit._start(new, limiter.stream, window(new), new.at(AT + H_NS).position)
    path = blend(new, offset=start, at_ns=AT, duration_ns=shorter, acceleration=curve)
    assert limited_ticks(limiter, path, until_ns=AT + shorter + 3 * H_NS) > 0


def still(offset: float, joint: int = 0) -> SetpointPath:
    pose = MIDDLE.copy()
    pose[joint] += offset
    return SetpointPath(AT + (np.arange(40) - 5) * H_NS, np.tile(pose, (40, 1)))


def fit_at_rest(new: SetpointPath, *, pose=MIDDLE, limits: JointLimits = PIPER, **changes):
    limiter = Limiter(limits, period_ns=H_NS)
    limiter.reset(pose)
    return fit_blend(new, limiter.stream, limits, window=window(new, **changes),
                     names=JOINT_NAMES)


@pytest.mark.parametrize(('step', 'is_possible'), [
    (0.001, True), (0.05, True), (0.2, True), (0.23, False), (1.0, False)])
def test_a_step_from_rest_fits_up_to_what_half_a_second_takes_up(step, is_possible):
    """5.77 step / T^2 of acceleration: 0.2165 rad at 5 rad/s^2 and 0.5 s."""
    assert (fit_at_rest(still(step)).path is not None) is is_possible


def test_a_larger_step_takes_longer():
    found = [fit_at_rest(still(step)).duration_ns for step in (0.0005, 0.01, 0.05, 0.2)]
    assert found == sorted(found) and found[0] == BLEND_NS and found[-1] > 7 * BLEND_NS


def test_the_text_names_joint_found_and_limit():
    found = fit_at_rest(still(-0.4, joint=3))
    assert found.text == 'over 0.5 s joint4 would need 9.17 rad/s^2 of 5'
    pose = MIDDLE.copy()
    pose[0] = PIPER.upper[0]
    outside = fit_at_rest(still(PIPER.upper[0] + 0.05), pose=pose)
    assert outside.path is None and 'joint1 would go to 2.618 to 2.668 rad' in outside.text


def test_a_chunk_that_is_near_its_limits_leaves_less_room():
    """The offset alone would fit: the chunk needs most of the acceleration itself."""
    rate, bend, there = np.zeros(7), np.zeros(7), MIDDLE.copy()
    there[1] -= 0.15
    assert fit_at_rest(sweep(rate, bend, there)).path is not None
    bend[1] = 4.9
    old, new = sweep(rate, bend, MIDDLE), sweep(rate, bend, there)
    found = fit_blend(new, limiter_on(old).stream, PIPER, window=window(new), names=JOINT_NAMES)
    assert found.path is None and 'joint2' in found.text


def test_how_the_chunk_ends_is_not_the_seams_fault():
    """The last row of a moving chunk stands still; nothing executes it if a new one comes."""
    rate = np.where(np.arange(7) == 0, 1.5, 0.0)
    times = AT + np.arange(12) * H_NS
    new = SetpointPath(times, MIDDLE + 0.05 * (rate > 0) + np.outer(np.arange(12) * 0.02, rate))
    stream = limiter_on(sweep(rate, np.zeros(7), MIDDLE)).stream
    ends = [fit_blend(new, stream, PIPER, names=JOINT_NAMES, window=window(new, until_ns=until_ns))
            for until_ns in (new.end_ns - H_NS, new.end_ns)]
    assert ends[0].path is not None and ends[0].duration_ns > 200 * MS and ends[1].path is None


def end_of_the_range():
    """Return a limiter that nears the end of a range at 1 rad/s and a chunk that goes on there."""
    rate = np.where(np.arange(7) == 0, 1.0, 0.0)
    there = MIDDLE.copy()
    there[0] = PIPER.upper[0] - 0.2
    new = SetpointPath(AT + np.arange(10) * H_NS, there + np.outer(np.arange(10) * 0.02, rate))
    return limiter_on(sweep(rate, np.zeros(7), there + 0.02 * rate)), new


def test_every_command_leaves_room_to_brake_inside_the_range():
    limiter, new = end_of_the_range()
    found = fit_blend(new, limiter.stream, PIPER, window=window(new), names=JOINT_NAMES)
    assert found.path is None and 'joint1 would go to' in found.text


def test_every_command_leaves_room_to_brake_can_fail(monkeypatch):
    """All positions lie inside the range, but the limiter brakes before the last ones."""
    monkeypatch.setattr(fit._Judged, 'too_fast', lambda self, i: -1)
    limiter, new = end_of_the_range()
    found = fit_blend(new, limiter.stream, PIPER, window=window(new), names=JOINT_NAMES)
    assert limited_ticks(limiter, found.path, until_ns=new.end_ns) > 0


def rough(step: float) -> SetpointPath:
    """Rows that soon exceed the acceleration by themselves, and begin ``step`` rad away."""
    pose = MIDDLE.copy()
    rows = np.tile(pose, (60, 1))
    rows[:, 0] += step
    rows[15::2, 3] += 0.02
    return SetpointPath(AT + (np.arange(60) - 5) * H_NS, rows)


def test_a_blend_into_rows_that_exceed_the_limits_by_themselves_never_fits():
    found = fit_at_rest(rough(0.1))
    assert found.path is None and 'joint4 would need' in found.text


def test_a_search_takes_less_than_2_ms_of_cpu():
    limiter, new = scene(1)
    used = []
    for _ in range(20):
        began = thread_time()
        fit_blend(new, limiter.stream, PIPER, window=window(new), names=JOINT_NAMES)
        used.append(thread_time() - began)
    assert sorted(used)[10] < 0.002
