"""A policy with weights inside a virtual run: encoder and model over a ring of this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from reflex_ros.core.clock import SystemClock
from reflex_ros.infer.families.tiny import TinyPolicy
from reflex_ros.ring.writer import RingWriter
from reflex_ros.stages.windowed import LocalRing, WindowedEncoder, WindowedModel, ring_layout

if TYPE_CHECKING:
    from reflex_ros.stages.models import ChunkModel, FrameEncoder


@contextmanager
def tiny_parts(folder: Path, *, seed: int = 0) -> Iterator[tuple[ChunkModel, FrameEncoder]]:
    """Return model and encoder of a checkpoint on a ring of their own, one torch thread.

    Args:
        folder: Checkpoint.
        seed: Seed of the noise.
    """
    torch.set_num_threads(1)
    policy = TinyPolicy.load(folder)
    writer = RingWriter.create(ring_layout(policy.spec), clock=SystemClock())
    ring = LocalRing(lambda: writer, clock=SystemClock())
    try:
        yield WindowedModel(policy, ring, seed=seed), WindowedEncoder(policy, writer)
    finally:
        ring.close()
        writer.close()
