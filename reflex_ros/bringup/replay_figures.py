"""Figures of a replay, beside those of the recording."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from reflex_ros.core.stats import quantiles
from reflex_ros.core.summary import LedgerSummary, summarise

if TYPE_CHECKING:
    from reflex_ros.core.param_table import Value
    from reflex_ros.core.types import ChunkTrace, SimEvent
    from reflex_ros.stages.replay_source import Recorded
    from reflex_ros.stages.runlog import RunLog


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one run; quantile tables in ms, seams in rad and rad/s.

    ``stage_ms`` counts every call of a stage, also those whose result nobody used.
    """

    summary: LedgerSummary
    latency_ms: dict[str, float]
    stage_ms: dict[str, dict[str, float]]
    seam_rad: dict[str, float]
    seam_rad_s: dict[str, float]


@dataclass(frozen=True, slots=True)
class Replayed:
    """A finished replay.

    Attributes:
        recorded, replayed: Figures before and after.
        log: Everything published. ``assumed``: stages whose latency was not recorded.
        dropped: Frames lost by camera. ``duration_s``: recorded time.
        cpu_s: CPU time of the replay itself, without loading the policy.
        content: Hash of the output, '' without one.
        parameters: What it ran with, by name.
        left_out: What of the bag was left out, and steps of its clock, in words.
    """

    recorded: Figures
    replayed: Figures
    log: RunLog = field(repr=False)
    assumed: tuple[str, ...]
    dropped: dict[str, int]
    duration_s: float
    cpu_s: float
    content: str
    parameters: dict[str, Value]
    left_out: tuple[str, ...] = ()


def figures_of(ticks: Any, traces: Sequence[ChunkTrace], events: Sequence[SimEvent],
               period_ns: int, *, durations_ns: Mapping[str, Sequence[int]]) -> Figures:
    """Return the figures of a run, recorded or replayed; ``durations_ns``: calls by stage."""
    accepted = [t for t in traces if t.accepted_ns and t.inference_start_ns]
    entered = [t for t in traces if t.first_command_stamp_ns]
    return Figures(
        summarise(ticks, traces, period_ns=period_ns, events=events),
        quantiles([(t.accepted_ns - t.inference_start_ns) / 1e6 for t in accepted]),
        {name: quantiles(np.array(calls) / 1e6) for name, calls in durations_ns.items()},
        quantiles([abs(t.seam_position) for t in entered]),
        quantiles([abs(t.seam_velocity) for t in entered]),
    )


def as_json(done: Replayed, recorded: Recorded) -> dict[str, Any]:
    """Return the report of a replay, in JSON types."""
    return {
        'schema': 1, 'bag': recorded.folder.name, 'seed': done.parameters['policy.seed'],
        'mode': done.parameters['chunk.mode'], 'policy': done.parameters['policy.name'],
        'content': done.content, 'duration_s': round(done.duration_s, 3),
        'cpu_s': round(done.cpu_s, 3), 'assumed_stages': list(done.assumed),
        'dropped_frames': done.dropped, 'left_out': list(done.left_out),
        'recorded': dict(flat_figures(done.recorded)),
        'replayed': dict(flat_figures(done.replayed)),
    }


def flat_figures(figures: Figures) -> Iterator[tuple[str, float | None]]:
    """Yield names and figures; None where there are no samples."""
    summary = figures.summary
    yield 'ticks', summary.ticks
    for name in ('stall_ratio', 'stalled_chunks', 'uncovered_share'):
        yield name, _number(getattr(summary, name))
    tables: tuple[tuple[str, Mapping[str, float]], ...] = (
        ('latency_ms', figures.latency_ms),
        ('frame_to_command_ms', summary.observation_to_command),
        ('event_reaction_ms', summary.event_reaction),
        *((f'{stage}_ms', table) for stage, table in sorted(figures.stage_ms.items())),
        ('seam_rad', figures.seam_rad), ('seam_rad_s', figures.seam_rad_s),
    )
    for name, table in tables:
        for quantile in ('p50', 'p95'):
            yield f'{name}_{quantile}', _number(table[quantile])
    for fate, count in summary.fates.items():
        yield f'chunks_{fate}', count


def _number(value: float) -> float | None:
    return None if value != value else round(float(value), 6)


def format_figures(done: Replayed, line: Callable[[str], None] = print) -> None:
    """Print recorded and replayed figures side by side."""
    before, after = dict(flat_figures(done.recorded)), dict(flat_figures(done.replayed))
    line(f'{"":<26}{"recorded":>12}{"replayed":>12}')
    for name in dict.fromkeys((*before, *after)):
        cells = (before.get(name), after.get(name))
        texts = ('-' if cell is None else f'{cell:.5g}' for cell in cells)
        line(f'  {name:<24}' + ''.join(text.rjust(12) for text in texts))
    speed = done.duration_s / done.cpu_s if done.cpu_s else float('inf')
    line(f'  {done.duration_s:.1f} s replayed in {done.cpu_s:.2f} s of CPU time: '
         f'{speed:.1f} times real time')
    for stage in done.assumed:
        line(f'  latency of {stage} was not recorded: a usual one was taken')
    for camera, frames in done.dropped.items():
        if frames:
            line(f'  {frames} frames of camera {camera} were dropped')
    for text in done.left_out:
        line(f'  noted: {text}')
