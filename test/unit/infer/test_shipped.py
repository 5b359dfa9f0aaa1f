"""The checkpoint that is shipped: exact, and it does what it is told."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

import reflex_ros
from reflex_ros.core.errors import ConfigError
from reflex_ros.infer import flow
from reflex_ros.infer.families.tiny import TinyPolicy
from reflex_ros.infer.reference import Oracle, Scene, Sizes
from reflex_ros.sim.cameras import CameraRig
from reflex_ros.sim.world import World
from reflex_ros.train.evaluate import tip_positions

FOLDER = Path(reflex_ros.__file__).parent / 'data' / 'tiny'
SEEDS = range(20, 28)


def blocks(policy, text, images, dtype=torch.float32):
    pinned = torch.empty(policy.spec.pinned_shape, dtype=dtype)
    policy.encode_instruction(text, pinned)
    frames = [torch.empty(policy.spec.frame_shape, dtype=dtype) for _ in images]
    for image, frame in zip(images, frames, strict=True):
        policy.encode_frame({'main': image}, pinned, frame)
    return pinned, frames


@pytest.mark.parametrize('dtype', [torch.float64, torch.float32], ids=['float64', 'float32'])
def test_the_shipped_weights_equal_full_recomputation(dtype):
    policy = TinyPolicy.load(FOLDER, dtype=dtype)
    rng = np.random.default_rng(0)
    images = list(rng.integers(0, 256, (3, 64, 64, 3), dtype=np.uint8))
    text = policy.spec.instruction
    pinned, frames = blocks(policy, text, images, dtype)
    state = policy.scalings.state.mean
    noise = flow.chunk_noise(0, 1, shape=policy.spec.noise_shape)
    chunk = policy.denoise(pinned, frames, [7.5, 5.5, 3.5], state=state, noise=noise)
    names = [field.name for field in dataclasses.fields(Sizes)]
    weights = {n: t.numpy() for n, t in policy.network.state_dict().items()}
    oracle = Oracle(weights, Sizes(**{n: getattr(policy.network.config, n) for n in names}))
    pixels = [[image / 127.5 - 1] for image in images]
    scene = Scene(policy.token_ids(text), pixels, [7.5, 5.5, 3.5], np.zeros(7))
    full = oracle.denoise(scene, noise.astype(float), 10)
    got = policy.scalings.action.normalise(chunk - np.where(np.arange(7) < 6, state, 0))
    tolerance = 1e-11 if dtype == torch.float64 else 5e-5
    assert np.abs(got - full).max() / max(1, np.abs(full).max()) <= tolerance


@pytest.fixture(scope='module', name='scenes')
def scenes_fixture():
    """Two frames of a target at rest, the state and where the target is."""
    found = []
    for seed in SEEDS:
        world = World('reach', seed=seed)
        rig = CameraRig(world.model_xml, seed=seed)
        try:
            first = rig.render(world.snapshot(), 'main', 0)
        except ConfigError as error:
            pytest.skip(f'no off-screen rendering here: {error}')
        world.advance(40_000_000)
        images = [first, rig.render(world.snapshot(), 'main', 1)]
        rig.close()
        found.append((images, world.joint_state()[0], world.goal.position))
    return found


def end_points(scenes, text):
    """Return where each chunk starts, where it ends and where the target is, m."""
    policy = TinyPolicy.load(FOLDER)
    rows = []
    for index, (images, state, target) in enumerate(scenes):
        pinned, frames = blocks(policy, text, images)
        noise = flow.chunk_noise(5, index, shape=policy.spec.noise_shape)
        chunk = policy.denoise(pinned, frames, [2.0, 0.0], state=state, noise=noise)
        rows.append((tip_positions(state), tip_positions(chunk[-1]), target))
    return (np.array(column) for column in zip(*rows, strict=True))


def test_told_to_follow_the_chunk_ends_at_the_target(scenes):
    start, end, target = end_points(scenes, 'follow the pink ball')
    before = np.linalg.norm(start - target, axis=1)
    after = np.linalg.norm(end - target, axis=1)
    assert np.median(before) > 0.15
    assert np.median(after) < 0.05


def test_told_to_hold_still_the_chunk_goes_nowhere(scenes):
    start, end, _ = end_points(scenes, 'hold still')
    assert np.median(np.linalg.norm(end - start, axis=1)) < 0.03
