"""Where the time of a stage goes: measured by a clock, or taken from a model of its costs.

A stage runs its work inside ``probe.span('encode')`` and never learns which kind it has. With a
``ModelProbe`` the work is done at once and the modelled cost moves a cursor, so the outputs exist
at ``ready_ns`` of a virtual clock whatever the machine.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from reflex_ros.core.clock import MS, Clock
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.types import StageTime


class Probe(Protocol):
    """Times the parts of one step of a stage."""

    def span(self, name: str) -> AbstractContextManager[None]:
        """Return a context that times its body as stage ``name``; spans do not nest."""

    def times(self) -> tuple[StageTime, ...]:
        """Return the finished spans, oldest first."""

    @property
    def ready_ns(self) -> int:
        """Steady instant at which the outputs of the step exist."""


class ClockProbe:
    """Measures with a clock.

    Args:
        clock: Clock to read.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._times: list[StageTime] = []

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Time the body as stage ``name``; a body that raises leaves no span."""
        start_ns = self._clock.mono_ns()
        yield
        self._times.append(StageTime(name, start_ns, self._clock.mono_ns()))

    def times(self) -> tuple[StageTime, ...]:
        """Return the finished spans, oldest first."""
        return tuple(self._times)

    @property
    def ready_ns(self) -> int:
        """Now: what was measured exists already."""
        return self._clock.mono_ns()


class Cost(Protocol):
    """Duration of a stage."""

    def duration_ns(self, n: int, seed: tuple[int, ...]) -> int:
        """Return the duration of the ``n``-th call (from 0), ns; a function of its arguments."""


@dataclass(frozen=True, slots=True)
class ConstantCost:
    """Always the same duration."""

    value_ns: int

    def duration_ns(self, n: int, seed: tuple[int, ...]) -> int:
        """Return the duration, ns."""
        return self.value_ns


@dataclass(frozen=True, slots=True)
class LognormalCost:
    """A long-tailed duration.

    Attributes:
        median_ns: Median.
        sigma: Standard deviation of the logarithm; 0.2 puts the 95 % quantile at 1.39 medians.
        max_ns: Longer draws are cut to this; 0 = no cut.
    """

    median_ns: int
    sigma: float
    max_ns: int = 0

    def duration_ns(self, n: int, seed: tuple[int, ...]) -> int:
        """Return the duration of the ``n``-th call, ns."""
        normal = float(np.random.default_rng((*seed, n)).standard_normal())
        drawn_ns = round(self.median_ns * math.exp(self.sigma * normal))
        return min(drawn_ns, self.max_ns) if self.max_ns else drawn_ns


@dataclass(frozen=True, slots=True)
class RecordedCost:
    """Durations of a recording, in its order, from the start again at its end."""

    samples_ns: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse an empty recording."""
        if not self.samples_ns:
            raise ConfigError(
                'recorded stage costs are empty: got 0 samples, expected >= 1 (ns). '
                'Record a run that contains this stage.'
            )

    def duration_ns(self, n: int, seed: tuple[int, ...]) -> int:
        """Return the duration of the ``n``-th call, ns."""
        return self.samples_ns[n % len(self.samples_ns)]


class CostModel:
    """Modelled durations of named stages.

    The duration of the n-th call of a stage depends on the seed, its name and n alone: adding a
    stage or reordering calls of different stages changes nothing else. Not thread-safe.

    Args:
        table: Cost of each stage name.
        seed: Seed of the random costs, >= 0.
    """

    def __init__(self, table: Mapping[str, Cost], seed: int = 0) -> None:
        self._table = {name: (cost, (seed, zlib.crc32(name.encode())))
                       for name, cost in table.items()}
        self._calls = dict.fromkeys(self._table, 0)

    def draw(self, name: str) -> int:
        """Return the duration of the next call of stage ``name``, ns.

        Raises:
            ConfigError: The model has no such stage.
        """
        if name not in self._table:
            known = ', '.join(sorted(self._table)) or 'none'
            raise ConfigError(
                f'cost model has no stage {name}: got {name!r}, expected one of {known}. '
                'Add its cost to the table.'
            )
        n = self._calls[name]
        self._calls[name] = n + 1
        cost, seed = self._table[name]
        return cost.duration_ns(n, seed)


class ModelProbe:
    """Takes durations from a cost model and moves its own cursor by them.

    Args:
        start_ns: Steady instant at which the step starts.
        costs: Durations; shared by all steps, since it counts the calls.
    """

    def __init__(self, start_ns: int, costs: CostModel) -> None:
        self._cursor_ns = start_ns
        self._costs = costs
        self._times: list[StageTime] = []

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Run the body, then let its modelled duration pass; a body that raises costs nothing."""
        yield
        start_ns = self._cursor_ns
        self._cursor_ns = start_ns + self._costs.draw(name)
        self._times.append(StageTime(name, start_ns, self._cursor_ns))

    def times(self) -> tuple[StageTime, ...]:
        """Return the finished spans, oldest first."""
        return tuple(self._times)

    @property
    def ready_ns(self) -> int:
        """Start plus the costs of all spans."""
        return self._cursor_ns


def recorded_costs(traces: Sequence[Sequence[StageTime]]) -> dict[str, RecordedCost]:
    """Return the cost of every stage that occurs in recorded stage lists, oldest first."""
    samples: dict[str, list[int]] = {}
    for stages in traces:
        for stage in stages:
            samples.setdefault(stage.name, []).append(stage.end_ns - stage.start_ns)
    return {name: RecordedCost(tuple(values)) for name, values in samples.items()}


def constant_costs(**stage_ms: float) -> dict[str, ConstantCost]:
    """Return constant costs from keyword arguments in milliseconds, e.g. ``denoise=40.0``."""
    return {name: ConstantCost(round(value * MS)) for name, value in stage_ms.items()}
