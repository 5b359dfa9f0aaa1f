"""``summary.json``: the figures of one run, by the definitions of ``core.summary``."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from reflex_ros.analysis.run import RecordedRun
from reflex_ros.bag.run_folder import RunFolder
from reflex_ros.core.files import write_text
from reflex_ros.core.machine import describe_machine
from reflex_ros.core.summary import summarise
from reflex_ros.report.run_data import Run, load_run

KEYS = (
    'ticks', 'verdicts', 'causes', 'stall_ratio', 'stalled_chunks', 'uncovered_share',
    'reaction_ms', 'observation_to_command_ms', 'stage_ms', 'mode', 'policy', 'delay_ms',
    'execute_steps', 'seed', 'duration_s', 'left_out', 'machine',
)
"""Keys of a summary, in their order. A figure without samples is null, never 0; ``left_out`` are
the damaged messages that it is made without, in words."""
_QUANTILES = ('p50', 'p95', 'p99', 'n')


def write_summary(folder: Path | str, run: Run | None = None) -> dict[str, Any]:
    """Write ``summary.json`` into a run folder and return it.

    Args:
        folder: Run folder. ``run``: what is in it, None to read it.

    Raises:
        ConfigError: The folder has neither a ledger nor recorded ticks.
        LayoutError: They are of another version.
    """
    summary = summarise_run(run or load_run(folder))
    text = json.dumps(summary, indent=2, allow_nan=False)
    write_text(RunFolder(Path(folder)).summary, text + '\n')
    return summary


def summarise_run(run: Run | RecordedRun) -> dict[str, Any]:
    """Return the figures of a run as they stand in ``summary.json``."""
    figures = summarise(run.records, run.traces, period_ns=run.period_ns, events=run.events)
    settings = run.settings
    delay_s = settings.get('delay.injected_s')
    # no other figure stands in for reactions that were left out
    kind = 'event_reaction' if run.lost_events else figures.reaction_name
    summary = {
        'ticks': figures.ticks,
        'verdicts': figures.verdicts,
        'causes': figures.causes,
        'stall_ratio': figures.stall_ratio,
        'stalled_chunks': figures.stalled_chunks,
        'uncovered_share': figures.uncovered_share,
        'reaction_ms': {**_short(getattr(figures, kind)), 'kind': kind},
        'observation_to_command_ms': _short(figures.observation_to_command),
        'stage_ms': {name: _short(table) for name, table in figures.stage_ms.items()},
        'mode': settings.get('chunk.mode'),
        'policy': settings.get('policy.name'),
        'delay_ms': None if delay_s is None else round(1e3 * delay_s, 3),
        'execute_steps': run.execute_steps or settings.get('chunk.execute_steps') or None,
        'seed': settings.get('simulator.seed', settings.get('policy.seed')),
        'duration_s': round(run.duration_s, 3),
        'left_out': list(run.left_out),
        'machine': describe_machine(),
    }
    return {key: _finite(summary[key]) for key in KEYS}


def _short(table: dict[str, float]) -> dict[str, float]:
    return {name: table[name] for name in _QUANTILES}


def _finite(value: Any) -> Any:
    """Return a value with null for nan and four decimals, which is finer than any clock here."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, float):
        return round(value, 4) if math.isfinite(value) else None
    return value
