"""Stage latencies of a replay: those of the recording, their distribution, or injected ones.

Shares are met exactly rather than by chance: quantiles and spikes follow additive sequences, so
that 120 ms asked for at the 95 % quantile are 120 ms in a short run as well.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from types import MappingProxyType

from reflex_ros.core.clock import MS, US, S
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.probe import Cost

TRANSPORT = 'transport'
"""Time from the end of an inference to the acceptance of its chunk, beyond its own stages."""
TRANSPORT_BLOCK, TRANSPORT_PLAN = 'transport_block', 'transport_plan'
"""The same from encoder to policy, and from bridge to policy."""
STAGES = (
    'encode', 'vision', 'prefix', 'instruction', 'publish', 'stage_copy', 'denoise', 'decode',
    TRANSPORT, TRANSPORT_BLOCK, TRANSPORT_PLAN,
)
ASSUMED_MS: Mapping[str, float] = MappingProxyType({
    'encode': 5.0, 'vision': 20.0, 'prefix': 20.0, 'instruction': 5.0, 'publish': 0.1,
    'stage_copy': 0.1, 'denoise': 15.0, 'decode': 0.1, TRANSPORT: 1.0,
    TRANSPORT_BLOCK: 0.0, TRANSPORT_PLAN: 0.0,
})
"""Taken where a stage was not recorded."""
GOLDEN, SILVER = 0.6180339887498949, 0.41421356237309515
"""Steps of the additive sequences of quantiles and of spikes."""
_UNITS = MappingProxyType({'ns': 1, 'us': US, 'ms': MS, 's': S})
_QUANTILE = re.compile(r'p(\d{1,2}(?:\.\d+)?)')
_DURATION = re.compile(r'(\d+(?:\.\d+)?)(ns|us|ms|s)')
_SHARE = re.compile(r'(\d+(?:\.\d+)?)%')


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
        near = [i for i in (after - 1, after) if 0 <= i < len(at_ns)]
        best = min(near, key=lambda i: abs(at_ns[i] - now_ns))
        return self.samples.duration_ns[best]


@dataclass(frozen=True, slots=True)
class Distribution:
    """The quantiles of given durations, in an order that the seed decides.

    Attributes:
        sorted_ns: Durations, rising.
    """

    sorted_ns: tuple[int, ...]

    def duration_ns(self, n: int, seed: tuple[int, ...]) -> int:
        """Return the duration of the ``n``-th call, ns."""
        share = _share(n, seed, GOLDEN)
        return self.sorted_ns[min(int(share * len(self.sorted_ns)), len(self.sorted_ns) - 1)]


@dataclass(frozen=True, slots=True)
class Changed:
    """A cost with an addition and spikes.

    Attributes:
        cost: What is changed. ``add_ns``: added to every call.
        spike_ns: Duration of a spike, 0 for none. ``spike_share``: share of calls that are one.
    """

    cost: Cost
    add_ns: int = 0
    spike_ns: int = 0
    spike_share: float = 0.0

    def duration_ns(self, n: int, seed: tuple[int, ...]) -> int:
        """Return the duration of the ``n``-th call, ns."""
        own_ns = self.cost.duration_ns(n, seed) + self.add_ns
        return self.spike_ns if _share(n, seed, SILVER) < self.spike_share else own_ns


def _share(n: int, seed: tuple[int, ...], step: float) -> float:
    """Return the ``n``-th number of an additive sequence in [0, 1)."""
    start = zlib.crc32(repr(seed).encode()) / 2**32
    return (start + n * step) % 1.0


@dataclass(frozen=True, slots=True)
class Injection:
    """What is changed of the latencies of one stage.

    Attributes:
        constant_ns: Every call, -1 for none. ``quantile``, ``quantile_ns``: the distribution is
            stretched so that this share of the calls takes at most so long; 0 = not.
        add_ns, spike_ns, spike_share: See ``Changed``.
    """

    constant_ns: int = -1
    quantile: float = 0.0
    quantile_ns: int = 0
    add_ns: int = 0
    spike_ns: int = 0
    spike_share: float = 0.0

    def apply(self, cost: Cost, sorted_ns: Sequence[int]) -> Cost:
        """Return the changed cost; ``sorted_ns`` are the durations without it, rising."""
        if self.constant_ns >= 0:
            cost = Distribution((self.constant_ns,))
        elif self.quantile:
            rank = max(1, ceil(self.quantile * len(sorted_ns) - 1e-9))
            factor = self.quantile_ns / max(1, sorted_ns[rank - 1])
            cost = Distribution(tuple(round(value * factor) for value in sorted_ns))
        return Changed(cost, self.add_ns, self.spike_ns, self.spike_share)


@dataclass(frozen=True, slots=True)
class Injections:
    """Everything that is injected into a replay.

    Attributes:
        stages: By stage. ``drops``: share of the frames that is lost, by camera.
    """

    stages: Mapping[str, Injection] = field(default_factory=dict)
    drops: Mapping[str, float] = field(default_factory=dict)


def parse_injections(texts: Iterable[str]) -> Injections:
    """Return what ``denoise.p95=120ms,spike=400ms@3%,drop=camera.wrist@1%`` asks for.

    Items are ``STAGE=D``, ``STAGE.pNN=D``, ``STAGE.add=D``, ``STAGE.spike=D@P%``,
    ``drop=camera.NAME@P%``; without a stage, ``spike`` belongs to the one before it, or denoise.

    Raises:
        ConfigError: An item is none of these.
    """
    stages: dict[str, Injection] = {}
    drops: dict[str, float] = {}
    stage = 'denoise'
    for item in (part.strip() for text in texts for part in text.split(',')):
        name, _, value = item.partition('=')
        if name == 'drop':
            camera, _, share = value.partition('@')
            if not camera.startswith('camera.') or not camera[7:]:
                raise _unknown(item)
            drops[camera[7:]] = _parse_share(share, item)
            continue
        owner, _, kind = name.partition('.')
        stage = stage if owner == 'spike' and not kind else owner
        kind = 'spike' if name == 'spike' else kind
        if stage not in STAGES:
            raise _unknown(item)
        stages[stage] = _change(stages.get(stage, Injection()), kind, value, item)
    return Injections(MappingProxyType(stages), MappingProxyType(drops))


def _change(known: Injection, kind: str, value: str, item: str) -> Injection:
    quantile = _QUANTILE.fullmatch(kind)
    if quantile and float(quantile[1]) > 0:
        return replace(known, quantile=float(quantile[1]) / 100,
                       quantile_ns=_parse_duration(value, item))
    if kind == '':
        return replace(known, constant_ns=_parse_duration(value, item))
    if kind == 'add':
        return replace(known, add_ns=_parse_duration(value, item))
    if kind == 'spike':
        duration, _, share = value.partition('@')
        return replace(known, spike_ns=_parse_duration(duration, item),
                       spike_share=_parse_share(share, item))
    raise _unknown(item)


def _parse_duration(text: str, item: str) -> int:
    found = _DURATION.fullmatch(text.strip())
    if not found:
        raise _unknown(item)
    return round(float(found[1]) * _UNITS[found[2]])


def _parse_share(text: str, item: str) -> float:
    found = _SHARE.fullmatch(text.strip())
    if not found or float(found[1]) > 100:
        raise _unknown(item)
    return float(found[1]) / 100


def _unknown(item: str) -> ConfigError:
    return ConfigError(
        f'injection {item!r} is wrong: expected denoise=40ms, denoise.p95=120ms, '
        'denoise.add=20ms, denoise.spike=400ms@3% or drop=camera.NAME@1%; stages are '
        f'{", ".join(STAGES)}. Correct it.'
    )


class FrameDrops:
    """Decides which frames are lost: the share that is asked for, spread over the run.

    Args:
        shares: Share by camera, 0 to 1.
        seed: Decides which ones.
    """

    def __init__(self, shares: Mapping[str, float], seed: int) -> None:
        self._shares, self._seed = shares, seed
        self._seen: dict[str, int] = {}
        self.dropped: dict[str, int] = {}

    def is_lost(self, camera: str) -> bool:
        """Return whether the next frame of a camera is lost."""
        n = self._seen[camera] = self._seen.get(camera, -1) + 1
        seed = (self._seed, zlib.crc32(camera.encode()))
        is_lost = _share(n, seed, GOLDEN) < self._shares.get(camera, 0.0)
        self.dropped[camera] = self.dropped.get(camera, 0) + is_lost
        return is_lost


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
