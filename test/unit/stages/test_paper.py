"""[ci] The paper's names do what they say, on the shipped policy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reflex_ros.core.clock import MS, S, SystemClock
from reflex_ros.core.errors import ConfigError
from reflex_ros.infer import flow
from reflex_ros.infer.families.tiny import TinyPolicy
from reflex_ros.stages.paper import FutureStatePredictor, StreamingInputManager

TINY = Path(__file__).resolve().parents[3] / 'reflex_ros' / 'data' / 'tiny'
T0, PERIOD = 1_700_000_000 * S, 40 * MS


@pytest.fixture(scope='module')
def policy():
    return TinyPolicy.load(TINY)


@pytest.fixture
def manager(policy):
    with StreamingInputManager(policy, clock=SystemClock()) as manager:
        yield manager


def frame(policy, seed: int):
    generator = np.random.default_rng(seed)
    shape = (*policy.spec.image_hw, 3)
    return {name: generator.integers(0, 256, shape, np.uint8) for name in policy.spec.cameras}


def chunk(policy, caches, manager):
    state = np.zeros(len(policy.spec.joint_names))
    noise = flow.chunk_noise(0, 1, shape=policy.spec.noise_shape)
    return manager.denoise(caches, state=state, noise=noise)


def test_a_stream_gives_what_encoding_everything_anew_gives(policy, manager):
    """Twelve frames through a window of four, against the last four by themselves."""
    manager.set_instruction(policy.spec.instruction)
    for k in range(12):
        manager.add_new_prefix(frame(policy, k), T0 + k * PERIOD)
    streamed = chunk(policy, manager.merge_caches(T0 + 12 * PERIOD), manager)
    with StreamingInputManager(policy, clock=SystemClock()) as fresh:
        fresh.set_instruction(policy.spec.instruction)
        for k in range(12 - policy.spec.window, 12):
            fresh.add_new_prefix(frame(policy, k), T0 + k * PERIOD)
        again = chunk(policy, fresh.merge_caches(T0 + 12 * PERIOD), fresh)
    assert np.array_equal(streamed, again)


def test_equality_can_fail(policy, manager):
    """One frame that was not evicted in time changes the chunk."""
    manager.set_instruction(policy.spec.instruction)
    for k in range(4):
        manager.add_new_prefix(frame(policy, k), T0 + k * PERIOD)
    before = chunk(policy, manager.merge_caches(T0 + 4 * PERIOD), manager)
    manager.evict_source_prefix()
    after = chunk(policy, manager.merge_caches(T0 + 4 * PERIOD), manager)
    assert not np.array_equal(before, after)


def test_a_frame_stays_where_it_is_and_as_it_is(policy, manager):
    manager.set_instruction(policy.spec.instruction)
    ref = manager.add_new_prefix(frame(policy, 0), T0)
    address = manager.buffer.frame(ref).ctypes.data
    content = manager.buffer.frame(ref).copy()
    for k in range(1, policy.spec.window):
        manager.add_new_prefix(frame(policy, k), T0 + k * PERIOD)
    _, frames = manager.split_caches()
    assert frames[0].ctypes.data == address, 'nothing was moved'
    assert np.array_equal(frames[0], content), 'nothing was touched'
    assert [len(frames)] == [policy.spec.window]


def test_the_oldest_frame_leaves_first_and_only_its_place_in_the_window(policy, manager):
    manager.set_instruction(policy.spec.instruction)
    refs = [manager.add_new_prefix(frame(policy, k), T0 + k * PERIOD) for k in range(3)]
    assert manager.evict_source_prefix() == refs[0]
    assert len(manager.split_caches()[1]) == 2
    assert manager.evict_source_prefix() == refs[1]
    assert manager.evict_source_prefix() == refs[2]
    assert manager.evict_source_prefix() is None


def test_ages_count_control_steps_to_row_zero(policy, manager):
    manager.set_instruction(policy.spec.instruction)
    for k in range(3):
        manager.add_new_prefix(frame(policy, k), T0 + k * PERIOD)
    caches = manager.merge_caches(T0 + 3 * PERIOD)
    assert caches.ages_steps.tolist() == [6, 4, 2]


def test_memory_is_allocated_once(policy, manager):
    """One hundred frames use the addresses of the first few."""
    manager.set_instruction(policy.spec.instruction)
    seen = set()
    for k in range(100):
        ref = manager.add_new_prefix(frame(policy, k % 3), T0 + k * PERIOD)
        seen.add(manager.buffer.frame(ref).ctypes.data)
    assert len(seen) <= manager.buffer.layout.slots


def test_a_new_instruction_drops_the_frames_of_the_old_one(policy, manager):
    manager.set_instruction(policy.spec.instruction)
    manager.add_new_prefix(frame(policy, 0), T0)
    with pytest.raises(ConfigError):
        manager.set_instruction('far too many words ' * 50)
    assert len(manager.split_caches()[1]) == 1, 'a refused one changes nothing'
    manager.set_instruction(policy.spec.instruction)
    assert manager.split_caches()[1] == ()


def test_misuse_is_refused_by_name(policy, manager):
    with pytest.raises(ConfigError, match='got no instruction yet'):
        manager.add_new_prefix(frame(policy, 0), T0)
    manager.set_instruction(policy.spec.instruction)
    manager.add_new_prefix(frame(policy, 0), T0)
    with pytest.raises(ConfigError, match='Give frames in order'):
        manager.add_new_prefix(frame(policy, 1), T0)
    with pytest.raises(ConfigError, match='camera'):
        manager.add_new_prefix({}, T0 + PERIOD)
    assert len(manager.split_caches()[1]) == 1
    manager.add_new_prefix(frame(policy, 1), T0 + PERIOD)


def test_the_predictor_without_a_plan_predicts_nothing():
    assert FutureStatePredictor(max_tracking_error_rad=0.1).predict(None, T0) is None
