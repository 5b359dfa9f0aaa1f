"""Budgets: what a run may cost at most, from a YAML file."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from reflex_ros.analysis.figures import MEANINGS, meaning
from reflex_ros.analysis.intervals import Estimate
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.yaml_text import parse_yaml

_STAGE = ('_p50_ms', '_p95_ms')
_KEYS = ('max', 'worse_by')


@dataclass(frozen=True, slots=True)
class Budget:
    """Bounds of one figure, in its unit.

    Attributes:
        figure: Name. ``at_most``: largest value, None for any.
        worse_by: Largest growth against the first run of a comparison, None for any.
    """

    figure: str
    at_most: float | None = None
    worse_by: float | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """One budget and one run.

    Attributes:
        budget: The budget. ``found``: the figure of the run.
        reason: Why it is not met, '' if it is.
        is_close: Whether it is met by the value but not by the end of the interval.
    """

    budget: Budget
    found: Estimate
    reason: str
    is_close: bool = False

    @property
    def is_met(self) -> bool:
        """Whether the run keeps to the budget."""
        return not self.reason


def load_budgets(path: Path | str) -> tuple[Budget, ...]:
    """Read ``budgets: {figure: number | {max: number, worse_by: number}}``.

    Raises:
        ConfigError: The file cannot be read, or a name or number in it is wrong.
    """
    try:
        document = parse_yaml(Path(path).read_text(encoding='utf-8'))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(
            f'budgets {path} cannot be read: got {" ".join(str(error).split())}, expected a YAML '
            'file. See config/budgets.yaml.'
        ) from error
    entries = document.get('budgets') if isinstance(document, dict) else None
    if not isinstance(entries, dict) or not entries or len(document) > 1:
        raise ConfigError(
            f'budgets {path} are malformed: got {document!r:.60}, expected one key budgets: with '
            'figures and numbers. See config/budgets.yaml.'
        )
    return tuple(_budget(path, name, value) for name, value in entries.items())


def _budget(path: Path | str, name: Any, value: Any) -> Budget:
    if name not in MEANINGS and not (isinstance(name, str) and name.endswith(_STAGE)):
        near = difflib.get_close_matches(str(name), MEANINGS, n=1, cutoff=0.0)
        raise ConfigError(
            f'budget {name} of {path} is unknown: expected a figure of reflex-ros report. '
            f'Did you mean {near[0]}?'
        )
    bounds = value if isinstance(value, dict) else {'max': value}
    is_number = all(isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v)
                    and v >= 0 for v in bounds.values())
    if not bounds or not set(bounds) <= set(_KEYS) or not is_number:
        raise ConfigError(
            f'budget {name} of {path} is wrong: got {value!r}, expected a number >= 0 '
            f'({meaning(name).unit}), or a mapping with {" or ".join(_KEYS)}. Correct it.'
        )
    return Budget(name, bounds.get('max'), bounds.get('worse_by'))


def judge(budgets: Sequence[Budget], figures: Mapping[str, Estimate],
          baseline: Mapping[str, Estimate] | None = None) -> tuple[Judged, ...]:
    """Return what a run makes of its budgets; a figure without samples does not meet one.

    Args:
        budgets: The budgets. ``figures``: those of the run.
        baseline: Figures that ``worse_by`` is measured from; without, it is not judged.
    """
    return tuple(_judge(b, figures.get(b.figure), (baseline or {}).get(b.figure))
                 for b in budgets)


def _judge(budget: Budget, found: Estimate | None, baseline: Estimate | None) -> Judged:
    if found is None or not found.is_measured:
        missing = Estimate(math.nan, -math.inf, math.inf, 0)
        return Judged(budget, found or missing, 'no samples: it was not measured')
    if budget.at_most is not None and found.value > budget.at_most:
        return Judged(budget, found, f'{found.value:.4g} is above {budget.at_most:.4g}')
    if budget.worse_by is not None and baseline is not None and baseline.is_measured:
        growth = found.value - baseline.value
        if growth > budget.worse_by:
            return Judged(budget, found, f'{found.value:.4g} is {growth:.4g} above the '
                                         f'baseline, {budget.worse_by:.4g} allowed')
    is_close = budget.at_most is not None and budget.at_most < found.high < math.inf
    return Judged(budget, found, '', is_close)
