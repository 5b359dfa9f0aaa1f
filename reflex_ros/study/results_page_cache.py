"""Table 4 as success: what the lines of each cache say, and whether they are the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from reflex_ros.study.experiment_table import interval
from reflex_ros.study.results_page_claims import (
    FAILS,
    HOLDS,
    Claim,
    estimate,
    missing,
    shown,
    source,
    verdict,
)
from reflex_ros.study.results_page_found import Found

FULL, PARTITIONED = 'full recomputation', 'partitioned'
HEAD = 'success %, `tiny`, `simulated`'
NOTE = (
    'Success is that of a learned policy, `tiny`, with its Wilson interval: [{title}](#{slug}). '
    'Weights of Pi0, Pi0.5 and SmolVLA are random here and can do no task.')


def success(one: Found) -> dict[str, str]:
    """Return the success of each cache that was run, by the name of its row."""
    found = {cell.label: one.cell(cell.label)[1] for cell in one.experiment.cells}
    return {label: interval(figures['success'], 100) for label, figures in found.items()
            if figures is not None}


def lines_by_seed(one: Found, label: str) -> dict[int, Mapping[str, Any]]:
    """Return the lines of a cell by their seed, without the id of the cell."""
    key, _ = one.cell(label)
    return {line['seed']: {name: value for name, value in line.items() if name != 'cell'}
            for line in one.lines if line['cell'] == key}


def same_lines(one: Found) -> Claim:
    """Return whether the partitioned cache succeeds as often as full recomputation.

    It holds if every line of the one is a line of the other. Otherwise the intervals decide, and
    can only say that it does not hold, or nothing.
    """
    text = 'Partitioned succeeds as often as full recomputation, line by line (Table 4)'
    cells = [one.cell(label) for label in (PARTITIONED, FULL)]
    steps = ' against '.join(str(one.settings(label).execute_steps)
                             for label in (PARTITIONED, FULL))
    origin = source(one, [key for key, _ in cells])
    values = [estimate(figures, 'success') for _, figures in cells]
    if None in values:
        return replace(missing(one, text, steps, origin), topic=one.experiment.title)
    mine, theirs = (lines_by_seed(one, label) for label in (PARTITIONED, FULL))
    equal = sum(mine.get(seed) == line for seed, line in theirs.items())
    is_same = equal == len(theirs) == len(mine)
    answer = verdict(*values, more_is_better=True)
    evidence = (f'{shown(values[0], "success")} against {shown(values[1], "success")} %, '
                f'{len(mine)} and {len(theirs)} episodes, {equal} of {len(theirs)} lines equal')
    answer = HOLDS if is_same else FAILS if answer == HOLDS else answer
    return Claim(text, answer, steps, 'simulated', evidence,
                 '' if is_same else 'actions that differ by rounding lead to other episodes',
                 origin, one.experiment.title)
