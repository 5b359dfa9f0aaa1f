"""Demonstrations made by hand: no simulator, no images worth looking at."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch._dynamo  # an optimizer imports it, and with it Triton: fatal after OpenGL has loaded

from reflex_ros.train.dataset import FIELDS, Demonstrations


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def make_demonstrations(*, episodes=3, frames=20, seed=0, cameras=1):
    """One segment per episode: a reference that moves at constant joint speed and an opening
    that changes at tick 30. Episodes have the intents 0, 1, 2, 0, ...; frame 7 is not usable.
    """
    rng = np.random.default_rng(seed)
    speed = np.append(rng.uniform(-0.01, 0.01, (episodes, 6)), np.zeros((episodes, 1)), 1)
    start = np.append(rng.uniform(-0.3, 0.3, (episodes, 6)), np.full((episodes, 1), 0.07), 1)
    ticks = np.arange(200)
    paths = (start[:, None] + speed[:, None] * ticks[:, None]).astype(np.float32)
    paths[:, 30:, 6] = 0.0
    segment = np.repeat(np.arange(episodes), frames)
    tick = np.tile(2.0 * np.arange(frames), episodes)
    reference = paths[segment, tick.astype(int)]
    shape, off = (episodes * frames, cameras, 16, 16, 3), rng.normal(0, 0.02, reference.shape)
    off[:, 6] = 0
    return Demonstrations(
        images=rng.integers(0, 256, shape, dtype=np.uint8),
        command=reference + off.astype(np.float32),
        measured=reference + rng.normal(0, 0.02, reference.shape).astype(np.float32),
        segment=segment,
        tick=tick,
        scene=rng.normal(0.3, 0.05, (episodes * frames, 10)).astype(np.float32),
        episode=segment + 100,
        intent=segment % 3,
        look=np.zeros(episodes * frames, np.int64),
        usable=np.arange(episodes * frames) != 7,
        paths=paths,
    )


@pytest.fixture(name='demonstrations')
def demonstrations_fixture():
    return make_demonstrations()


def write(data, file):
    np.savez(file, paths=data.paths, **{name: getattr(data, name) for name in FIELDS})
    return file


@pytest.fixture(name='write_demonstrations')
def write_fixture():
    return write


@pytest.fixture(name='make_demonstrations')
def make_fixture():
    return make_demonstrations
