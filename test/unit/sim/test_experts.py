from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reflex_ros.core.errors import ConfigError
from reflex_ros.sim.experts import follow, make_chunk_expert, make_expert
from reflex_ros.sim.kinematics import LOWER, UPPER
from reflex_ros.sim.tasks import TASKS, FollowScore, make_task
from reflex_ros.sim.world import World

TICK_NS = 20_000_000
MANIPULATION = ('pick_place', 'recovery', 'drawer')


def manipulate(task: str, seed: int, *, dh: str = 'new', frozen: bool = False) -> bool:
    """Let the step-by-step expert act until success or the end of the episode."""
    world, expert = World(task, seed=seed, dh=dh), make_expert(task, dh)
    command = world.joint_state()[0]
    while not world.is_over:
        truth = world.truth(0, world.time_ns)
        if truth.success:
            return True
        if not frozen:
            command = expert.command(truth, command)
        world.command(command[:6], command[6])
        world.advance(world.time_ns + TICK_NS)
    return False


def run_chunks(world: World, *, delay_ticks: int, replan_ticks: int = 5) -> FollowScore:
    """Run chunks that arrive late, entered at row 0 of the predicted instant."""
    expert = make_chunk_expert(world.task.name, world.dh)
    score = FollowScore()
    command, rows, start, coming, last = world.joint_state()[0], None, 0, None, -replan_ticks
    for tick in range(round(world.task.duration_s * 50)):
        truth = world.truth(tick, world.time_ns)
        if world.time_ns:
            score.add_truth(truth)
        if truth.success and world.task.name in MANIPULATION:
            break
        if coming is None and tick - last >= replan_ticks:
            state = command
            if rows is not None and delay_ticks:
                state = rows[min(tick + delay_ticks - 1 - start, len(rows) - 1)]
            chunk = expert.chunk(truth, state, start_delay_ns=delay_ticks * TICK_NS)
            coming, last = (tick + delay_ticks, chunk), tick
        if coming is not None and tick >= coming[0]:
            start, rows, coming = tick, coming[1], None
        if rows is not None:
            command = rows[min(tick - start, len(rows) - 1)]
        world.command(command[:6], command[6])
        world.advance((tick + 1) * TICK_NS)
    return score


@pytest.mark.parametrize('task', MANIPULATION)
def test_manipulation_expert_succeeds(task):
    assert all(manipulate(task, seed) for seed in range(3))


def test_manipulation_expert_succeeds_can_fail():
    assert not manipulate('pick_place', 0, frozen=True)


def test_manipulation_expert_knows_the_old_arm():
    assert manipulate('pick_place', 1, dh='old')


@pytest.mark.parametrize('delay_ticks', [0, 10])
@pytest.mark.parametrize('task', MANIPULATION)
def test_imagined_chunks_solve_the_task_however_late_they_come(task, delay_ticks):
    world = World(task, seed=1)
    run_chunks(world, delay_ticks=delay_ticks)
    assert world.truth(0, 0).success


@pytest.mark.parametrize('task', ['reach', 'follow', 'jump'])
def test_follow_expert_stays_with_the_target(task):
    scores = [run_chunks(World(task, seed=seed), delay_ticks=0) for seed in range(3)]
    assert all(score.success for score in scores)


def test_follow_expert_stays_with_the_target_can_fail():
    world = World(make_task('jump', kinds=('normal',)), seed=0)
    expert, score, rows = make_chunk_expert('jump'), FollowScore(), []
    for tick in range(400):
        rows = rows or list(expert.chunk(world.truth(0, world.time_ns), world.joint_state()[0]))
        command = rows.pop(0)
        world.command(command[:6], command[6])
        world.advance((tick + 1) * TICK_NS)
        score.add_truth(world.truth(0, world.time_ns))
    assert not score.success


@pytest.fixture
def truth():
    return World(make_task('follow', kinds=('normal',)), seed=3).truth(1, 0)


@pytest.mark.parametrize('task', TASKS)
def test_chunks_continue_the_state_within_speed_and_joint_limits(task):
    world = World(task, seed=0)
    state = world.joint_state()[0]
    rows = make_chunk_expert(task).chunk(world.truth(1, 0), state, horizon=30)
    assert rows.shape == (30, 7) and rows.dtype == np.float64
    steps = np.diff(np.vstack((state, rows)), axis=0)
    assert np.abs(steps[:, :6]).max() <= 2.5 * 0.02 + 1e-9
    assert (rows[:, :6] >= LOWER).all() and (rows[:, :6] <= UPPER).all()
    assert (rows[:, 6] >= 0).all() and (rows[:, 6] <= 0.07).all()


