from __future__ import annotations

import threading

import numpy as np
import pytest

from reflex_ros.core.errors import ConfigError
from reflex_ros.sim.mjcf import HOME, MAX_SPEED_RAD_S
from reflex_ros.sim.tasks import make_task
from reflex_ros.sim.world import World

MS = 1_000_000


def run(world: World, seconds: float) -> list[np.ndarray]:
    """Drive the arm somewhere in 20 ms ticks and return the measured joints of each."""
    rng = np.random.default_rng(5)
    seen = []
    for tick in range(round(seconds * 50)):
        world.command(np.array(HOME) + rng.uniform(-0.3, 0.3, 6), 0.05)
        world.advance((tick + 1) * 20 * MS)
        seen.append(world.joint_state()[0])
    return seen


def test_equal_seeds_and_commands_give_equal_worlds():
    first, second = World('jump', seed=3), World('jump', seed=3)
    np.testing.assert_array_equal(run(first, 2.0), run(second, 2.0))
    assert first.truth(1, 7).events == second.truth(1, 7).events
    np.testing.assert_array_equal(first.snapshot().qpos, second.snapshot().qpos)


def test_equal_seeds_and_commands_give_equal_worlds_can_fail():
    assert not np.array_equal(run(World('jump', seed=3), 0.1), run(World('jump', seed=4), 0.1))


def test_reset_gives_the_world_of_that_seed():
    used = World('recovery', seed=9)
    run(used, 0.5)
    used.reset(3)
    assert used.time_ns == 0
    np.testing.assert_array_equal(run(used, 1.0), run(World('recovery', seed=3), 1.0))


def test_time_moves_in_whole_steps_and_never_past_the_asked_instant():
    world = World('hold', seed=0)
    world.advance(10 * MS)
    assert world.time_ns == 8 * MS
    world.advance(5 * MS)
    assert world.time_ns == 8 * MS


def test_drive_targets_slew_no_faster_than_three_rad_per_s():
    world = World('hold', seed=0)
    start = world.joint_state()[0]
    world.command(start[:6] + (1.0, 0, 0, 0, 0, 0), 0.07)
    world.advance(200 * MS)
    assert world.joint_state()[0][0] - start[0] < MAX_SPEED_RAD_S * 0.2
    world.advance(1500 * MS)
    assert world.joint_state()[0][0] - start[0] == pytest.approx(1.0, abs=0.02)


def test_commands_out_of_range_are_clamped():
    world = World('hold', seed=0)
    world.command((*HOME[:5], 9.0), 1.0)
    world.advance(2000 * MS)
    position, _ = world.joint_state()
    assert position[5] == pytest.approx(2.09439, abs=0.02)
    assert position[6] == pytest.approx(0.07, abs=0.002)


@pytest.mark.parametrize('joints', [(np.nan, 0, 0, 0, 0, 0), (0.0, 0.0)])
def test_commands_that_are_no_pose_are_refused_and_change_nothing(joints):
    world, untouched = World('hold', seed=0), World('hold', seed=0)
    with pytest.raises(ConfigError, match='drive command'):
        world.command(joints, 0.0)
    world.advance(100 * MS)
    untouched.advance(100 * MS)
    np.testing.assert_array_equal(world.joint_state(), untouched.joint_state())


def test_gripper_position_and_velocity_are_those_of_the_total_opening():
    world = World('hold', seed=0)
    assert world.joint_state()[0][6] == pytest.approx(0.07)
    world.command(world.joint_state()[0][:6], 0.0)
    world.advance(20 * MS)
    before = world.joint_state()[0][6]
    world.advance(24 * MS)
    position, velocity = world.joint_state()
    assert velocity[6] == pytest.approx((position[6] - before) / 0.004, rel=0.3)
    assert velocity[6] < -0.1


