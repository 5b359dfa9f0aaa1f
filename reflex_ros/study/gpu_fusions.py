"""What each fusion of the action expert is worth, and what 8-bit products of the prefix are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from reflex_ros.infer.device import CPU
from reflex_ros.infer.fp8_gate import action_error
from reflex_ros.infer.policy import SnapshotPolicy
from reflex_ros.infer.reuse import reference_reuse
from reflex_ros.infer.snapshot import Prefix, denoise
from reflex_ros.study.gpu_measure import Meter, spread
from reflex_ros.study.gpu_models import Model, random_policy
from reflex_ros.study.gpu_policy import PlainRecorder, Subject, recorder_of

MODEL = Model('pi05', 2, 50)
COMPACT_REUSE = replace(reference_reuse(), drop_masked=True)
"""The reference's steps without its padding, so that all variants have the same rows."""
ADDED: tuple[tuple[str, dict[str, bool]], ...] = (
    ('reference', {}), ('static rows', {'static_rows': True, 'aligned': True}),
    ('time table', {'time_table': True}), ('packed projections', {'packed': True}),
    ('fused attention', {'fused': True}),
)
"""What is switched on, one after the other; kernels and recording follow."""


def measure_fusions(size: str, *, device: str, calls: int) -> Iterator[dict[str, Any]]:
    """Yield the denoise loop of Pi0.5, each time with one step more of fusion, ms."""
    meter, switches = Meter(device), {}
    few = max(2, calls // 10)
    for name, more in ADDED:
        switches |= more
        made = random_policy(MODEL, size, device=device, kernels='none',
                             reuse=replace(COMPACT_REUSE, **switches))
        yield {'fusion': name, 'wall_ms': spread(meter.wall_ms(_loop(made), calls=few))}
        del made
    kernels = 'plain' if device == CPU else 'auto'
    made = random_policy(MODEL, size, device=device, kernels=kernels)
    yield {'fusion': f'kernels ({made.network.expert_pass.kernels_kind})',
           'wall_ms': spread(meter.wall_ms(_loop(made), calls=few))}
    del made
    for name, kind in (('none', 'recorded, single operations'), (kernels, 'recorded, kernels')):
        subject = Subject(random_policy(MODEL, size, device=device, kernels=name),
                          recorder_of(device))
        subject.encode(subject.see())
        yield {'fusion': kind, 'wall_ms': spread(meter.wall_ms(subject.denoise, calls=calls)),
               'device_ms': spread(meter.device_ms(subject.denoise, calls=calls))}
        del subject


def _loop(policy: SnapshotPolicy):
    """Return a denoise loop on an empty prefix, operation by operation."""
    network, config = policy.network, policy.config
    rows = len(policy.cameras) * network.camera_tokens + 20
    with torch.inference_mode(), policy.placed():
        kv = network.new_cache(1, rows + config.chunk_size + 64)
        state = torch.zeros(1, config.max_state_dim)
        noise = torch.zeros(1, config.chunk_size, config.max_action_dim)

    def call():
        with torch.inference_mode(), policy.placed():
            denoiser = policy.prepare(Prefix(kv, rows), state)
            return denoise(denoiser, noise, config.num_steps)

    return call


def measure_fp8(size: str, *, device: str, calls: int) -> Iterator[dict[str, Any]]:
    """Yield the prefix of Pi0.5 in bfloat16 and with 8-bit products, and what the actions lose.

    The weights are random, so the error is that of this network; a checkpoint is judged by the
    same gate when it is loaded.
    """
    meter = Meter(device)
    pair = []
    for name, is_fp8 in (('bfloat16', False), ('fp8', True)):
        made = random_policy(MODEL, size, device=device, is_fp8=is_fp8)
        recorder = PlainRecorder() if device == CPU else recorder_of(device)
        subject = Subject(made, recorder)
        views = subject.see()
        spent = meter.device_ms(lambda one=subject, views=views: one.encode(views), calls=calls)
        yield {'prefix': name, 'device_ms': spread(spent)}
        pair.append(made)
        del subject
    names = [f'column{n}' for n in range(pair[0].config.action_dim)]
    error = action_error(*pair, names=names, to_arm=lambda x: x, scenes=2)
    yield {'prefix': 'fp8', 'action_error': [float(x) for x in error.worst]}
