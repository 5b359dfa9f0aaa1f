"""One policy on one device: a whole call, its parts, the reference's way, and the gap by cause."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from reflex_ros.core.clock import SystemClock
from reflex_ros.infer.device import CPU, ease_float32, settle
from reflex_ros.infer.flow import chunk_noise
from reflex_ros.infer.graph import CudaRecorder, Graphs, Recorder, Work
from reflex_ros.infer.graph_loop import GraphedDenoiser, graph_room
from reflex_ros.infer.graph_prefix import GraphedEncoder
from reflex_ros.infer.policy import SnapshotPolicy
from reflex_ros.infer.reuse import reference_reuse
from reflex_ros.infer.snapshot import Prefix, denoise
from reflex_ros.study.gpu_measure import Meter, spread
from reflex_ros.study.gpu_models import Model, random_policy
from reflex_ros.study.gpu_roofline import measure_ceilings, needs

PARTS = ('vision', 'prefix', 'denoise')


class PlainRecorder:
    """Runs the work itself; for a device without graphs, and to measure what a graph saves."""

    kind = 'eager'

    def record(self, work: Work) -> Work:
        """Return the work."""
        return work


def recorder_of(device: str) -> Recorder:
    """Return what records on a device."""
    return PlainRecorder() if device == CPU else CudaRecorder(device)


class Subject:
    """A policy with everything recorded, and one observation.

    Args:
        policy: The policy.
        recorder: Makes the recordings.
    """

    def __init__(self, policy: SnapshotPolicy, recorder: Recorder) -> None:
        self.policy = policy
        network, config = policy.network, policy.config
        self.words = policy.processing.token_ids('', torch.zeros(config.state_dim))
        made = torch.Generator().manual_seed(0)
        side = network.sizes.image
        self.images = {
            name: torch.randint(0, 256, (1, 3, side, side), generator=made, dtype=torch.uint8)
            for name in policy.cameras
        }
        self.length = len(policy.cameras) * network.camera_tokens + len(self.words)
        shape = (1, config.chunk_size, config.max_action_dim)
        self.noise = torch.from_numpy(chunk_noise(0, 0, shape=shape)).to(policy.device)
        self.state = torch.zeros(1, config.max_state_dim, device=policy.device)
        self.graphs = Graphs(recorder, clock=SystemClock())
        with torch.inference_mode(), policy.placed():
            room = graph_room(network.state_rows, config.chunk_size)
            self.kv = network.new_cache(1, self.length + room)
        self.encoder = GraphedEncoder(policy, self.graphs)
        self.denoiser = GraphedDenoiser(policy, self.kv, num_steps=config.num_steps,
                                        graphs=self.graphs)
        self.encoder.warm(len(policy.cameras), [len(self.words)])
        self.denoiser.warm([self.length])

    def see(self) -> dict[str, Tensor]:
        """Return the tokens of all cameras."""
        return {name: self.encoder.view(image) for name, image in self.images.items()}

    def encode(self, views: dict[str, Tensor]) -> Prefix:
        """Write the prefix into the staging copy."""
        return self.encoder.encode(views, self.words, out=self.kv)

    def denoise(self) -> Tensor:
        """Return the actions."""
        return self.denoiser(self.length, self.state, self.noise)

    @torch.inference_mode()
    def call(self) -> Tensor:
        """Return the actions in host memory: from images to what the arm is told."""
        self.encode(self.see())
        return self.denoise().cpu()

    def parts(self) -> dict[str, Work]:
        """Return vision, prefix and denoise loop as they are recorded, for one call each."""
        views = self.see()
        self.encode(views)
        return {'vision': lambda: None if self.see() else None,
                'prefix': lambda: None if self.encode(views) else None,
                'denoise': lambda: None if self.denoise() is None else None}


class Reference:
    """The same policy as the reference implementations run it: eager, prefix cache alone.

    Args:
        policy: Built with ``reference_reuse``.
        subject: Whose observation it is asked about.
    """

    def __init__(self, policy: SnapshotPolicy, subject: Subject) -> None:
        self._policy, self._subject = policy, subject

    @torch.inference_mode()
    def call(self) -> Tensor:
        """Return the actions in host memory."""
        policy, one = self._policy, self._subject
        views = {name: policy.view(image) for name, image in one.images.items()}
        prefix = policy.encode(views, [one.words], one.state)
        with policy.placed():
            denoiser = policy.prepare(prefix, one.state)
            return denoise(denoiser, one.noise, policy.config.num_steps).cpu()


def measure_policy(model: Model, size: str, *, device: str, calls: int,
                   is_small: bool = False) -> Iterator[dict[str, Any]]:
    """Yield what one policy takes; each record stands when a later one fails.

    Args:
        model: Family, cameras, rows of a chunk.
        size: ``full`` or ``compact``.
        device: ``cuda`` or ``cpu``.
        calls: How many of each are timed.
        is_small: Ceilings from small products, for tests.
    """
    ease_float32(device, torch.bfloat16)
    meter = Meter(device)
    ceilings = measure_ceilings(meter, is_small=is_small)
    yield {'what': 'ceilings', **asdict(ceilings)}
    meter.reset_peak()
    subject = Subject(random_policy(model, size, device=device), recorder_of(device))
    counts = subject.graphs.counts
    yield {'what': 'start', 'recordings': counts.recorded, 'warm_up_s': counts.warm_ns / 1e9,
           'kind': subject.graphs.kind, 'kernels': subject.policy.compute.kernels,
           'prefix_rows': subject.length, 'words': len(subject.words)}
    parts = {name: spread(meter.device_ms(work, calls=calls))
             for name, work in subject.parts().items()}
    yield {'what': 'parts', 'device_ms': parts}
    wall = spread(meter.wall_ms(subject.call, calls=calls))
    yield {'what': 'call', 'wall_ms': wall, 'peak_mb': meter.peak_mb(),
           'late_recordings': counts.late}
    config = subject.policy.config
    found = needs(subject.policy.network.sizes, views=model.views, words=len(subject.words),
                  chunk=model.chunk, steps=config.num_steps)
    least = {name: need.least_ms(ceilings) for name, need in found.items()}
    yield {'what': 'roofline', 'least_ms': least,
           'needs': {name: asdict(need) for name, need in found.items()},
           'gap_ms': gap(least, {name: parts[name]['p50'] for name in PARTS}, wall['p50'])}
    yield from _against_reference(model, size, subject, meter, calls)


def gap(least: dict[str, float], device: dict[str, float], wall: float) -> dict[str, float]:
    """Return where the time above the least goes, ms.

    Args:
        least: Of each part. device: What each took on the device. wall: What a call took.
    """
    by_part = {f'{name}_kernels': device[name] - least[name] for name in PARTS}
    return {**by_part, 'host_and_copies': wall - sum(device[name] for name in PARTS)}


def _against_reference(model: Model, size: str, subject: Subject, meter: Meter,
                       calls: int) -> Iterator[dict[str, Any]]:
    """Yield time and memory of the reference's way, and how far the actions are apart."""
    ours = subject.call()
    few = max(2, calls // 10)
    eager = Subject(subject.policy, PlainRecorder())
    yield {'what': 'unrecorded', 'wall_ms': spread(meter.wall_ms(eager.call, calls=few))}
    device = subject.policy.device
    subject.graphs, subject.encoder, subject.denoiser = None, None, None  # frees their memory
    del eager
    subject.policy = None
    settle(device)
    meter.reset_peak()
    policy = random_policy(model, size, device=device, reuse=reference_reuse(), kernels='none')
    reference = Reference(policy, subject)
    theirs = reference.call()
    spent = meter.wall_ms(reference.call, calls=few)
    yield {'what': 'reference', 'wall_ms': spread(spent), 'peak_mb': meter.peak_mb(),
           'action_difference': float((ours - theirs).abs().max()),
           'action_size': float(theirs.abs().max())}
