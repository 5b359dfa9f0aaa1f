"""An advice as JSON and as lines that a person reads."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import TYPE_CHECKING, Any

from reflex_ros.core.clock import MS

if TYPE_CHECKING:
    from reflex_ros.bringup.advise import Advice
    from reflex_ros.bringup.advise_rules import Option

SCHEMA = 3
_FORMS = ('{:.2%}', '{:.0f} ms', '{:.2f}', '{:.0f}', '{:.1f}', '{:.1%}', '{:.0f}')
_WIDTHS = (9, 11, 9, 10, 10, 9, 8)
_HEADS = (('stalls', ''), ('frame to', 'command'), ('seam', 'deg'), ('jerk', 'rad/s3'),
          ('peak', 'rad/s2'), ('limited', ''), ('chunks', ''))


def as_json(advice: Advice) -> dict[str, Any]:
    """Return the advice in JSON types."""
    def row(option: Option) -> dict[str, Any]:
        return {'name': option.name, 'parameters': dict(option.overrides),
                'why_not': list(option.why_not), 'added_ms': round(option.more_ms, 3),
                **figures(option)}

    measured = advice.measured
    return {
        'schema': SCHEMA, 'is_possible': advice.is_possible,
        'latency_ms': measured.latency_ms, 'delta_ms': measured.delta_ms,
        'rows': measured.rows, 'step_ms': measured.step_ns / MS, 'camera_ms': measured.camera_ms,
        'guided_cost': round(measured.guided, 3), 'recorded': row(advice.recorded),
        'options': [row(option) for option in advice.options],
        'best': None if advice.best is None else row(advice.best), 'mode': advice.mode,
        'request': advice.request, 'stitch': advice.stitch, 'execute_steps': advice.execute_steps,
        'delay_rows': advice.delay_rows, 'overlap_steps': advice.overlap_steps,
        'entry_row': advice.entry_row, 'horizon': advice.horizon,
        'replan_hz': None if isnan(advice.replan_hz) else round(advice.replan_hz, 3),
        'notes': list(advice.notes),
    }


def figures(option: Option) -> dict[str, float | None]:
    """Return what decides and what explains it, None where there is none; {} if not replayed."""
    found = option.outcome
    if found is None:
        return {}
    values = {
        'stall_ratio': found.stall_ratio, 'frame_to_command_p95_ms': found.reaction_ms,
        'seam_p95_deg': found.seam_deg, 'jerk_rms_rad_s3': found.smooth.jerk_rad_s3,
        'acceleration_max_rad_s2': found.smooth.acceleration_rad_s2,
        'limited_share': found.smooth.limited_share, 'chunks': float(found.chunks),
    }
    return {name: None if isnan(value) else round(value, 4) for name, value in values.items()}


def format_advice(advice: Advice) -> list[str]:
    """Return the lines that a person reads."""
    m = advice.measured
    lines = [
        f'measured: L {m.latency_ms["p50"]:.0f} ms (95 %: {m.latency_ms["p95"]:.0f}), frame to '
        f'command {m.delta_ms["p50"]:.0f} ms (95 %: {m.delta_ms["p95"]:.0f}), {m.rows} rows of '
        f'{m.step_ns / MS:g} ms, frames every {m.camera_ms:.0f} ms', '']
    lines += [f'{"replayed with" if not at else "":<31}' + ''.join(
        head[at].rjust(width) for head, width in zip(_HEADS, _WIDTHS, strict=True))
        for at in (0, 1)]
    replayed = [o for o in (advice.recorded, *advice.options) if o.outcome is not None]
    lines += [_row(option, advice.best) for option in replayed]
    lines += ['', *_verdict(advice), *_infeasible(advice)]
    return [*lines, *(f'note: {note}' for note in advice.notes)]


def _row(option: Option, best: Option | None) -> str:
    cells: Sequence[str] = ['-' if value is None else text.format(value) for value, text in zip(
        figures(option).values(), _FORMS, strict=True)]
    line = f'  {option.name:<29}' + ''.join(
        cell.rjust(width) for cell, width in zip(cells, _WIDTHS, strict=True))
    return line + ('  <- use this' if option is best else '')


def _verdict(advice: Advice) -> list[str]:
    """Return mode, stitcher, overlap, horizon and rate, each with what it follows from."""
    best, m = advice.best, advice.measured
    if best is None:
        return ['nothing fits: none of these settings can work here']
    flags = ' '.join(f'-p {name}:={value}' for name, value in best.overrides.items())
    head = f'use {best.name}: {flags}'
    if best is advice.recorded:
        head = f'keep the recorded settings: {_why_keep(advice)}'
    rate = 'fewer than two chunks' if isnan(advice.replan_hz) else (
        f'{advice.replan_hz:.1f} chunks a second')
    return [
        head, *_changes(advice, best),
        f'  mode      {advice.mode}',
        f'  stitcher  {advice.stitch}',
        f'  overlap   {_overlap(advice)}',
        f'  horizon   {_horizon(advice)}',
        f'  rate      {rate}, rows at {1e9 / m.step_ns:g} Hz, '
        f'frames at {1e3 / m.camera_ms if m.camera_ms else 0:.3g} Hz',
    ]


def _why_keep(advice: Advice) -> str:
    if not any(option.is_usable for option in advice.options):
        return 'nothing else can work here'
    return 'none that may be advised had fewer stalls, was a row faster or a tenth smoother'


def _overlap(advice: Advice) -> str:
    if advice.request == 'settled':
        return 'none: an inference starts when the arm has come to rest'
    if advice.request == 'continuous':
        return 'whole: an inference starts as soon as the one before has ended'
    if advice.request == 'threshold':
        return f'an inference starts when {advice.overlap_steps} rows of the plan are left'
    return (f'start the next inference {advice.overlap_steps} rows before the end: L is '
            f'{advice.delay_rows} rows')


def _horizon(advice: Advice) -> str:
    rows = f'a chunk is entered at row {advice.entry_row} and needs {advice.horizon}'
    if advice.request == 'continuous':
        used = '' if isnan(advice.replan_hz) else (
            f', after {1e9 / advice.replan_hz / advice.measured.step_ns:.1f} on average')
        return f'executes what comes before the next chunk{used}; {rows}'
    return f'executes {advice.execute_steps} of {advice.measured.rows} rows; {rows}'


def _changes(advice: Advice, best: Option) -> list[str]:
    """Return what the advice would have changed in this run."""
    before, after = figures(advice.recorded), figures(best)
    if best is advice.recorded:
        return []
    names = dict(zip(before, (' '.join(part for part in head if part) for head in _HEADS),
                     strict=True))
    texts = [f'{names[name]} {form.format(after[name])} instead of {form.format(before[name])}'
             for name, form in zip(before, _FORMS, strict=True)
             if before[name] is not None and after[name] is not None
             and form.format(after[name]) != form.format(before[name])]
    return [f'  in this run: {"; ".join(texts)}'] if texts else []


def _infeasible(advice: Advice) -> list[str]:
    """Return every setting that cannot work here, with the numbers that forbid it."""
    lines = [f'  {option.name}: {"; ".join(option.why_not)}'
             for option in (advice.recorded, *advice.options) if option.why_not]
    return ['cannot work here:', *lines] if lines else []
