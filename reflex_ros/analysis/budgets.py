"""Budgets: what a run may cost at most, from a YAML file.

Every budget must be able to fail: a bound that no run can exceed, growth without a run to grow
from, and figures that no report has are errors.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from reflex_ros.analysis.figures import MEANINGS, START, meaning
from reflex_ros.analysis.intervals import NOTHING, Estimate
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.yaml_text import parse_yaml

STAGES = ('instruction', 'encode', 'vision', 'prefix', 'publish', 'stage_copy', 'denoise',
          'decode', 'delay_pad')
"""Stages that a chunk may tell of; each has two figures."""
FIGURES = (*MEANINGS, *(f'{stage}_{share}_ms' for stage in STAGES for share in ('p50', 'p95')))
"""Names that a budget may have."""
REACH = MappingProxyType({
    'share': 1.0, 'deg': 360.0, 'deg/s': 1000.0, 'ms': 60_000.0, 's': 600.0, 'count': 100_000.0})
"""Least bounds that no run exceeds, by unit: no delay of more than a minute is taken for one, a
run that starts after ten minutes has not started, no joint turns so fast, and so many ticks are
half an hour."""
_KEYS = ('max', 'worse_by')
MOST_LEFT_OUT = 0.02
"""Share of damaged ticks above which the rest does not stand for the run."""


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
    if name not in FIGURES:
        near = difflib.get_close_matches(str(name), FIGURES, n=1, cutoff=0.0)
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
    unit = meaning(name).unit
    reach = REACH[unit]
    if max(bounds.values()) >= reach:
        raise ConfigError(
            f'budget {name} of {path} can never fail: got {value!r}, expected numbers below '
            f'{reach:g} ({unit}). Lower them.'
        )
    return Budget(name, bounds.get('max'), bounds.get('worse_by'))


def require_baseline(budgets: Sequence[Budget], runs: int) -> None:
    """Refuse budgets of growth where there is no run to grow from.

    Raises:
        ConfigError: Names them; there are fewer than two runs.
    """
    growing = [budget.figure for budget in budgets if budget.worse_by is not None]
    if growing and runs < 2:
        raise ConfigError(
            f'budgets of {", ".join(growing)} cannot be judged: got worse_by and {runs} run, '
            'expected a baseline before it. Name one, or give max alone.'
        )


def judge(budgets: Sequence[Budget], figures: Mapping[str, Estimate],
          baseline: Mapping[str, Estimate] | None = None, *,
          left_out: float = 0.0) -> tuple[Judged, ...]:
    """Return what a run makes of its budgets; a figure without samples does not meet one.

    A run that never tracked meets none: what did not move costs nothing. Neither does one of which
    too many ticks are damaged: what they cost is not known.

    Args:
        budgets: The budgets. ``figures``: those of the run.
        baseline: Figures that ``worse_by`` is measured from.
        left_out: Share of the ticks that is left out, of the run or of its baseline.

    Raises:
        ConfigError: A budget is of growth, and there is no baseline.
    """
    require_baseline(budgets, 1 if baseline is None else 2)
    if not figures.get(START, NOTHING).is_measured:
        return tuple(Judged(b, figures.get(b.figure, NOTHING), 'the arm never followed a plan')
                     for b in budgets)
    if left_out > MOST_LEFT_OUT:
        reason = f'{100 * left_out:.1f} % of the ticks are damaged and left out'
        return tuple(Judged(b, figures.get(b.figure, NOTHING), reason) for b in budgets)
    return tuple(_judge(b, figures.get(b.figure, NOTHING),
                        (baseline or {}).get(b.figure, NOTHING)) for b in budgets)


def _judge(budget: Budget, found: Estimate, baseline: Estimate) -> Judged:
    if not found.is_measured:
        return Judged(budget, found, 'no samples: it was not measured')
    if budget.at_most is not None and found.value > budget.at_most:
        return Judged(budget, found, f'{found.value:.4g} is above {budget.at_most:.4g}')
    if budget.worse_by is not None:
        if not baseline.is_measured:
            return Judged(budget, found, 'the baseline has no samples of it to grow from')
        growth = found.value - baseline.value
        if growth > budget.worse_by:
            return Judged(budget, found, f'{found.value:.4g} is {growth:.4g} above the '
                                         f'baseline, {budget.worse_by:.4g} allowed')
    is_close = budget.at_most is not None and budget.at_most < found.high < math.inf
    return Judged(budget, found, '', is_close)
