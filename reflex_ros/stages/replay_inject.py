"""What is injected into a replay: changed latencies and lost frames, and how it is written."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeVar

from reflex_ros.core.clock import MS, US, S
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.probe import Cost
from reflex_ros.stages.assemble import SNAPSHOT_FAMILIES
from reflex_ros.stages.replay_costs import (
    FLAT_SHARE,
    STAGES,
    TRANSPORTS,
    Distribution,
    Spiked,
    Stretched,
    share_of,
)

ORACLE_STAGES = ('encode', 'denoise')
WINDOWED_STAGES = ('instruction', 'encode', 'publish', 'stage_copy', 'denoise')
SNAPSHOT_STAGES = (
    'instruction', 'vision', 'prefix', 'publish', 'stage_copy', 'denoise', 'decode')
"""Stages of the policies, by what their blocks hold."""

T = TypeVar('T')

MOST_NS = 600 * S
"""No stage of a run that goes on takes so long."""
_UNITS = MappingProxyType({'ns': 1, 'us': US, 'ms': MS, 's': S})
_QUANTILE = re.compile(r'p(\d{1,2}(?:\.\d+)?)')
_DURATION = re.compile(r'(\d+(?:\.\d+)?)(ns|us|ms|s)')
_SHARE = re.compile(r'(\d+(?:\.\d+)?)%')


@dataclass(frozen=True, slots=True)
class Injection:
    """What is changed of the latencies of one stage.

    Attributes:
        constant_ns: Every call but spikes, -1 for none.
        quantile, quantile_ns: The distribution is stretched so that this share of all calls,
            spikes included, takes at most so long; 0 = not.
        add_ns: Added to every call but spikes, also to what the quantile asks for.
        spike_ns, spike_share: See ``Spiked``.
    """

    constant_ns: int = -1
    quantile: float = 0.0
    quantile_ns: int = 0
    add_ns: int = 0
    spike_ns: int = 0
    spike_share: float = 0.0

    @property
    def is_possible(self) -> bool:
        """Whether the spikes leave the quantile to the other calls."""
        low, high = (0.0, self.spike_share) if self._is_longest else (self.spike_share, 0.0)
        return not self.quantile or low < self.quantile < 1.0 - high

    @property
    def _is_longest(self) -> bool:
        return not self.quantile or self.spike_ns >= self.quantile_ns + self.add_ns

    def apply(self, cost: Cost, sorted_ns: Sequence[int]) -> Cost:
        """Return the changed cost; ``sorted_ns`` are the durations without it, rising."""
        rest = 1.0 - self.spike_share
        if self.constant_ns >= 0:
            cost = Distribution((self.constant_ns,))
        elif self.quantile:
            before = 0.0 if self._is_longest else self.spike_share
            cost = Stretched(tuple(sorted_ns), (self.quantile - before) / rest, self.quantile_ns,
                             FLAT_SHARE / rest)
        return Spiked(cost, self.add_ns, self.spike_ns, self.spike_share, self._is_longest)


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
        ConfigError: An item is none of these, stands there twice, or contradicts another.
    """
    changes: dict[str, dict[str, Any]] = {}
    drops: dict[str, float] = {}
    stage = 'denoise'
    for item in (part.strip() for text in texts for part in text.split(',')):
        name, _, value = item.partition('=')
        if name == 'drop':
            camera, _, share = value.partition('@')
            if not camera.startswith('camera.') or not camera[7:]:
                raise _unknown(item)
            _add(drops, {camera[7:]: _parse_share(share, item)}, item)
            continue
        owner, _, kind = name.partition('.')
        stage = stage if owner == 'spike' and not kind else owner
        if stage not in STAGES:
            raise _unknown(item)
        change = _change('spike' if name == 'spike' else kind, value, item)
        _add(changes.setdefault(stage, {}), change, item)
    stages = {stage: replace(Injection(), **change) for stage, change in changes.items()}
    for stage, injection in stages.items():
        _check(stage, injection)
    return Injections(MappingProxyType(stages), MappingProxyType(drops))


def check_injections(asked: Injections, *, policy: str, cameras: Iterable[str]) -> None:
    """Refuse what would change nothing: stages that a policy has not, cameras that are not there.

    Args:
        asked: What is injected.
        policy: Family of the policy. ``cameras``: those that frames come from.

    Raises:
        ConfigError: Names the item and what there is.
    """
    if policy == 'oracle':
        stages: tuple[str, ...] = ORACLE_STAGES
    else:
        stages = SNAPSHOT_STAGES if policy in SNAPSHOT_FAMILIES else WINDOWED_STAGES
    for stage in asked.stages:
        if stage not in (*stages, *TRANSPORTS):
            raise ConfigError(
                f'injection {stage}: got a stage that {policy} does not have, expected one of '
                f'{", ".join((*stages, *TRANSPORTS))}. Name one of them.'
            )
    known = sorted(set(cameras))
    for camera in asked.drops:
        if camera not in known:
            raise ConfigError(
                f'injection drop=camera.{camera}: got no frames of it, expected one of '
                f'{", ".join(known)}. Name one of them.'
            )


def _change(kind: str, value: str, item: str) -> dict[str, Any]:
    """Return the fields of ``Injection`` that an item sets."""
    quantile = _QUANTILE.fullmatch(kind)
    if quantile and float(quantile[1]) > 0:
        return {'quantile': float(quantile[1]) / 100, 'quantile_ns': _parse_duration(value, item)}
    if kind == '':
        return {'constant_ns': _parse_duration(value, item)}
    if kind == 'add':
        return {'add_ns': _parse_duration(value, item)}
    if kind == 'spike':
        duration, _, share = value.partition('@')
        return {'spike_ns': _parse_duration(duration, item),
                'spike_share': _parse_share(share, item)}
    raise _unknown(item)


def _add(known: dict[str, T], change: Mapping[str, T], item: str) -> None:
    if known.keys() & change.keys():
        raise ConfigError(
            f'injection {item!r}: got a second one of its kind, expected each at most once. '
            'Remove one.'
        )
    known.update(change)


def _check(stage: str, change: Injection) -> None:
    """Refuse what cannot hold at the same time."""
    percent = f'p{change.quantile * 100:g}'
    if change.constant_ns >= 0 and change.quantile:
        raise ConfigError(
            f'injection {stage} and {stage}.{percent}: got both, expected one of them: with one '
            'duration for every call every quantile is that. Remove one.'
        )
    if not change.is_possible:
        raise ConfigError(
            f'injection {stage}.{percent}: got spikes in {change.spike_share * 100:g} % of the '
            'calls, expected a share that leaves this quantile to the others. Choose a smaller '
            'share, or a quantile further from its end.'
        )


def _parse_duration(text: str, item: str) -> int:
    found = _DURATION.fullmatch(text.strip())
    if not found:
        raise _unknown(item)
    duration_ns = float(found[1]) * _UNITS[found[2]]
    if duration_ns > MOST_NS:
        raise ConfigError(
            f'injection {item[:60]!r} is wrong: got {duration_ns / S:.3g} s, expected at most '
            f'{MOST_NS // S} (s). Correct it.'
        )
    return round(duration_ns)


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
        is_lost = share_of(n, seed) < self._shares.get(camera, 0.0)
        self.dropped[camera] = self.dropped.get(camera, 0) + is_lost
        return is_lost
