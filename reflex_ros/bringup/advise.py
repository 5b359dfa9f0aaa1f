"""Which mode, stitcher and horizons fit what a bag measured, and what they would have changed.

Delays and bounds say what can work at all (``core.feasible``); what can is replayed on the virtual
clock with the recorded latencies, so every figure in the table is a figure of the same run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, degrees, isnan
from typing import TYPE_CHECKING, Any, cast

from reflex_ros.bringup.replay import replay
from reflex_ros.bringup.replay_input import ReplaySpec, open_source
from reflex_ros.core.clock import MS
from reflex_ros.core.errors import ConfigError, ReflexError
from reflex_ros.core.feasible import Choice, Timing, feasible_steps, problems
from reflex_ros.core.stats import quantiles
from reflex_ros.core.types import Mode, StateSource, Stitch
from reflex_ros.stages.build import execute_steps_from, state_source_from, switches_from

if TYPE_CHECKING:
    from reflex_ros.bringup.replay_figures import Replayed
    from reflex_ros.bringup.replay_input import Source
    from reflex_ros.core.param_table import Value

STALL_TIE = 0.001
"""Stall ratios closer than this are equal; then the faster reaction counts. Reactions less than a
row apart are equal, since commands come in rows; then the smaller seam counts."""
SEAM_TIE = 0.1
"""Share by which another setting's seam must be smaller to be worth a change."""
AGE_BOUND_S = 10.0


@dataclass(frozen=True, slots=True)
class Measured:
    """What the bag says.

    Attributes:
        latency_ms, delta_ms: L and Delta of its chunks, as ``core.stats.quantiles``.
        rows: Rows of its chunks. ``step_ns``: time between them.
        camera_ms: Median time between observations.
    """

    latency_ms: dict[str, float]
    delta_ms: dict[str, float]
    rows: int
    step_ns: int
    camera_ms: float

    def timing(self, max_age_s: float, source: StateSource) -> Timing:
        """Return the delays that a choice must bear: the 95 % quantiles."""
        return Timing(round(self.latency_ms['p95'] * MS), round(self.delta_ms['p95'] * MS),
                      self.step_ns, round(max_age_s * 1e9), source is StateSource.MEASURED)


@dataclass(frozen=True, slots=True)
class Option:
    """One setting that may be advised.

    Attributes:
        name: Words. ``overrides``: parameters that make it.
        why_not: Why it cannot work, () if it can.
        done: Its replay, None if it was not replayed.
    """

    name: str
    overrides: Mapping[str, Value]
    why_not: tuple[str, ...] = ()
    done: Replayed | None = field(default=None, repr=False)

    @property
    def score(self) -> tuple[float, float, float]:
        """Return stalls, reaction (ms) and seam (rad)."""
        assert self.done is not None
        after = self.done.replayed
        reaction = after.summary.observation_to_command['p95']
        return (_or_worst(after.summary.stall_ratio), _or_worst(reaction),
                _or_worst(after.seam_rad['p95']))


@dataclass(frozen=True, slots=True)
class Advice:
    """The answer.

    Attributes:
        measured: What the bag says. ``recorded``: its own settings, replayed.
        options: Alternatives. ``best``: the one to use, which may be ``recorded``.
        overlap_steps: Rows left when the next inference starts. ``horizon``: rows that a chunk
            needs. ``replan_hz``: chunks a second. ``notes``: what else is to be known.
    """

    measured: Measured
    recorded: Option
    options: tuple[Option, ...]
    best: Option
    overlap_steps: int
    horizon: int
    replan_hz: float
    notes: tuple[str, ...]


def advise(spec: ReplaySpec, *, said: Callable[[str], None] | None = None) -> Advice:
    """Return the advice for a bag.

    Args:
        spec: Bag and parameters; injections count as part of the recording.
        said: Gets the name of each replay before it runs.

    Raises:
        ConfigError: The bag cannot be replayed, or no chunk of it was executed.
    """
    source = open_source(spec)
    base = _run(Option('as recorded', {}), spec, source, said)
    assert base.done is not None
    measured = _measure(base.done)
    options = [option if option.why_not else _run(option, spec, None, said)
               for option in _options(source, measured)]
    usable = [option for option in (base, *options) if option.done is not None]
    best = choose(base, usable, row_ms=measured.step_ns / MS)
    params = {**source.values, **best.overrides}
    timing = measured.timing(cast('float', params['safety.max_observation_age_s']),
                             state_source_from(params))
    steps = _steps(params)
    worst = ceil(measured.latency_ms['p99'] * MS / measured.step_ns)
    return Advice(
        measured, base, tuple(options), best,
        overlap_steps=timing.delay_rows + cast('int', params['chunk.margin_steps']),
        horizon=timing.entry_row + max(steps, worst),
        replan_hz=1e9 / (max(steps, timing.delay_rows) * measured.step_ns),
        notes=tuple(_notes(measured, timing, steps)),
    )


