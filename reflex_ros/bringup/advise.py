"""Which mode, stitcher and horizons fit what a bag measured, and what they would have changed.

Delays and bounds say what can work at all (``core.feasible``); what can is replayed on the virtual
clock with the recorded latencies, so every figure in the table is a figure of the same run. What
guidance adds to an inference is measured with the policy itself and added to those latencies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING, cast

from reflex_ros.bringup.advise_figures import Outcome, outcome_of
from reflex_ros.bringup.guided_cost import guided_cost
from reflex_ros.bringup.replay import replay
from reflex_ros.bringup.replay_input import ReplaySpec, open_source
from reflex_ros.core.clock import MS
from reflex_ros.core.errors import ConfigError, ReflexError
from reflex_ros.core.feasible import Choice, Timing, feasible_steps, problems
from reflex_ros.core.stats import quantiles
from reflex_ros.core.types import Mode, StateSource, Stitch
from reflex_ros.stages.build import execute_steps_from, state_source_from, switches_from
from reflex_ros.stages.replay_inject import Injection

if TYPE_CHECKING:
    from reflex_ros.bringup.replay_figures import Replayed
    from reflex_ros.bringup.replay_input import Source
    from reflex_ros.core.param_table import Value
    from reflex_ros.stages.replay_inject import Injections

STALL_TIE = 0.001
"""Stall ratios closer than this are equal; then the faster reaction counts. Reactions less than a
row apart are equal, since commands come in rows; then the smoother commands count."""
JERK_TIE = 0.1
"""Share by which another setting's commands must be smoother to be worth a change."""
AGE_BOUND_S = 10.0
LEAST_COST = 0.02
"""Guidance that adds a smaller share than this cannot be told from noise."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What the bag says.

    Attributes:
        latency_ms, delta_ms: L and Delta of its chunks, as ``core.stats.quantiles``.
        rows: Rows of a chunk of the policy that may be executed. ``step_ns``: time between them.
        camera_ms: Median time between observations.
        denoise_ms: Median duration of the denoise stage.
        guided: Time of a guided inference over that of a free one; 1 without guidance.
    """

    latency_ms: dict[str, float]
    delta_ms: dict[str, float]
    rows: int
    step_ns: int
    camera_ms: float
    denoise_ms: float = 0.0
    guided: float = 1.0

    @property
    def guidance_ms(self) -> float:
        """What guidance adds to an inference."""
        added = self.guided - 1.0
        return added * self.denoise_ms if added > LEAST_COST else 0.0

    def timing(self, max_age_s: float, source: StateSource, *, more_ms: float = 0.0) -> Timing:
        """Return the delays that a choice must bear: the 95 % quantiles and what it adds."""
        latency, delta = (round((t['p95'] + more_ms) * MS) for t in
                          (self.latency_ms, self.delta_ms))
        return Timing(latency, delta, self.step_ns, round(max_age_s * 1e9),
                      source is StateSource.MEASURED)


@dataclass(frozen=True, slots=True)
class Option:
    """One setting that may be advised.

    Attributes:
        name: Words. ``overrides``: parameters that make it.
        why_not: Why it cannot work, () if it can.
        more_ms: What it adds to each inference.
        outcome: Figures of its replay, None if it was not replayed.
    """

    name: str
    overrides: Mapping[str, Value]
    why_not: tuple[str, ...] = ()
    more_ms: float = 0.0
    outcome: Outcome | None = None

    @property
    def is_usable(self) -> bool:
        """Whether it was replayed and nothing forbids it."""
        return self.outcome is not None and not self.why_not

    @property
    def score(self) -> tuple[float, float, float]:
        """Return stalls, reaction (ms) and jerk (rad/s³)."""
        assert self.outcome is not None
        return self.outcome.score


@dataclass(frozen=True, slots=True)
class Advice:
    """The answer.

    Attributes:
        measured: What the bag says. ``recorded``: its own settings, replayed.
        options: Alternatives. ``best``: the one to use, which may be ``recorded``.
        mode, stitch: Of the best one. ``execute_steps``: rows that it executes of a chunk.
        delay_rows: Rows of its delay L. ``overlap_steps``: rows left when the next inference
            starts. ``entry_row``: row at which a chunk is entered. ``horizon``: rows that a chunk
            needs. ``replan_hz``: chunks a second.
        notes: What else is to be known.
    """

    measured: Measured
    recorded: Option
    options: tuple[Option, ...]
    best: Option
    mode: str
    stitch: str
    execute_steps: int
    delay_rows: int
    overlap_steps: int
    entry_row: int
    horizon: int
    replan_hz: float
    notes: tuple[str, ...]

    @property
    def is_possible(self) -> bool:
        """Whether the arm moves with any of the settings."""
        return self.best.score[0] <= 1.0


