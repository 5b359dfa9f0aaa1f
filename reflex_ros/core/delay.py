"""Estimates of the two delays: L (inference) and Delta (observation to first command)."""

from __future__ import annotations

from collections import deque
from math import ceil

from reflex_ros.core.clock import S
from reflex_ros.core.errors import ConfigError

MAX_SAMPLE_NS = 60 * S
"""No delay is longer: the age limit that follows from L would end nothing any more."""


class DelayEstimator:
    """A high quantile of the newest samples, so that a plan made with it is rarely late.

    Args:
        initial_ns: Value until the first sample after the warm-up, >= 0.
        window: Number of newest samples that count, >= 1.
        quantile: Share of samples that must not exceed the value, in (0, 1].
        warmup: Number of first samples that are ignored: they hold compilation and page faults.

    Raises:
        ConfigError: An argument is out of its bounds.

    Not thread-safe.
    """

    def __init__(
        self, *, initial_ns: int, window: int = 50, quantile: float = 0.95, warmup: int = 3
    ) -> None:
        _require('initial_ns', initial_ns, initial_ns >= 0, '>= 0 (ns)')
        _require('window', window, window >= 1, '>= 1 (samples)')
        _require('quantile', quantile, 0.0 < quantile <= 1.0, 'in (0, 1]')
        _require('warmup', warmup, warmup >= 0, '>= 0 (samples)')
        self._quantile = quantile
        self._warmup_left = warmup
        self._window: deque[int] = deque(maxlen=window)
        self._value_ns = initial_ns
        self._refused = 0

    def add(self, sample_ns: int) -> None:
        """Take one sample; one outside ``0 .. MAX_SAMPLE_NS``, two clocks mixed, only counts."""
        if not 0 <= sample_ns <= MAX_SAMPLE_NS:
            self._refused += 1
        elif self._warmup_left > 0:
            self._warmup_left -= 1
        else:
            self._window.append(sample_ns)
            rank = ceil(self._quantile * len(self._window) - 1e-9)
            self._value_ns = sorted(self._window)[max(1, rank) - 1]

    @property
    def value_ns(self) -> int:
        """Return the estimate: the smallest sample that the wanted share does not exceed."""
        return self._value_ns

    @property
    def samples(self) -> int:
        """Return the number of samples behind ``value_ns``; 0 during the warm-up."""
        return len(self._window)

    @property
    def refused(self) -> int:
        """Return the number of samples that can be no delay."""
        return self._refused

    def steps(self, period_ns: int) -> int:
        """Return the estimate in whole periods, rounded up.

        Raises:
            ConfigError: ``period_ns`` is not positive.
        """
        _require('period_ns', period_ns, period_ns > 0, '> 0 (ns)')
        return -(-self.value_ns // period_ns)


def _require(name: str, value: float, is_met: bool, expected: str) -> None:
    if not is_met:
        raise ConfigError(f'delay estimator {name}: got {value}, expected {expected}. Correct it.')
