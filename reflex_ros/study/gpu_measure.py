"""Times on a device: of the device's own clock, and of the wall, each call by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import TYPE_CHECKING

import torch

from reflex_ros.core.clock import SystemClock
from reflex_ros.core.stats import quantiles
from reflex_ros.infer.device import CPU, settle

if TYPE_CHECKING:
    from reflex_ros.core.clock import Clock

WARM_CALLS = 3
P999 = 0.999


class Meter:
    """Measures calls on one device.

    Args:
        device: ``cpu`` or ``cuda``; on the CPU both kinds of time are the wall's.
        clock: Steady clock.
    """

    def __init__(self, device: str, clock: Clock | None = None) -> None:
        self.device, self._clock = device, clock or SystemClock()

    def device_ms(self, call: Callable[[], object], *, calls: int) -> list[float]:
        """Return the time of each call between two marks on the device, ms."""
        if self.device == CPU:
            return self.wall_ms(call, calls=calls)
        for _ in range(WARM_CALLS):
            call()
        pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(calls)]
        for first, last in pairs:
            first.record()
            call()
            last.record()
        settle(self.device)
        return [first.elapsed_time(last) for first, last in pairs]

    def wall_ms(self, call: Callable[[], object], *, calls: int) -> list[float]:
        """Return the time of each call until the device has done it, ms."""
        for _ in range(WARM_CALLS):
            call()
        settle(self.device)
        spent = []
        for _ in range(calls):
            start_ns = self._clock.mono_ns()
            call()
            settle(self.device)
            spent.append((self._clock.mono_ns() - start_ns) / 1e6)
        return spent

    def reset_peak(self) -> None:
        """Begin to watch the memory of the device."""
        if self.device != CPU:
            settle(self.device)
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def peak_mb(self) -> float | None:
        """Return the most memory that tensors had since ``reset_peak``, 1e6 bytes; None on CPU."""
        return None if self.device == CPU else torch.cuda.max_memory_allocated() / 1e6


def spread(samples: Sequence[float]) -> dict[str, float]:
    """Return ``p50 p99 p999 max n`` of times in ms."""
    found = quantiles(samples)
    ordered = sorted(samples)
    rank = max(1, ceil(P999 * len(ordered) - 1e-9))
    return {'p50': found['p50'], 'p99': found['p99'], 'p999': ordered[min(rank, len(ordered)) - 1],
            'max': found['max'], 'n': found['n']}