@dataclass(slots=True)
class _Desk:
    """Replays options of one bag.

    Attributes:
        last: The newest replay.
    """

    spec: ReplaySpec
    said: Callable[[str], None] | None
    last: Replayed | None = field(default=None, repr=False)

    def run(self, option: Option, source: Source | None = None) -> Option:
        """Return an option with its figures, or with why it cannot be replayed."""
        if self.said is not None:
            self.said(option.name)
        overrides = {**self.spec.overrides, **option.overrides}
        spec = replace(self.spec, output=None, overrides=overrides,
                       injections=self._injections(option.more_ms))
        try:
            self.last = done = replay(spec, source=source)
        except ReflexError as error:
            if not option.overrides:
                raise
            return replace(option, why_not=(*option.why_not, str(error)))
        period_ns = round(1e9 / cast('float', done.parameters['control.rate_hz']))
        return replace(option, outcome=outcome_of(done, period_ns))

    def _injections(self, more_ms: float) -> Injections:
        """Return what is injected anyway, with each inference so much longer."""
        known = self.spec.injections
        if not more_ms:
            return known
        own = known.stages.get('denoise', Injection())
        longer = replace(own, add_ns=own.add_ns + round(more_ms * MS))
        return replace(known, stages={**known.stages, 'denoise': longer})


def advise(spec: ReplaySpec, *, said: Callable[[str], None] | None = None) -> Advice:
    """Return the advice for a bag.

    Args:
        spec: Bag and parameters; injections count as part of the recording.
        said: Gets the name of each replay before it runs.

    Raises:
        ConfigError: The bag cannot be replayed, or no chunk of it was executed.
    """
    source, desk = open_source(spec), _Desk(spec, said)
    base = desk.run(Option('as recorded', {}), source)
    first = _first(source)
    measured = _measure(_last(desk), source, spec)
    if source.values['chunk.mode'] == Mode.SYNC.value:  # its chunks are cut to what is executed
        probed = desk.run(first)
        if probed.outcome is not None:
            measured = replace(measured, rows=_rows(_last(desk), source))
    measured = replace(measured, guided=guided_cost(source))
    options = [option if option.why_not else desk.run(option)
               for option in _options(source, measured)]
    best = choose(base, [base, *(o for o in options if o.is_usable)],
                  row_ms=measured.step_ns / MS)
    return _advice(source, measured, base, options, best)


def _first(source: Source) -> Option:
    chosen: dict[str, Value] = {'chunk.mode': Mode.REFLEX.value,
                                'chunk.stitch': Stitch.BLEND.value}
    return Option('chunks as the policy makes them', chosen)


def _last(desk: _Desk) -> Replayed:
    assert desk.last is not None
    return desk.last


def _advice(source: Source, measured: Measured, base: Option, options: Sequence[Option],
            best: Option) -> Advice:
    params = {**source.values, **best.overrides}
    switches = switches_from(params)
    timing = measured.timing(cast('float', params['safety.max_observation_age_s']),
                             state_source_from(params), more_ms=best.more_ms)
    steps = _steps(params)
    worst = ceil(measured.latency_ms['p99'] * MS / measured.step_ns)
    is_sync = params['chunk.mode'] == Mode.SYNC.value
    used = steps + timing.delay_rows if is_sync else max(steps, timing.delay_rows)
    return Advice(
        measured, base, tuple(options), best, mode=str(params['chunk.mode']),
        stitch=switches.stitch.value, execute_steps=steps, delay_rows=timing.delay_rows,
        overlap_steps=0 if is_sync else (
            timing.delay_rows + cast('int', params['chunk.margin_steps'])),
        entry_row=timing.entry_row,
        horizon=steps if is_sync else timing.entry_row + max(steps, worst),
        replan_hz=1e9 / (used * measured.step_ns),
        notes=tuple(_notes(measured, timing, steps, options)),
    )


def choose(base: Option, usable: Sequence[Option], *, row_ms: float) -> Option:
    """Return the best of options: stalls first, then reaction, then jerk; the base in a tie."""
    for figure, tie in ((0, STALL_TIE), (1, row_ms)):
        least = min(option.score[figure] for option in usable)
        usable = [option for option in usable if option.score[figure] <= least + tie]
    best = min(usable, key=lambda option: option.score[2])
    is_tied = any(option is base for option in usable) and (
        best.score[2] >= (1 - JERK_TIE) * base.score[2])
    return base if is_tied else best


