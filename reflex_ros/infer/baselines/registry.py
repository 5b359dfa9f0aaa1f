"""Opens a prior method by its name for a loaded policy, or says why it does not apply."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from reflex_ros.core.errors import ConfigError
from reflex_ros.infer.baselines.options import VlaOptions, VlOptions, read_options
from reflex_ros.infer.baselines.vl_cache import BudgetCache
from reflex_ros.infer.baselines.vla_cache import Seen, VlaCache
from reflex_ros.infer.cache import PRIOR, VL_CACHE, VLA_CACHE, Cache
from reflex_ros.infer.snapshot import Prefix

if TYPE_CHECKING:
    from reflex_ros.infer.policy import SnapshotPolicy

FAMILIES = ('pi0', 'pi05')
NOTHING: Mapping[str, str] = MappingProxyType({})


class Prior(Protocol):
    """A prior method on one stream of observations. Not thread-safe."""

    name: str

    def encode(self, seen: Seen) -> Prefix:
        """Return the prefix of an observation."""

    def suffix(self, prefix: Prefix) -> str | Cache:
        """Return what ``SnapshotPolicy.prepare`` takes as the cache of that prefix."""

    def report(self) -> dict[str, float]:
        """Return what the last call reused or dropped."""


class VlCache:
    """``vl_cache`` on a stream: the prefix in full, a budget for each call.

    Args:
        policy: Loaded Pi0 or Pi0.5 without padding.
        options: Parameters.
    """

    name = VL_CACHE

    def __init__(self, policy: SnapshotPolicy, options: VlOptions) -> None:
        self._policy, self._options = policy, options
        self._last: BudgetCache | None = None

    def encode(self, seen: Seen) -> Prefix:
        """Return the prefix of an observation."""
        return self._policy.encode(seen.views, [seen.ids], seen.state)

    def suffix(self, prefix: Prefix) -> BudgetCache:
        """Return a cache for one call."""
        self._last = BudgetCache(prefix, self._options)
        return self._last

    def report(self) -> dict[str, float]:
        """Return what the last call kept, see ``BudgetCache.report``."""
        assert self._last is not None
        return self._last.report()


def open_prior(name: str, policy: SnapshotPolicy, values: Mapping[str, str] = NOTHING) -> Prior:
    """Return a prior method.

    Args:
        name: ``vla_cache`` or ``vl_cache``.
        policy: What it runs on.
        values: Parameters in words, see ``VlaOptions`` and ``VlOptions``.

    Raises:
        ConfigError: There is no such method, it does not apply to this policy, or a parameter is
            wrong.
    """
    if name not in PRIOR:
        raise ConfigError(
            f'cache cannot be used: got {name!r}, expected {" or ".join(PRIOR)}. Correct it.'
        )
    _check_policy(name, policy)
    if name == VLA_CACHE:
        return VlaCache(policy, read_options(VlaOptions, values))
    return VlCache(policy, read_options(VlOptions, values))


def _check_policy(name: str, policy: SnapshotPolicy) -> None:
    family, why = policy.config.family, ''
    if family not in FAMILIES:
        why = (f'family {family}, expected {" or ".join(FAMILIES)}: a token is a block of patches '
               'there, and cross layers would need a choice of their own, behind a projection. '
               'Use another cache.')  # fmt: skip
    elif not policy.reuse.drop_masked:
        why = ('a padded prefix, expected a compact one: padding is no static patch and would '
               'take part in the budget. Use the compact layout (--layout compact).')  # fmt: skip
    elif not (policy.reuse.state_once and policy.reuse.prefix_kv):
        why = ('a policy that computes the prefix or the state in every step, expected one that '
               'keeps them. Switch Reuse.prefix_kv and state_once on.')  # fmt: skip
    if why:
        raise ConfigError(f'cache cannot be used {name}: got {why}')