def choose(base: Option, usable: Sequence[Option], *, row_ms: float) -> Option:
    """Return the best of options: stalls first, then reaction, then seams; the base in a tie."""
    for figure, tie in ((0, STALL_TIE), (1, row_ms)):
        least = min(option.score[figure] for option in usable)
        usable = [option for option in usable if option.score[figure] <= least + tie]
    best = min(usable, key=lambda option: option.score[2])
    is_tied = any(option is base for option in usable) and (
        best.score[2] >= (1 - SEAM_TIE) * base.score[2])
    return base if is_tied else best


def _run(option: Option, spec: ReplaySpec, source: Source | None,
         said: Callable[[str], None] | None) -> Option:
    if said is not None:
        said(option.name)
    try:
        done = replay(replace(spec, output=None, overrides={**spec.overrides, **option.overrides}),
                      source=source)
    except ReflexError as error:
        if not option.overrides:
            raise
        return replace(option, why_not=(str(error),))
    return replace(option, done=done)


def _measure(done: Replayed) -> Measured:
    chunks = done.log.chunks
    delta = done.recorded.summary.observation_to_command
    latency = done.recorded.latency_ms
    if not chunks or not latency['n'] or not delta['n']:
        raise ConfigError(
            'bag cannot be judged: got no executed chunk, expected at least one. '
            'Give a bag of a run that moved.'
        )
    stamps = sorted({chunk.observation_stamp_ns for chunk in chunks})
    blocks = sorted({block.stamp_ns for block in done.log.blocks})
    seen = blocks if len(blocks) > 1 else stamps
    gaps = [(b - a) / MS for a, b in zip(seen, seen[1:], strict=False)]
    rows = max(len(chunk.positions) for chunk in chunks)
    return Measured(latency, delta, rows, chunks[0].step_period_ns, quantiles(gaps)['p50'])


def _options(source: Source, measured: Measured) -> list[Option]:
    """Return alternatives to the recorded settings, each with why it cannot work."""
    found = []
    for mode, stitch in ((Mode.REFLEX, Stitch.BLEND), (Mode.REFLEX, Stitch.RTC),
                         (Mode.REFLEX, Stitch.REPLACE), (Mode.ASYNC_NAIVE, Stitch.REPLACE),
                         (Mode.SYNC, Stitch.REPLACE)):
        chosen: dict[str, Value] = {'chunk.mode': mode.value, 'chunk.stitch': stitch.value}
        found.append(_option(source, measured, chosen, stitch))
    return found


def _option(source: Source, measured: Measured, chosen: dict[str, Value],
            stitch: Stitch) -> Option:
    params = {**source.values, **chosen}
    age_s = cast('float', params['safety.max_observation_age_s'])
    state = switches_from(params).state_source
    steps = _steps(params)
    if chosen['chunk.mode'] == Mode.SYNC.value:
        return Option(_name(chosen, steps), chosen)
    timing = measured.timing(age_s, state)
    why_not = problems(Choice(measured.rows, steps, stitch), timing)
    if why_not:
        possible = feasible_steps(Choice(measured.rows, steps, stitch), timing)
        if not possible:
            return Option(_name(chosen, steps), chosen, why_not)
        steps = min(possible, key=lambda rows: (rows < timing.delay_rows, rows))
        chosen['chunk.execute_steps'] = steps
    return Option(_name(chosen, steps), chosen)


def _steps(params: Mapping[str, Value]) -> int:
    return execute_steps_from(params, str(params['policy.name']))


def _name(chosen: Mapping[str, Value], steps: int) -> str:
    return f'{chosen["chunk.mode"]}, {chosen["chunk.stitch"]}, {steps} rows'


