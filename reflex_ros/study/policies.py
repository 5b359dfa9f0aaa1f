"""A policy with weights inside a virtual run: encoder and model over a ring of this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from reflex_ros.core.clock import SystemClock
from reflex_ros.infer.cache import PARTITIONED
from reflex_ros.infer.families.tiny import TinyPolicy
from reflex_ros.ring.writer import RingWriter
from reflex_ros.stages.windowed import LocalRing, WindowedEncoder, WindowedModel, ring_layout
from reflex_ros.study.recompute import FULL, KeepingEncoder, RecomputingModel

if TYPE_CHECKING:
    from reflex_ros.stages.models import ChunkModel
    from reflex_ros.study.episode import SeeingEncoder


@lru_cache(maxsize=1)
def load_once(folder: Path, *, is_compiled: bool, is_traced: bool = False) -> TinyPolicy:
    """Return the policy of a checkpoint, the same one for every call of this process.

    Args:
        folder: Checkpoint.
        is_compiled: Whether the denoise step is compiled: 20 s once, then about 40 % faster; the
            last digit of a float32 differs.
        is_traced: Whether both passes are traced: 2 s once, then about a quarter faster, and
            equal bit for bit.
    """
    torch.set_num_threads(1)
    policy = TinyPolicy.load(folder)
    if is_compiled:
        policy.network.velocity = torch.compile(policy.network.velocity, dynamic=False)
    if is_traced:
        policy.trace_encoder()
        policy.trace_denoiser()
    return policy


def network_options(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return what node parameters ask of ``tiny_parts``, with the defaults of the nodes."""
    return {'cache': params.get('policy.cache', PARTITIONED),
            'num_steps': params.get('policy.num_denoise_steps', 0) or None}


@contextmanager
def tiny_parts(folder: Path, *, seed: int = 0,
               is_compiled: bool = False, is_traced: bool = False, cache: str = PARTITIONED,
               num_steps: int | None = None) -> Iterator[tuple[ChunkModel, SeeingEncoder]]:
    """Return model and encoder of a checkpoint on a ring of their own, one torch thread.

    Args:
        folder: Checkpoint.
        seed: Seed of the noise.
        is_compiled, is_traced: See ``load_once``.
        cache: ``partitioned``, or for comparison ``naive``, or ``full``: nothing is reused.
        num_steps: Denoise steps, None for the checkpoint's.
    """
    policy = load_once(folder, is_compiled=is_compiled, is_traced=is_traced)
    layout = ring_layout(policy.spec)
    writer = RingWriter.create(layout, clock=SystemClock())
    ring = LocalRing(lambda: writer, clock=SystemClock())
    encoder = WindowedEncoder(policy, writer)
    try:
        if cache == FULL:
            kept = KeepingEncoder(encoder, layout.slots)
            yield RecomputingModel(policy, kept, seed=seed, num_steps=num_steps), kept
        else:
            yield WindowedModel(policy, ring, seed=seed, num_steps=num_steps,
                                cache=cache), encoder
    finally:
        ring.close()
        writer.close()