@pytest.mark.parametrize('task', ['follow', 'pick_place'])
def test_rows_of_a_finer_period_follow_the_same_way(task):
    world = World(task, seed=0)
    state = world.joint_state()[0]
    coarse = make_chunk_expert(task).chunk(world.truth(1, 0), state, horizon=40)
    fine = make_chunk_expert(task).chunk(world.truth(1, 0), state, horizon=80,
                                         period_ns=TICK_NS // 2)
    np.testing.assert_allclose(fine[20::2][:29, :6], coarse[10:39, :6], atol=0.03)


def test_a_chunk_knows_no_more_than_the_truth_it_was_given(truth):
    state = np.append(follow.reference(truth.target_position), 0.07)
    still = replace(truth, target_velocity=np.zeros(3))
    rows = follow.chunk(still, state)
    np.testing.assert_allclose(rows, np.tile(state, (50, 1)), atol=1e-12)


def test_a_delayed_chunk_aims_at_where_the_target_will_be(truth):
    state = np.append(follow.reference(truth.target_position), 0.07)
    ahead = follow.extrapolate(truth, np.array([0.2]))[0]
    moved = replace(truth, target_position=ahead)
    np.testing.assert_allclose(follow.chunk(truth, state, start_delay_ns=200_000_000)[:20],
                               follow.chunk(moved, state)[:20], atol=0.02)


def test_extrapolation_ends_at_the_faces_of_the_workspace(truth):
    fast = replace(truth, target_velocity=np.array([1.0, -1.0, 1.0]))
    ahead = follow.extrapolate(fast, np.array([0.0, 5.0]))
    np.testing.assert_array_equal(ahead[0], truth.target_position)
    np.testing.assert_allclose(ahead[1], (0.41, -0.17, 0.30))


def test_acceleration_is_that_of_the_target_and_zero_across_a_jump():
    world = World(make_task('jump', kinds=('normal',)), seed=3)
    jump_ns = int(world.task.segments[1].start_s * 1e9)
    times = (jump_ns - 100_000_000, jump_ns - 60_000_000, jump_ns + 20_000_000)
    truths = []
    for time_ns in times:
        world.advance(time_ns)
        truths.append(world.truth(0, world.time_ns))
    segment = world.task.segments[0]
    middle = (times[0] + times[1]) / 2e9
    speed = segment.velocity(np.array([middle - 0.001, middle + 0.001]))
    np.testing.assert_allclose(follow.acceleration(truths[1], truths[0]),
                               (speed[1] - speed[0]) / 0.002, atol=0.05)
    assert not follow.acceleration(truths[2], truths[1]).any()
    assert not follow.acceleration(truths[0], truths[0]).any()


def test_labels_equal_the_law_rolled_one_by_one():
    rng = np.random.default_rng(0)
    path = follow.reference(rng.uniform((0.3, -0.1, 0.15), (0.35, 0.1, 0.15), (4, 80, 3)))
    states, first = rng.normal(0, 0.3, (4, 7)), np.array([0, 10, 40, 79])
    batch = follow.labels(states, path.astype(np.float32), first, horizon=50)
    assert batch.shape == (4, 50, 7)
    for row, state, table, at in zip(batch, states, path, first, strict=True):
        padded = np.concatenate((table[at:], np.repeat(table[-1:], 60, axis=0)))[:51]
        one = follow.roll(state[None, :6], padded[None])[0]
        np.testing.assert_allclose(row[:, :6], one, atol=1e-5)
    assert (batch[..., 6] == 0.07).all()


def test_roll_ignores_the_feed_forward_of_a_reference_that_jumps():
    references = np.zeros((1, 3, 6))
    references[:, 1:] = 0.2
    rows = follow.roll(np.zeros((1, 6)), references)
    assert not rows[0, 0].any()
    np.testing.assert_allclose(rows[0, 1], 0.15 * 0.2)


def test_step_by_step_expert_of_a_follow_task_is_refused_by_name():
    with pytest.raises(ConfigError, match="got 'jump'"):
        make_expert('jump')
