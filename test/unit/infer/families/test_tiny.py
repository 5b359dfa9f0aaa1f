"""The policy as encoder and policy stage use it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from reflex_ros.core.errors import ConfigError
from reflex_ros.infer import flow
from reflex_ros.infer.families.tiny import TinyPolicy
from reflex_ros.infer.reference import Oracle, Scene, Sizes


@pytest.fixture(name='policy')
def policy_fixture(tiny_folder):
    return TinyPolicy.load(tiny_folder)


def image(seed, side=16):
    rng = np.random.default_rng(seed)
    return {'main': rng.integers(0, 256, (side, side, 3), dtype=np.uint8)}


def encoded(policy, frames=3, text='follow the ball'):
    pinned = np.empty(policy.spec.pinned_shape, np.float32)
    policy.encode_instruction(text, pinned)
    blocks = [np.empty(policy.spec.frame_shape, np.float32) for _ in range(frames)]
    for index, block in enumerate(blocks):
        policy.encode_frame(image(index), pinned, block)
    return pinned, blocks


STATE = np.array([0.1, 1.2, -1.3, 0.0, 0.9, 0.0, 0.05])


def chunk(policy, pinned, frames, **changes):
    noise = flow.chunk_noise(0, 1, shape=policy.spec.noise_shape)
    ages = np.arange(len(frames))[::-1] * 2.0
    return policy.denoise(pinned, frames, ages, **{'state': STATE, 'noise': noise, **changes})


def test_blocks_have_the_sizes_of_the_spec(policy):
    pinned, blocks = encoded(policy)
    assert pinned.nbytes == policy.spec.pinned_bytes
    assert blocks[0].nbytes == policy.spec.frame_bytes


def test_a_chunk_equals_the_oracle_from_pixels_to_positions(tiny_folder):
    policy = TinyPolicy.load(tiny_folder, dtype=torch.float64)
    pinned = torch.empty(policy.spec.pinned_shape, dtype=torch.float64)
    policy.encode_instruction('follow the ball', pinned)
    frames = [torch.empty(policy.spec.frame_shape, dtype=torch.float64) for _ in range(3)]
    for index, block in enumerate(frames):
        policy.encode_frame(image(index), pinned, block)
    sizes = policy.network.config
    names = [field.name for field in dataclasses.fields(Sizes)]
    oracle = Oracle(
        {n: t.numpy() for n, t in policy.network.state_dict().items()},
        Sizes(**{n: getattr(sizes, n) for n in names}),
    )
    scene = Scene(
        policy.token_ids('follow the ball'),
        [[image(i)['main'] / 127.5 - 1] for i in range(3)],
        [4.0, 2.0, 0.0],
        policy.scalings.state.normalise(STATE),
    )
    noise = flow.chunk_noise(0, 1, shape=policy.spec.noise_shape)
    actions = policy.scalings.action.restore(oracle.denoise(scene, noise.astype(float), 10))
    expected = actions + np.where(np.arange(7) < 6, STATE, 0.0)
    got = chunk(policy, pinned, frames)
    assert np.abs(got - expected).max() <= 1e-11


def test_numpy_and_torch_buffers_give_the_same_chunk(policy):
    pinned, blocks = encoded(policy)
    tensors = [torch.from_numpy(block) for block in blocks]
    np.testing.assert_array_equal(
        chunk(policy, pinned, blocks), chunk(policy, torch.from_numpy(pinned), tensors)
    )


def test_denoising_modifies_no_buffer(policy):
    pinned, blocks = encoded(policy)
    kept = [pinned.copy(), *(b.copy() for b in blocks)]
    chunk(policy, pinned, blocks)
    assert all(np.array_equal(a, b) for a, b in zip(kept, [pinned, *blocks], strict=True))


def test_a_frame_is_written_into_the_slot_it_was_given(policy):
    pinned, _ = encoded(policy)
    ring = np.full((3, *policy.spec.frame_shape), np.nan, np.float32)
    policy.encode_frame(image(1), pinned, ring[1])
    assert np.isfinite(ring[1]).all()
    assert np.isnan(ring[[0, 2]]).all()


def test_positions_follow_the_state_but_the_gripper_does_not(policy):
    pinned, blocks = encoded(policy)
    with torch.no_grad():
        for name, parameter in policy.network.named_parameters():
            if 'gate_out' in name:
                parameter.zero_()
    moved = STATE + 0.25
    difference = chunk(policy, pinned, blocks, state=moved) - chunk(policy, pinned, blocks)
    np.testing.assert_allclose(difference[:, :6], 0.25, atol=1e-6)
    np.testing.assert_allclose(difference[:, 6], 0.0, atol=1e-6)


@pytest.mark.parametrize('frames', [1, 2, 4])
def test_a_window_that_is_partly_filled_gives_a_finite_chunk(policy, frames):
    pinned, blocks = encoded(policy, frames)
    result = chunk(policy, pinned, blocks)
    assert result.shape == (6, 7)
    assert result.dtype == np.float64
    assert np.isfinite(result).all()


def test_too_many_frames_are_refused(policy):
    pinned, blocks = encoded(policy, 5)
    with pytest.raises(ConfigError, match='got 5 frames'):
        chunk(policy, pinned, blocks)


def test_a_state_that_is_not_finite_is_refused(policy):
    pinned, blocks = encoded(policy)
    with pytest.raises(ConfigError, match='state'):
        chunk(policy, pinned, blocks, state=np.full(7, np.nan))


@pytest.mark.parametrize('images', [
    {}, {'main': np.zeros((8, 8, 3), np.uint8)}, {'main': np.zeros((16, 16, 3), np.float32)},
])  # fmt: skip
def test_a_missing_or_mis_shaped_camera_is_named(policy, images):
    pinned, blocks = encoded(policy, 1)
    with pytest.raises(ConfigError, match='camera main'):
        policy.encode_frame(images, pinned, blocks[0])


def test_a_slot_of_the_wrong_shape_is_refused(policy):
    pinned, _ = encoded(policy, 1)
    with pytest.raises(ConfigError, match='frame block cannot be used'):
        policy.encode_frame(image(0), pinned, np.empty((1, 2, 3), np.float32))


def test_an_instruction_that_is_too_long_is_refused(policy):
    with pytest.raises(ConfigError, match='instruction cannot be used'):
        policy.token_ids('follow the ball and then come back home again at once please')


def test_another_instruction_gives_another_chunk(policy):
    pinned, blocks = encoded(policy, 2)
    other, others = encoded(policy, 2, text='hold still')
    assert not np.allclose(chunk(policy, pinned, blocks), chunk(policy, other, others))
