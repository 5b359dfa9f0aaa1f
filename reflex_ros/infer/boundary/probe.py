"""What moved: keys and values of one step beside those of another with one input changed.

Nothing here knows a family. A capture holds keys and values by token group; a probe says which of
them moved, layer by layer; what may be reused follows from the probes alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from torch import Tensor

KEPT = MappingProxyType({'float64': 1e-15, 'float32': 5e-7, 'bfloat16': 8e-3})
"""Largest change that is rounding, as a share of the layer's largest value (at least of 1)."""
TAU, STATE, WORDS, IMAGE = 'tau', 'state', 'words', 'image '
"""Names of the probes; the last one goes on with the camera."""
ACTIONS = 'actions'


@dataclass(frozen=True, slots=True)
class Capture:
    """What one denoise step has computed.

    Attributes:
        kv: ``[layers, 2, rows, kv_heads, head_dim]`` by token group: an image, ``words``,
            ``state``, ``actions``. Groups of the suffix are there where they have tokens.
        projected: The same of what layers of cross-attention project, those layers only.
        tokens: ``[rows, width]`` of each camera, before the language model.
    """

    kv: Mapping[str, Tensor]
    projected: Mapping[str, Tensor] = field(default_factory=dict)
    tokens: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Movement:
    """How far one group moved.

    Attributes:
        key, value: max|change| in each layer; nan where the number of rows changed.
        is_moved: Whether keys or values of each layer moved by more than rounding.
    """

    key: tuple[float, ...]
    value: tuple[float, ...]
    is_moved: tuple[bool, ...]

    @property
    def largest(self) -> float:
        """Largest change of any layer; nan where the number of rows changed."""
        found = (*self.key, *self.value)
        return math.nan if any(map(math.isnan, found)) else max(found, default=0.0)

    def to_dict(self) -> dict[str, Any]:
        """Return it in JSON types."""
        return {'k': list(self.key), 'v': list(self.value), 'moved': list(self.is_moved)}


@dataclass(frozen=True, slots=True)
class Probe:
    """What one changed input moved.

    Attributes:
        name: ``tau``, ``state``, ``words``, or ``image`` and the camera.
        changed: The change in words.
        own: Groups that the input itself makes.
        kv, projected: Movement by group.
        tokens: Movement of each camera's tokens.
    """

    name: str
    changed: str
    own: frozenset[str]
    kv: Mapping[str, Movement]
    projected: Mapping[str, Movement]
    tokens: Mapping[str, Movement]

    def to_dict(self) -> dict[str, Any]:
        """Return it in JSON types."""
        tables = {'kv': self.kv, 'cross_kv': self.projected, 'camera_tokens': self.tokens}
        return {'changed': self.changed, **{
            name: {group: movement.to_dict() for group, movement in table.items()}
            for name, table in tables.items()
        }}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether one kind of reuse is exact.

    Attributes:
        name, meaning: Of the reuse.
        is_exact: Nothing that it keeps moved by more than rounding.
        largest: Largest change of what it keeps.
    """

    name: str
    meaning: str
    is_exact: bool
    largest: float


def compare(before: Capture, after: Capture, *, name: str, changed: str, rounding: float,
            own: Iterable[str] = ()) -> Probe:  # fmt: skip
    """Return what moved between two captures.

    Args:
        before, after: The captures.
        name, changed, own: See ``Probe``.
        rounding: Of ``KEPT``.
    """
    def moved(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> dict[str, Movement]:
        return {group: movement(first[group], second[group], rounding) for group in first}

    tokens = {
        group: movement(before.tokens[group][None, None], after.tokens[group][None, None],
                        rounding)
        for group in before.tokens
    }  # fmt: skip
    return Probe(name, changed, frozenset(own), moved(before.kv, after.kv),
                 moved(before.projected, after.projected), tokens)  # fmt: skip


def movement(before: Tensor, after: Tensor, rounding: float) -> Movement:
    """Return how far ``[layers, parts, rows, ...]`` moved; parts are keys and values."""
    layers, parts = before.shape[:2]
    if before.shape != after.shape:
        nothing = (math.nan,) * layers
        return Movement(nothing, nothing, (True,) * layers)
    first, second = before.double().flatten(2), after.double().flatten(2)
    change = (second - first).abs().amax(-1) if first.numel() else first.new_zeros(layers, parts)
    scale = first.abs().amax(-1).clamp_min(1.0) if first.numel() else change + 1.0
    # a number that is none has moved, too
    is_moved = ~(change <= rounding * scale)
    key, value = change[:, 0].tolist(), change[:, -1].tolist()
    return Movement(tuple(key), tuple(value), tuple(is_moved.any(1).tolist()))


def merge(probes: Iterable[Probe]) -> Probe:
    """Return the worst of several probes of one name."""
    first, *others = probes

    def worst(table: str) -> dict[str, Movement]:
        return {group: _worst([getattr(p, table)[group] for p in (first, *others)])
                for group in getattr(first, table)}  # fmt: skip

    return Probe(first.name, first.changed, first.own, worst('kv'), worst('projected'),
                 worst('tokens'))  # fmt: skip


def _worst(found: list[Movement]) -> Movement:
    return Movement(
        tuple(map(max, zip(*(m.key for m in found), strict=True))),
        tuple(map(max, zip(*(m.value for m in found), strict=True))),
        tuple(map(any, zip(*(m.is_moved for m in found), strict=True))),
    )
