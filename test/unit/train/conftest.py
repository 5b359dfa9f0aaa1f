"""Demonstrations made by hand: no simulator, no images worth looking at."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from reflex_ros.train.dataset import FIELDS, Demonstrations


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def make_demonstrations(*, episodes=3, frames=20, seed=0):
    """One segment per episode: a reference that moves at constant joint speed."""
    rng = np.random.default_rng(seed)
    speed = rng.uniform(-0.01, 0.01, (episodes, 6))
    start = rng.uniform(-0.3, 0.3, (episodes, 6))
    ticks = np.arange(200)
    paths = (start[:, None] + speed[:, None] * ticks[:, None]).astype(np.float32)
    segment = np.repeat(np.arange(episodes), frames)
    tick = np.tile(2.0 * np.arange(frames), episodes)
    reference = paths[segment, tick.astype(int)]
    return Demonstrations(
        images=rng.integers(0, 256, (episodes * frames, 16, 16, 3), dtype=np.uint8),
        command=reference + rng.normal(0, 0.02, reference.shape).astype(np.float32),
        measured=reference + rng.normal(0, 0.02, reference.shape).astype(np.float32),
        segment=segment,
        tick=tick,
        target=rng.normal(0.3, 0.05, (episodes * frames, 3)).astype(np.float32),
        episode=segment + 100,
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