def test_events_carry_the_stamp_at_which_they_happened_and_come_once():
    world = World('jump', seed=1)
    jumps = [segment.start_s for segment in world.task.segments[1:]]
    world.advance(8000 * MS)
    truth = world.truth(1, stamp_ns=50_000 * MS)
    assert [event.name for event in truth.events] == ['jump'] * len(jumps)
    for event, start_s in zip(truth.events, jumps, strict=True):
        assert 0 <= event.stamp_ns - 42_000 * MS - start_s * 1e9 < 4 * MS
    assert world.truth(2, stamp_ns=50_000 * MS).events == ()


def test_target_velocity_is_that_of_the_present_motion():
    world = World(make_task('jump', kinds=('normal', 'stop_and_go')), seed=2)
    for step in range(500):
        world.advance((step * 4 + 2) * 4 * MS)
        before, velocity = world.truth(0, 0).target_position, world.truth(0, 0).target_velocity
        world.advance((step * 4 + 3) * 4 * MS)
        after = world.truth(0, 0)
        if not after.events and velocity.any() and after.target_velocity.any():
            found = (after.target_position - before) / 0.004
            assert np.abs(found - velocity).max() < 0.02


def test_truth_before_a_jump_does_not_depend_on_what_comes_after():
    world = World('jump', seed=4)
    other = World('jump', seed=4)
    jump_ns = int(other.task.segments[1].start_s * 1e9)
    other.task.segments = (other.task.segments[0],)
    for now_ns in range(0, jump_ns, 40 * MS):
        world.advance(now_ns)
        other.advance(now_ns)
        truth, same = world.truth(0, 0), other.truth(0, 0)
        np.testing.assert_array_equal(truth.target_position, same.target_position)
        np.testing.assert_array_equal(truth.target_velocity, same.target_velocity)
    world.advance(jump_ns + 8 * MS)
    other.advance(jump_ns + 8 * MS)
    assert np.any(world.truth(0, 0).target_position != other.truth(0, 0).target_position)


def test_snapshots_are_copies():
    world = World('jump', seed=0)
    snapshot = world.snapshot()
    kept = snapshot.qpos.copy(), snapshot.mocap_position.copy()
    run(world, 0.2)
    np.testing.assert_array_equal(snapshot.qpos, kept[0])
    np.testing.assert_array_equal(snapshot.mocap_position, kept[1])


def test_truths_are_copies():
    world = World('follow', seed=0)
    truth = world.truth(0, 0)
    kept = truth.joint_position.copy(), truth.target_position.copy(), truth.objects['cube'].copy()
    run(world, 0.2)
    for got, want in zip((truth.joint_position, truth.target_position, truth.objects['cube']),
                         kept, strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_joint_without_power_falls_and_holds_again_with_power():
    world = World('hold', seed=0)
    world.advance(500 * MS)
    start = world.joint_state()[0]
    world.release(1)
    world.advance(900 * MS)
    fallen = world.joint_state()[0]
    assert abs(fallen[1] - start[1]) > 0.1
    world.engage(1)
    world.advance(1500 * MS)
    held = world.joint_state()[0]
    world.advance(2500 * MS)
    np.testing.assert_allclose(world.joint_state()[0], held, atol=0.02)


def test_a_powered_arm_does_not_fall():
    world = World('hold', seed=0)
    start = world.joint_state()[0]
    world.advance(2000 * MS)
    np.testing.assert_allclose(world.joint_state()[0], start, atol=0.005)


def test_readings_stay_whole_while_another_thread_advances():
    world = World('jump', seed=0)
    mover = threading.Thread(target=world.advance, args=(1000 * MS,))
    mover.start()
    times = []
    while mover.is_alive():
        assert np.isfinite(world.truth(0, 0).joint_position).all()
        times.append(world.snapshot().time_ns)
    mover.join()
    assert world.time_ns == 1000 * MS
    assert times == sorted(times)


@pytest.mark.parametrize(('options', 'message'), [
    ({'task': 'juggle'}, "task: got 'juggle'"),
    ({'task': 'hold', 'timestep_s': 0.0}, 'physics step: got 0.0'),
    ({'task': 'hold', 'dh': 'mine'}, "DH variant: got 'mine'"),
])
def test_impossible_worlds_are_refused_by_name(options, message):
    with pytest.raises(ConfigError, match=message):
        World(**options, seed=0)
