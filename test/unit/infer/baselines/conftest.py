"""A small Pi policy with random weights, and a stream of observations for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from reflex_ros.infer.baselines.vla_cache import Seen
from reflex_ros.infer.checkpoint.pretrained import Pretrained
from reflex_ros.infer.policy import SnapshotPolicy
from reflex_ros.infer.reuse import Reuse
from reflex_ros.study.bench_subject import SIZES, random_config, random_subject, random_weights

SIDE, STEPS = 56, 4


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Stream:
    """A policy in float64 and observations of a seed."""

    def __init__(self, family='pi05', *, depth=4, kv_heads=1, **reuse) -> None:
        sizes = replace(SIZES['tiny'][family], depth=depth, expert_depth=depth, kv_heads=kv_heads)
        config = replace(random_config(family, SIDE), num_steps=STEPS, chunk_size=8)
        processing = random_subject(family, 'tiny', seed=1).pretrained.processing
        weights = random_weights(family, sizes, config, seed=1)
        pretrained = Pretrained(family, config, sizes, weights, processing, {}, '', None)
        self.policy = SnapshotPolicy(pretrained, dtype='float64', reuse=Reuse(**reuse))
        self.noise = torch.randn(1, 8, 32, generator=torch.Generator().manual_seed(5)).double()

    def seen(self, image_seed: int = 0, *, block: int = 0, ids=(3, 4, 5, 6, 7), task='pick'):
        """Return an observation; ``block`` pixels of each image are those of another seed."""
        generator = torch.Generator().manual_seed(image_seed)
        images = {n: torch.randint(0, 256, (1, 3, SIDE, SIDE), generator=generator,
                                   dtype=torch.uint8) for n in self.policy.cameras}
        for image in images.values():
            image[:, :, :block, :block] = 255 - image[:, :, :block, :block]
        views = {n: self.policy.view(image) for n, image in images.items()}
        state = torch.full((1, 32), 0.1, dtype=torch.float64)
        return Seen(images, views, tuple(ids), state, task)

    def full(self, seen: Seen):
        return self.policy.encode(seen.views, [seen.ids], seen.state)

    def velocities(self, prefix, seen: Seen, cache='partitioned'):
        with torch.inference_mode():
            denoiser = self.policy.prepare(prefix, seen.state, STEPS, cache=cache)
            return torch.stack([denoiser.velocity(self.noise + k, k) for k in range(STEPS)])


@pytest.fixture
def stream():
    return Stream
