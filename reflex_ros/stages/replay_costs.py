"""Stage latencies of a replay: those of the recording, their distribution, or injected ones.

Shares are met exactly rather than by chance: each call of a stage takes its place in the order of
all calls from an additive sequence, so that 120 ms asked for at the 95 % quantile are 120 ms in a
short run as well.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil
from types import MappingProxyType
from typing import TYPE_CHECKING

from reflex_ros.core.clock import MS
from reflex_ros.core.probe import Cost

if TYPE_CHECKING:
    from reflex_ros.stages.replay_inject import Injection

TRANSPORT = 'transport'
"""Time from the end of an inference to the acceptance of its chunk, beyond its own stages."""
TRANSPORT_BLOCK, TRANSPORT_PLAN = 'transport_block', 'transport_plan'
"""The same from encoder to policy, and from bridge to policy."""
TRANSPORT_FRAME = 'transport_frame'
"""From a frame's stamp to the encoder. A replay has frames when they were received."""
TRANSPORTS = (TRANSPORT, TRANSPORT_BLOCK, TRANSPORT_PLAN)
STAGES = (
    'encode', 'vision', 'prefix', 'instruction', 'publish', 'stage_copy', 'denoise', 'decode',
    *TRANSPORTS,
)
ASSUMED_MS: Mapping[str, float] = MappingProxyType({
    'encode': 5.0, 'vision': 20.0, 'prefix': 20.0, 'instruction': 5.0, 'publish': 0.1,
    'stage_copy': 0.1, 'denoise': 15.0, 'decode': 0.1, TRANSPORT: 1.0,
    TRANSPORT_BLOCK: 0.0, TRANSPORT_PLAN: 0.0,
})
"""Taken where a stage was not recorded."""
GOLDEN = 0.6180339887498949
"""Step of the additive sequence: no other spreads so few numbers so evenly."""
FLAT_SHARE = 0.02
"""So much of all calls on either side of a quantile takes just what was asked for there: in a run
of fifty calls the one that decides the quantile lies no nearer to it."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Recorded durations of one stage.

    Attributes:
        at_ns: When each began, on the axis of the replay's clock, rising.
        duration_ns: Their durations.
    """

    at_ns: tuple[int, ...]
    duration_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RecordedAt:
    """The recorded call that began nearest to now: a spike of the recording happens again."""

    samples: Samples
    now: Callable[[], int] = field(compare=False)

    def duration_ns(self, n: int, seed: tuple[int, ...]) -> int:
        """Return the duration, ns."""
        at_ns, now_ns = self.samples.at_ns, self.now()
        after = bisect_left(at_ns, now_ns)
        if after == len(at_ns) or (after and now_ns - at_ns[after - 1] <= at_ns[after] - now_ns):
            after -= 1
        return self.samples.duration_ns[after]


@dataclass(frozen=True, slots=True)
class Distribution:
    """The quantiles of given durations, in an order that the seed decides.

    Attributes:
        sorted_ns: Durations, rising.
    """

    sorted_ns: tuple[int, ...]

    def duration_ns(self, n: int, seed: tuple[int, ...]) -> int:
        """Return the duration of the ``n``-th call, ns."""
        return self.at(share_of(n, seed))

    def at(self, share: float) -> int:
        """Return the duration that ``share`` of the calls, in [0, 1), stays below, ns."""
        return self.sorted_ns[min(int(share * len(self.sorted_ns)), len(self.sorted_ns) - 1)]


@dataclass(frozen=True, slots=True)
class Stretched:
    """A distribution whose quantile is a given duration; all calls, if that was 0 before.

    Attributes:
        sorted_ns: Durations before, rising. ``quantile``: share in (0, 1).
        quantile_ns: Its duration after. ``flat``: half-width of the shares that take just that.
    """

    sorted_ns: tuple[int, ...]
    quantile: float
    quantile_ns: int
    flat: float = FLAT_SHARE

    def duration_ns(self, n: int, seed: tuple[int, ...]) -> int:
        """Return the duration of the ``n``-th call, ns."""
        return self.at(share_of(n, seed))

    def at(self, share: float) -> int:
        """Return the duration that ``share`` of the calls, in [0, 1), stays below, ns."""
        rank = max(1, ceil(self.quantile * len(self.sorted_ns) - 1e-9))
        before_ns = self.sorted_ns[rank - 1]
        if abs(share - self.quantile) <= self.flat or not before_ns:
            return self.quantile_ns
        return round(Distribution(self.sorted_ns).at(share) * self.quantile_ns / before_ns)


@dataclass(frozen=True, slots=True)
class Spiked:
    """A cost with an addition and spikes; spikes replace calls, and nothing is added to them.

    Attributes:
        cost: What is changed. ``add_ns``: added to every call that is no spike.
        spike_ns: Duration of a spike. ``spike_share``: share of calls that are one, 0 for none.
        is_longest: Whether spikes come last in the order of all calls, else first.
    """

    cost: Cost
    add_ns: int = 0
    spike_ns: int = 0
    spike_share: float = 0.0
    is_longest: bool = True

    def duration_ns(self, n: int, seed: tuple[int, ...]) -> int:
        """Return the duration of the ``n``-th call, ns."""
        place = share_of(n, seed) if self.is_longest else share_of(n, seed) - self.spike_share
        rest = 1.0 - self.spike_share
        if self.spike_share and not 0.0 <= place < rest:
            return self.spike_ns
        if isinstance(self.cost, Distribution | Stretched):
            return self.cost.at(place / rest) + self.add_ns
        return self.cost.duration_ns(n, seed) + self.add_ns


def share_of(n: int, seed: tuple[int, ...]) -> float:
    """Return the ``n``-th number of an additive sequence in [0, 1)."""
    return (_start_of(seed) + n * GOLDEN) % 1.0


@lru_cache(maxsize=256)
def _start_of(seed: tuple[int, ...]) -> float:
    return zlib.crc32(repr(seed).encode()) / 2**32


@dataclass(frozen=True, slots=True)
class Latencies:
    """Costs of a replay.

    Attributes:
        table: By stage. ``assumed``: stages that were not recorded.
    """

    table: Mapping[str, Cost]
    assumed: tuple[str, ...]


def make_latencies(recorded: Mapping[str, Samples], injected: Mapping[str, Injection], *,
                   now: Callable[[], int], is_timed: bool = True) -> Latencies:
    """Return the costs of every stage.

    Args:
        recorded: Durations by stage.
        injected: Changes by stage.
        now: Returns the time on the axis of the samples.
        is_timed: Whether a call takes as long as the recorded one at that time; else the
            distribution is drawn from.
    """
    table: dict[str, Cost] = {}
    for stage in dict.fromkeys((*STAGES, *recorded)):
        samples = recorded.get(stage)
        durations = sorted(samples.duration_ns) if samples else [
            round(ASSUMED_MS.get(stage, 0.1) * MS)]
        cost: Cost = Distribution(tuple(durations))
        if samples and is_timed:
            cost = RecordedAt(samples, now)
        change = injected.get(stage)
        table[stage] = change.apply(cost, durations) if change else cost
    assumed = tuple(stage for stage in STAGES if stage not in recorded)
    return Latencies(MappingProxyType(table), assumed)
