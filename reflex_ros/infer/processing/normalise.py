"""Normalisation of states and actions by the statistics of the training data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor

from reflex_ros.core.errors import ModelError

EPS = 1e-8
NEEDS = MappingProxyType(
    {
        'IDENTITY': (),
        'MEAN_STD': ('mean', 'std'),
        'MIN_MAX': ('min', 'max'),
        'QUANTILES': ('q01', 'q99'),
        'QUANTILE10': ('q10', 'q90'),
    }
)
"""Statistics that a mode reads."""
SIGMAS = MappingProxyType({'MIN_MAX': 3.0, 'QUANTILES': 2.3263, 'QUANTILE10': 1.2816})
"""Standard deviations of a normal distribution at a normalised value of 1."""


@dataclass(frozen=True, slots=True)
class Normaliser:
    """One feature's normalisation.

    Attributes:
        mode: Key of ``NEEDS``.
        stats: float32[D] by name; those that the mode needs.
        eps: Keeps a feature without spread from dividing by zero.
    """

    mode: str
    stats: Mapping[str, Tensor]
    eps: float = EPS

    def normalise(self, x: Tensor) -> Tensor:
        """Return physical values as the network wants them.

        Args:
            x: float32[..., D], physical units.

        Returns:
            float32[..., D]; not clipped. ``IDENTITY`` returns ``x`` itself.
        """
        if self.mode == 'IDENTITY':
            return x
        low, spread = self._low_spread(x)
        if self.mode == 'MEAN_STD':
            return (x - low) / (spread + self.eps)
        return 2.0 * (x - low) / spread - 1.0

    def restore(self, x: Tensor) -> Tensor:
        """Return normalised values in physical units; arguments as in ``normalise``."""
        if self.mode == 'IDENTITY':
            return x
        low, spread = self._low_spread(x)
        if self.mode == 'MEAN_STD':
            return x * spread + low
        if self.mode == 'MIN_MAX':
            return (x + 1.0) / 2.0 * spread + low
        return (x + 1.0) * spread / 2.0 + low

    def sigmas(self, x: Tensor) -> Tensor:
        """Return about how many standard deviations each physical value is from the middle.

        With ``IDENTITY`` nothing is known and all are 0; not a number stays so.
        """
        if self.mode == 'IDENTITY':
            return x * 0.0
        return self.normalise(x) * SIGMAS.get(self.mode, 1.0)

    def reach(self) -> tuple[Tensor, Tensor] | None:
        """Return the smallest and largest values that are usual, physical units, float32[D].

        None with ``IDENTITY``.
        """
        if self.mode == 'IDENTITY':
            return None
        first, second = (self.stats[name] for name in NEEDS[self.mode])
        if self.mode == 'MEAN_STD':
            return first - 3.0 * second, first + 3.0 * second
        return first, second

    def _low_spread(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first, second = (self.stats[name].to(x.device, torch.float32) for name in NEEDS[self.mode])
        if self.mode == 'MEAN_STD':
            return first, second
        spread = second - first
        return first, torch.where(spread == 0, torch.full_like(spread, self.eps), spread)


def make_normaliser(
    mode: str, feature: str, stats: Mapping[str, Tensor], *, dim: int, source: Path,
    eps: float = EPS, names: tuple[str, ...] = (),
) -> Normaliser:  # fmt: skip
    """Return the normaliser of a feature after checking its statistics.

    Args:
        mode: Key of ``NEEDS``.
        feature: Name, for messages and as the prefix in ``stats``.
        stats: All statistics of a file, by ``<feature>.<statistic>``.
        dim: Columns of the feature.
        source: File of the statistics, for messages.
        eps: See ``Normaliser``.
        names: Names of the columns, for messages.

    Raises:
        ModelError: A statistic is missing, mis-shaped, not finite or impossible; by name.
    """
    found = {}
    for name in NEEDS[mode]:
        full = f'{feature}.{name}'
        if full not in stats:
            raise _error(source, full, 'none', f'{dim} numbers for {mode}')
        value = stats[full]
        if value.numel() != dim or not value.is_floating_point():
            shape = f'{value.dtype} of shape {list(value.shape)}'
            raise _error(source, full, shape, f'[{dim}] floating-point numbers')
        found[name] = value = value.reshape(dim).to(torch.float32)
        _check_values(source, full, value, names)
    _check_order(source, feature, mode, found, names)
    return Normaliser(mode, MappingProxyType(found), eps)


def _check_values(source: Path, full: str, value: Tensor, names: tuple[str, ...]) -> None:
    finite = torch.isfinite(value)
    if not bool(finite.all()):
        at = int((~finite).nonzero()[0, 0])
        raise _error(source, f'{full} of {column(at, names)}', float(value[at]), 'a finite number')
    if full.endswith('.std') and bool((value < 0).any()):
        at = int((value < 0).nonzero()[0, 0])
        raise _error(source, f'{full} of {column(at, names)}', float(value[at]), 'at least 0')


def _check_order(
    source: Path, feature: str, mode: str, stats: Mapping[str, Tensor], names: tuple[str, ...]
) -> None:
    if mode in ('IDENTITY', 'MEAN_STD'):
        return
    low, high = NEEDS[mode]
    if bool((bad := stats[low] > stats[high]).any()):
        at = int(bad.nonzero()[0, 0])
        raise _error(
            source, f'{feature}.{low} of {column(at, names)}', float(stats[low][at]),
            f'at most {feature}.{high} {float(stats[high][at])}',
        )  # fmt: skip


def column(at: int, names: tuple[str, ...]) -> str:
    """Return the name of a column, or its number where there are no names."""
    return names[at] if at < len(names) else f'column {at}'


def _error(source: Path, name: str, got: object, expected: str) -> ModelError:
    return ModelError(
        f'statistics cannot be used {source} {name}: got {got}, expected {expected}. '
        'Use a checkpoint with its complete statistics.'
    )
