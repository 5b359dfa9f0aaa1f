"""Stage times of ``tiny`` on this machine, CPU time of one thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from reflex_ros.core.machine import describe_machine
from reflex_ros.study.policies import load_once

WARMUP = 3


def measure_tiny(folder: Path, rounds: int,
                 tick: Callable[[], object] = lambda: None) -> dict[str, dict[str, Any]]:
    """Return the profiles ``tiny_standard`` and ``tiny_reflex``, as a file of profiles has them.

    Args:
        folder: Checkpoint. rounds: Counted rounds; in each every part runs once.
        tick: Called after each counted round.
    """
    policy = load_once(folder, is_compiled=False)
    spec, rng = policy.spec, np.random.default_rng(0)
    pinned = np.zeros(spec.pinned_shape, np.float32)
    policy.encode_instruction(spec.instruction, pinned)
    blocks = [np.zeros(spec.frame_shape, np.float32) for _ in range(spec.window)]
    image = rng.integers(0, 255, (*spec.image_hw, 3), dtype=np.uint8)
    images = dict.fromkeys(spec.cameras, image)
    ages = 2.0 * np.arange(spec.window - 1, -1, -1.0)
    noise = rng.standard_normal(spec.noise_shape).astype(np.float32)

    def encode(count: int) -> None:
        for block in blocks[:count]:
            policy.encode_frame(images, pinned, block)

    def denoise() -> None:
        policy.denoise(pinned, blocks, ages, state=np.zeros(len(spec.joint_names)), noise=noise)

    parts = {'window': lambda: encode(spec.window), 'frame': lambda: encode(1),
             'denoise': denoise}
    times: dict[str, list[float]] = {name: [] for name in parts}
    for number in range(WARMUP + rounds):
        for name, work in parts.items():
            spent = _cpu_ms(work)
            if number >= WARMUP:
                times[name].append(spent)
        if number >= WARMUP:
            tick()
    return {'tiny_standard': _profile('serial', times['window'], times['denoise'],
                                      f'all {spec.window} frames encoded for every inference'),
            'tiny_reflex': _profile('two_stream', times['frame'], times['denoise'],
                                    'the newest frame encoded')}


def _cpu_ms(work: Callable[[], None]) -> float:
    start = time.thread_time_ns()
    work()
    return round((time.thread_time_ns() - start) / 1e6, 3)


def _profile(pipeline: str, encode: list[float], denoise: list[float],
             what: str) -> dict[str, Any]:
    machine = describe_machine()
    return {
        'tag': 'measured', 'pipeline': pipeline,
        'source': f'tiny on {machine["cpu"]}, CPU time of one thread, {what}, '
                  f'{datetime.now(UTC):%Y-%m-%d}',
        'stages_ms': {'encode': encode, 'denoise': denoise},
    }
