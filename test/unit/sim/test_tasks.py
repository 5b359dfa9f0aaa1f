from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.core.errors import ConfigError
from reflex_ros.sim.tasks import TASKS, make_task
from reflex_ros.sim.tasks.pick_place import BIN
from reflex_ros.sim.tasks.target import AMPLITUDE, CENTRE, KINDS, draw_segment, draw_segments
from reflex_ros.sim.world import World

MS = 1_000_000
TIMES = np.arange(0.0, 4.0, 0.001)


def segments(kind: str, count: int = 20):
    rng = np.random.default_rng(11)
    return [draw_segment(rng, 0.0, (kind,)) for _ in range(count)]


@pytest.mark.parametrize('name', TASKS)
def test_every_task_starts_alike_from_one_seed_and_runs(name):
    first, second = World(name, seed=2), World(name, seed=2)
    np.testing.assert_array_equal(first.snapshot().qpos, second.snapshot().qpos)
    first.advance(200 * MS)
    truth = first.truth(1, 0)
    assert truth.task == name
    assert np.isfinite(truth.target_position).all()
    assert truth.objects.keys() == {'cube', 'bin', 'cabinet', 'drawer', 'handle'}


@pytest.mark.parametrize('name', sorted(set(TASKS) - {'hold'}))
def test_no_task_is_solved_by_standing_still(name):
    world = World(name, seed=2)
    world.advance(round(world.task.duration_s * 1e9))
    assert world.is_over
    assert not world.truth(1, 0).success


def test_hold_is_solved_by_standing_still_and_lost_by_moving():
    world = World('hold', seed=2)
    world.advance(2000 * MS)
    assert world.truth(1, 0).success
    world.command(world.joint_state()[0][:6] + 0.1, 0.07)
    world.advance(3000 * MS)
    assert not world.truth(1, 0).success


def test_static_targets_rest():
    for segment in segments('static'):
        assert np.ptp(segment.position(TIMES), axis=0).max() == 0.0
        assert not segment.velocity(TIMES).any()


def test_slow_targets_are_slower_than_normal_ones():
    fastest = [np.abs(s.velocity(TIMES)).max() for s in segments('slow')]
    usual = [np.abs(s.velocity(TIMES)).max() for s in segments('normal')]
    assert np.median(fastest) < np.median(usual) / 2


def test_stop_and_go_targets_rest_about_half_of_the_time():
    resting = [np.mean(~s.velocity(TIMES).any(axis=-1)) for s in segments('stop_and_go')]
    assert 0.3 < np.mean(resting) < 0.7


@pytest.mark.parametrize('kind', KINDS)
def test_motion_is_continuous_and_velocity_its_derivative(kind):
    for segment in segments(kind):
        steps = np.diff(segment.position(TIMES), axis=0) / 0.001
        velocity = segment.velocity(TIMES)
        smooth = (velocity[1:] != 0).any(axis=-1) == (velocity[:-1] != 0).any(axis=-1)
        middle = (velocity[1:] + velocity[:-1]) / 2
        assert np.abs(steps - middle)[smooth].max(initial=0.0) < 1e-3
        assert np.abs(steps).max() < 0.4


def test_targets_stay_in_their_region():
    reach = np.abs(np.stack([s.position(TIMES) for s in segments('normal')]) - CENTRE)
    assert (reach <= np.array(AMPLITUDE) + 1e-12).all()


def test_segments_last_between_the_named_bounds():
    rng = np.random.default_rng(0)
    for _ in range(30):
        starts = np.array([s.start_s for s in draw_segments(rng, 8.0, tuple(KINDS))])
        assert starts[0] == 0.0
        lengths = np.diff(starts)
        assert ((lengths >= 1.2) & (lengths <= 3.2)).all()
        assert 8.0 - starts[-1] > 0.5


def test_jumps_come_at_random_phases_of_the_control_tick():
    rng = np.random.default_rng(0)
    starts = [s.start_s for _ in range(100) for s in draw_segments(rng, 8.0, ('static',))[1:]]
    phases = np.mod(starts, 0.02) / 0.02
    assert np.histogram(phases, bins=4, range=(0, 1))[0].min() > len(starts) / 8


@pytest.mark.parametrize('kind', KINDS)
def test_kinds_can_be_chosen(kind):
    world = World(make_task('jump', kinds=(kind,)), seed=0)
    assert {segment.kind for segment in world.task.segments} == {kind}
    assert world.truth(1, 0).phase == kind


def test_a_cube_dropped_into_the_bin_succeeds_after_it_rested():
    world = World('pick_place', seed=0)
    world.scene.place_cube(BIN[0], BIN[1], 0.0)
    world.advance(150 * MS)
    assert not world.truth(1, 0).success
    world.advance(800 * MS)
    assert world.truth(1, 0).success


def test_a_cube_in_a_closed_gripper_does_not_count_as_placed():
    world = World('pick_place', seed=0)
    world.command(world.joint_state()[0][:6], 0.0)
    world.advance(500 * MS)
    world.scene.place_cube(BIN[0], BIN[1], 0.0)
    world.advance(1500 * MS)
    assert not world.truth(1, 0).success


def test_drawer_goal_is_the_handle_and_the_cabinet_differs_by_seed():
    worlds = [World('drawer', seed=seed) for seed in range(4)]
    truths = [world.truth(1, 0) for world in worlds]
    for truth in truths:
        np.testing.assert_allclose(truth.target_position, truth.objects['handle'][:3])
    places = np.array([truth.objects['cabinet'][:2] for truth in truths])
    assert np.ptp(places, axis=0).min() > 0.002
    assert (np.abs(places - (0.52, 0.24)) <= 0.02).all()


@pytest.mark.parametrize(('name', 'options', 'message'), [
    ('jump', {'kinds': ('warp',)}, 'target kinds'),
    ('jump', {'kinds': ()}, 'target kinds'),
    ('reach', {'speed': 2}, 'options of task reach'),
])
def test_wrong_options_are_refused_by_name(name, options, message):
    with pytest.raises(ConfigError, match=message):
        make_task(name, **options)


@pytest.mark.parametrize('kind', KINDS)
def test_position_and_velocity_together_are_those_alone_bit_for_bit(kind):
    for segment in segments(kind, count=3):
        for time_s in TIMES[::37].tolist():
            position, velocity = segment.at(time_s)
            assert position.tobytes() == segment.position(time_s).tobytes()
            assert velocity.tobytes() == segment.velocity(time_s).tobytes()