def _notes(measured: Measured, timing: Timing, steps: int) -> list[str]:
    notes = []
    replan_ms = max(steps, timing.delay_rows) * measured.step_ns / MS
    if replan_ms < measured.camera_ms:
        notes.append(f'chunks every {replan_ms:.0f} ms, frames every {measured.camera_ms:.0f} ms: '
                     'chunks are made from frames that were used before')
    if steps < timing.delay_rows:
        notes.append(f'execute_steps {steps} is below the {timing.delay_rows} rows of the delay: '
                     'the policy, not the setting, decides how often it replans')
    spread = measured.latency_ms['p99'] / max(measured.latency_ms['p50'], 1e-9)
    if spread > 3:
        notes.append(f'the slowest 1 % of the inferences takes {spread:.1f} times the median: '
                     'look for what else runs on this machine')
    age_ns = timing.delta_ns + max(steps, timing.delay_rows) * timing.step_ns
    if age_ns > timing.max_age_ns:
        need_s = min(AGE_BOUND_S, ceil(age_ns / 5e7) * 0.05)
        notes.append(f'observations get {age_ns / MS:.0f} ms old: set '
                     f'safety.max_observation_age_s to {need_s:.2f}, or replan sooner')
    return notes


def _or_worst(value: float) -> float:
    return 1e9 if isnan(value) else value


# ---- words -------------------------------------------------------------------------------------


def as_json(advice: Advice) -> dict[str, Any]:
    """Return the advice in JSON types."""
    def row(option: Option) -> dict[str, Any]:
        return {'name': option.name, 'parameters': dict(option.overrides),
                'why_not': list(option.why_not), **figures(option)}

    return {
        'schema': 1, 'latency_ms': advice.measured.latency_ms,
        'delta_ms': advice.measured.delta_ms, 'recorded': row(advice.recorded),
        'options': [row(option) for option in advice.options], 'best': row(advice.best),
        'overlap_steps': advice.overlap_steps, 'horizon': advice.horizon,
        'replan_hz': round(advice.replan_hz, 3), 'notes': list(advice.notes),
    }


def figures(option: Option) -> dict[str, float | None]:
    """Return what decides, None where there is none."""
    if option.done is None:
        return {}
    after = option.done.replayed
    found = {
        'stall_ratio': after.summary.stall_ratio,
        'frame_to_command_p95_ms': after.summary.observation_to_command['p95'],
        'seam_p95_deg': degrees(after.seam_rad['p95']),
        'chunks': float(after.summary.fates['executed']),
    }
    return {name: None if isnan(value) else round(value, 4) for name, value in found.items()}


def format_advice(advice: Advice) -> list[str]:
    """Return the lines that a person reads."""
    m = advice.measured
    lines = [
        f'measured: L {m.latency_ms["p50"]:.0f} ms (95 %: {m.latency_ms["p95"]:.0f}), frame to '
        f'command {m.delta_ms["p50"]:.0f} ms (95 %: {m.delta_ms["p95"]:.0f}), {m.rows} rows of '
        f'{m.step_ns / MS:g} ms',
        '',
        f'{"replayed with":<28}{"stalls":>9}{"frame to command":>18}{"seam":>10}{"chunks":>8}',
        f'{"":<28}{"":>9}{"95 %":>18}{"95 %":>10}',
    ]
    lines += [_row(option, advice.best) for option in (advice.recorded, *advice.options)]
    lines += ['', *_verdict(advice), *(f'note: {note}' for note in advice.notes)]
    return lines


def _row(option: Option, best: Option) -> str:
    if option.done is None:
        return f'  {option.name:<26}  cannot work: {"; ".join(option.why_not)}'
    cells: Sequence[str] = [
        '-' if value is None else text.format(value)
        for value, text in zip(figures(option).values(),
                               ('{:.2%}', '{:.0f} ms', '{:.2f} deg', '{:.0f}'), strict=True)]
    line = f'  {option.name:<26}' + ''.join(
        cell.rjust(width) for cell, width in zip(cells, (9, 18, 10, 8), strict=True))
    return line + ('  <- use this' if option is best else '')


def _verdict(advice: Advice) -> list[str]:
    best = advice.best
    lines = [f'overlap: start the next inference {advice.overlap_steps} rows before the end; a '
             f'chunk needs {advice.horizon} rows; {advice.replan_hz:.1f} chunks a second']
    if best is advice.recorded:
        return ['keep the recorded settings: none was a row faster or a tenth smoother', *lines]
    flags = ' '.join(f'-p {name}:={value}' for name, value in best.overrides.items())
    return [f'use {best.name}: {flags}', *lines]