def _measure(done: Replayed, source: Source, spec: ReplaySpec) -> Measured:
    """Return the delays of the recording; what was injected or changed counts as part of it."""
    chunks, recorded = done.log.chunks, done.recorded
    delta, latency = recorded.summary.observation_to_command, recorded.latency_ms
    if not chunks or not latency['n'] or not delta['n']:
        raise ConfigError(
            'bag cannot be judged: got no executed chunk, expected at least one. '
            'Give a bag of a run that moved.'
        )
    denoise_ms = recorded.summary.stage_ms.get('denoise', {'p50': 0.0})['p50']
    if spec.injections.stages or spec.overrides:
        changed = done.replayed.latency_ms
        # the rest of Delta, from exposure to inference, does not change with L
        delta = {name: delta[name] + changed[name] - latency[name] if name != 'n' else delta[name]
                 for name in delta}
        denoise_ms += changed['p50'] - latency['p50']
        latency = changed
    stamps = sorted({chunk.observation_stamp_ns for chunk in chunks})
    blocks = sorted({block.stamp_ns for block in done.log.blocks})
    seen = blocks if len(blocks) > 1 else stamps
    gaps = [(b - a) / MS for a, b in zip(seen, seen[1:], strict=False)]
    return Measured(latency, delta, _rows(done, source), chunks[0].step_period_ns,
                    quantiles(gaps)['p50'], denoise_ms=max(denoise_ms, 0.0))


def _rows(done: Replayed, source: Source) -> int:
    """Return the rows of the longest chunk, or the fewer ones that may be executed at all."""
    rows = max(len(chunk.positions) for chunk in done.log.chunks)
    return min(rows, cast('int', source.values['chunk.horizon']) or rows)


def _options(source: Source, measured: Measured) -> list[Option]:
    """Return alternatives to the recorded settings, each with why it cannot work."""
    found = [
        _option(source, measured, mode, stitch)
        for mode, stitch in ((Mode.REFLEX, Stitch.BLEND), (Mode.REFLEX, Stitch.RTC),
                             (Mode.REFLEX, Stitch.REPLACE), (Mode.ASYNC_NAIVE, Stitch.REPLACE),
                             (Mode.SYNC, Stitch.REPLACE))]
    quickest = max(1, -(-round(measured.latency_ms['p95'] * MS) // measured.step_ns))
    fast = _option(source, measured, Mode.REFLEX, Stitch.BLEND, steps=quickest)
    is_new = not fast.why_not and fast.name not in {option.name for option in found}
    return [*found, fast] if is_new else found


def _option(source: Source, measured: Measured, mode: Mode, stitch: Stitch, *,
            steps: int | None = None) -> Option:
    """Return an option; where its rows cannot work but others can, with those."""
    chosen: dict[str, Value] = {'chunk.mode': mode.value, 'chunk.stitch': stitch.value}
    if steps is not None:
        chosen['chunk.execute_steps'] = steps
    params = {**source.values, **chosen}
    more_ms = measured.guidance_ms if stitch is Stitch.RTC else 0.0
    timing = measured.timing(cast('float', params['safety.max_observation_age_s']),
                             switches_from(params).state_source, more_ms=more_ms)
    choice = Choice(measured.rows, _steps(params), stitch)
    if mode is Mode.SYNC:
        return Option(_name(chosen, choice), chosen, _sync_problems(choice, timing))
    why_not = problems(choice, timing)
    possible = feasible_steps(choice, timing) if why_not else ()
    if possible:
        rows = min(possible, key=lambda rows: (rows < timing.delay_rows, rows))
        choice, why_not = replace(choice, execute_steps=rows), ()
        chosen['chunk.execute_steps'] = rows
    if why_not:
        why_not = (f'L {timing.latency_ns / MS:.0f} ms = {timing.delay_rows} rows', *why_not)
    return Option(_name(chosen, choice), chosen, why_not, more_ms)


def _sync_problems(choice: Choice, timing: Timing) -> tuple[str, ...]:
    """Return why a chunk cannot be executed while nothing else is made."""
    if choice.execute_steps > choice.horizon:
        return (f'executes {choice.execute_steps} of {choice.horizon} rows',)
    age_ns = timing.delta_ns + choice.execute_steps * timing.step_ns
    if age_ns > timing.max_age_ns:
        return (f'too old: {age_ns / MS:.0f} of {timing.max_age_ns / MS:.0f} ms',)
    return ()


def _steps(params: Mapping[str, Value]) -> int:
    return execute_steps_from(params, str(params['policy.name']))


def _name(chosen: Mapping[str, Value], choice: Choice) -> str:
    return f'{chosen["chunk.mode"]}, {chosen["chunk.stitch"]}, {choice.execute_steps} rows'


def _notes(measured: Measured, timing: Timing, steps: int,
           options: Sequence[Option]) -> list[str]:
    notes = []
    if measured.guidance_ms:
        notes.append(f'a guided inference took {measured.guided:.2f} times a free one here: rtc '
                     f'was replayed with {measured.guidance_ms:.0f} ms more')
    overlapping = [o for o in options if o.overrides['chunk.mode'] != Mode.SYNC.value]
    if overlapping and all(o.why_not for o in overlapping):
        notes.append(f'nothing that overlaps can work: L is {timing.delay_rows} rows, a chunk has '
                     f'{measured.rows}; make the policy faster or its chunks longer')
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
