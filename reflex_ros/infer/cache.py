"""Where keys and values of a prefix live, and how a suffix joins them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from reflex_ros.core.errors import ConfigError

PARTITIONED, NAIVE = 'partitioned', 'naive'
"""The prefix is kept and the suffix computed in every step; or both are kept after the first."""
VLA_CACHE, VL_CACHE = PRIOR = 'vla_cache', 'vl_cache'
"""Prior methods, approximate; ``infer.baselines`` has them."""


class Cache(Protocol):
    """Keys and values of all layers, ``[batch, rows, kv_heads, head_dim]`` each."""

    def rows(self, layer: int, end: int) -> tuple[Tensor, Tensor]:
        """Return keys and values of the first ``end`` rows of a layer, without copying."""

    def append(self, layer: int, at: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return the first ``at`` rows of a layer followed by the given ones."""


Watch = Callable[[int, Tensor, tuple[Tensor, Tensor]], None]
"""Is given the slot, the queries and all keys and values of a layer of self-attention."""


def watch_of(cache: Cache) -> Watch | None:
    """Return what wants to see the queries that meet a cache, None for nearly every cache."""
    return getattr(cache, 'watch', None)


class StaticCache:
    """One buffer with free rows behind the prefix: new rows are written there, nothing is joined.

    Args:
        kv: ``[layers, 2, batch, rows, kv_heads, head_dim]``, keys first; used as it is.
    """

    def __init__(self, kv: Tensor) -> None:
        self.kv = kv

    def rows(self, layer: int, end: int) -> tuple[Tensor, Tensor]:
        """Return views of the buffer."""
        key, value = self.kv[layer, :, :, :end]
        return key, value

    def append(self, layer: int, at: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write the rows into the buffer and return views of it."""
        end = at + key.shape[1]
        self.kv[layer, 0, :, at:end] = key
        self.kv[layer, 1, :, at:end] = value
        return self.rows(layer, end)


class JoinedCache:
    """A finished prefix that is concatenated with the suffix in every layer and step.

    Args:
        kv: As in ``StaticCache``; not modified.
    """

    def __init__(self, kv: Tensor) -> None:
        self._static = StaticCache(kv)

    def rows(self, layer: int, end: int) -> tuple[Tensor, Tensor]:
        """Return views of the prefix."""
        return self._static.rows(layer, end)

    def append(self, layer: int, at: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return new tensors with the rows behind the prefix."""
        before = self.rows(layer, at)
        return torch.cat((before[0], key), 1), torch.cat((before[1], value), 1)


class NaiveCache:
    """Keeps the suffix, too: what a block added first is what it sees ever after.

    Fast and wrong, since keys and values of actions depend on the flow time and on the actions.
    It is here to be measured against. One call only; make a new one for each.

    Args:
        kv: As in ``StaticCache``; not modified.
    """

    def __init__(self, kv: Tensor) -> None:
        self._joined = JoinedCache(kv)
        self._first: dict[int, tuple[Tensor, Tensor]] = {}

    def rows(self, layer: int, end: int) -> tuple[Tensor, Tensor]:
        """Return views of the prefix."""
        return self._joined.rows(layer, end)

    def append(self, layer: int, at: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows that were given for the layer first, behind the prefix."""
        if layer not in self._first:
            self._first[layer] = self._joined.append(layer, at, key, value)
        return self._first[layer]


def is_naive(name: str) -> bool:
    """Return whether a cache of this name keeps the suffix.

    Raises:
        ConfigError: There is no such cache.
    """
    if name in PRIOR:
        raise ConfigError(
            f'cache cannot be used here: got {name!r}, expected {PARTITIONED} or {NAIVE}: it is '
            'opened for a stream of calls. Take infer.baselines.registry.open_prior, or '
            'reflex-ros predict --cache.'
        )
    if name not in (PARTITIONED, NAIVE):
        raise ConfigError(
            f'cache cannot be used: got {name!r}, expected {PARTITIONED} or {NAIVE}. Correct it.'
        )
    return name == NAIVE
