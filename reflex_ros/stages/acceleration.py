"""How the network of a stage is run: recordings made before the arm moves, and what was measured.

Every number here was measured on this machine when the node was configured, or counted since.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from reflex_ros.infer.device import CPU, CUDA_GRAPH, Acceleration, settle
from reflex_ros.infer.graph import CudaRecorder, Graphs, Recorder, ignore
from reflex_ros.infer.graph_loop import GraphedDenoiser
from reflex_ros.infer.graph_prefix import GraphedEncoder
from reflex_ros.infer.processing.binding import EMPTY

if TYPE_CHECKING:
    from torch import Tensor

    from reflex_ros.core.clock import Clock
    from reflex_ros.infer.lanes import Lane
    from reflex_ros.infer.policy import SnapshotPolicy

CALLS = 5
"""Calls that the median of a measured time is taken of."""


@dataclass(frozen=True, slots=True)
class Accelerated:
    """What a stage publishes of how it runs.

    Attributes:
        chosen: Device and way.
        lane: Stream or thread.
        graphs: Recordings, None where there are none.
        measured_ms: Of a call in the warm-up, by name.
    """

    chosen: Acceleration
    lane: Lane
    graphs: Graphs | None = None
    measured_ms: tuple[tuple[str, float], ...] = ()

    def facts(self) -> dict[str, object]:
        """Return names and values for diagnostics."""
        found: dict[str, object] = {
            'device': self.chosen.device, 'acceleration': self.chosen.kind,
            'lane': self.lane.kind, **{f'{name}_ms': ms for name, ms in self.measured_ms}}
        if self.graphs is not None:
            counts = self.graphs.counts
            found |= {'recordings': counts.recorded, 'late_recordings': counts.late,
                      'replays': counts.replayed, 'eager_calls': counts.eager,
                      'warm_up_s': counts.warm_ns / 1e9}
        return found

    def __str__(self) -> str:
        """Return the line for the log."""
        words = ' '.join(f'{name}={value:.4g}' if isinstance(value, float) else f'{name}={value}'
                         for name, value in self.facts().items())
        return f'acceleration: {words} reason={self.chosen.reason!r}'


def make_graphs(chosen: Acceleration, clock: Clock, progress: Callable[[str], None] = ignore, *,
                recorder: Recorder | None = None) -> Graphs | None:
    """Return where recordings are kept, None where the network runs without.

    Args:
        chosen: Of the parameters.
        clock: Steady clock.
        progress: Takes a line for each recording.
        recorder: Makes them, None for CUDA graphs if they were chosen.
    """
    if recorder is None:
        if chosen.kind != CUDA_GRAPH:
            return None
        recorder = CudaRecorder(chosen.device)
    return Graphs(recorder, clock=clock, progress=progress)


def warm_encoder(policy: SnapshotPolicy, graphs: Graphs, *, cameras: int) -> GraphedEncoder:
    """Return recordings of image tower and prefix for every text that the policy takes."""
    recorded = GraphedEncoder(policy, graphs)
    recorded.warm(cameras, range(1, policy.processing.tokenizer.max_length + 1))
    return recorded


def warm_denoiser(policy: SnapshotPolicy, graphs: Graphs, kv: Tensor, *, num_steps: int,
                  cameras: int, is_guided: bool) -> GraphedDenoiser:
    """Return recordings of the denoise loop for every prefix of so many cameras."""
    recorded = GraphedDenoiser(policy, kv, num_steps=num_steps, graphs=graphs)
    images = cameras * policy.network.camera_tokens
    words = range(1, policy.processing.tokenizer.max_length + 1)
    recorded.warm([images + count for count in words], is_guided=is_guided)
    return recorded


def camera_count(policy: SnapshotPolicy, masked: int) -> int:
    """Return how many cameras an observation has."""
    return sum(not name.startswith(EMPTY) for name in policy.cameras) - masked


def median_ms(call: Callable[[], object], lane: Lane, clock: Clock, *, calls: int = CALLS,
              device: str = CPU) -> float:
    """Return the median time of a call until everything is done, ms.

    Args:
        call: What is measured.
        lane: Where it goes.
        clock: Steady clock.
        calls: How many.
        device: Waited for as well, for a call that goes to no lane.
    """
    spent = []
    for _ in range(calls):
        start_ns = clock.mono_ns()
        with lane.entered(), torch.inference_mode():
            call()
        lane.finish()
        settle(device)
        spent.append(clock.mono_ns() - start_ns)
    return sorted(spent)[calls // 2] / 1e6
