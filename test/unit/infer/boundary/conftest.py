"""Checkpoints of the four families, and networks into which a dependency was planted."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from reflex_ros.infer.boundary.certificate import snapshot_samples
from reflex_ros.infer.boundary.snapshot import SnapshotBoundary
from reflex_ros.infer.checkpoint.pretrained import open_pretrained
from reflex_ros.infer.policy import SnapshotPolicy

ROOT = Path(__file__).resolve().parents[4]


def folder_of(name: str) -> Path:
    if name == 'tiny':
        return ROOT / 'reflex_ros' / 'data' / 'tiny'
    return ROOT / 'test' / 'data' / 'parity' / name / 'checkpoint'


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope='session')
def folder():
    return folder_of


@pytest.fixture(scope='session')
def planted():
    """Return a boundary whose networks a function has changed, and an observation."""
    def make(family, plant, *, seed=0):
        pretrained = open_pretrained(folder_of(family))

        def build(checkpoint, **how):
            policy = SnapshotPolicy(checkpoint, **how)
            plant(policy.network)
            return policy

        boundary = SnapshotBoundary(pretrained, build=build)
        return boundary, snapshot_samples(pretrained, 1, seed=seed)[0]

    return make
