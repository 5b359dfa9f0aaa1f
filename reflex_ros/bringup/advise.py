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

from reflex_ros.analysis.budgets import load_budgets
from reflex_ros.bringup.advise_figures import outcome_of
from reflex_ros.bringup.advise_rules import (
    Measured,
    Option,
    choose,
    forbidden,
    is_rough,
    options_of,
    steps_of,
    tried,
)
from reflex_ros.bringup.guided_cost import guided_cost
from reflex_ros.bringup.replay import replay
from reflex_ros.bringup.replay_input import ReplaySpec, open_source
from reflex_ros.bringup.settings import config_file
from reflex_ros.core.clock import MS
from reflex_ros.core.errors import ConfigError, ReflexError
from reflex_ros.core.feasible import RUNS_OUT, TOO_OLD
from reflex_ros.core.stats import quantiles
from reflex_ros.core.types import Entry, Mode, Stitch
from reflex_ros.stages.build import switches_from
from reflex_ros.stages.replay_inject import Injection

if TYPE_CHECKING:
    from reflex_ros.bringup.replay_figures import Replayed
    from reflex_ros.bringup.replay_input import Source
    from reflex_ros.core.param_table import Value
    from reflex_ros.stages.replay_inject import Injections

AGE_BOUND_S = 10.0
_BASE = 'as recorded'


@dataclass(frozen=True, slots=True)
class Advice:
    """The answer.

    Attributes:
        measured: What the bag says. ``recorded``: its own settings, replayed.
        options: Alternatives. ``best``: the one to use, which may be ``recorded``; None if none
            can work. What follows describes the best one, or the recorded one without it.
        mode, stitch: How chunks are made and joined. ``request``: what starts an inference.
        execute_steps: Rows of a chunk that are meant to be executed.
        delay_rows: Rows of its delay L. ``overlap_steps``: rows left of those when the next
            inference starts, None where one follows the other without a pause.
        entry_row: Row at which a chunk is entered. ``horizon``: rows that a chunk needs.
        replan_hz: Chunks a second in its replay, nan with fewer than two.
        notes: What else is to be known.
    """

    measured: Measured
    recorded: Option
    options: tuple[Option, ...]
    best: Option | None
    mode: str
    stitch: str
    request: str
    execute_steps: int
    delay_rows: int
    overlap_steps: int | None
    entry_row: int
    horizon: int
    replan_hz: float
    notes: tuple[str, ...]

    @property
    def is_possible(self) -> bool:
        """Whether the arm moves with any of the settings."""
        return self.best is not None


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

    def judged(self, option: Option) -> Option:
        """Return an option with its figures and what they say against it."""
        done = self.run(option)
        return tried(done, _last(self).parameters) if done.outcome is not None else done

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
    base = desk.run(Option(_BASE, {}), source)
    measured = _measure(_last(desk), source, spec)
    if source.values['chunk.mode'] == Mode.SYNC.value:  # its chunks are cut to what is executed
        probed = desk.run(_first())
        if probed.outcome is not None:
            measured = replace(measured, rows=_rows(_last(desk), source))
    measured = replace(measured, guided=guided_cost(source))
    base = tried(replace(base, why_not=forbidden(source.values, measured)), source.values)
    options = [option if option.why_not else desk.judged(option)
               for option in options_of(source, measured)]
    seam_deg = _seam_budget()
    best = choose(base, [o for o in (base, *options) if o.is_usable],
                  row_ms=measured.step_ns / MS, seam_deg=seam_deg)
    rough = [o.name for o in options if best not in (o, None) and o.is_usable
             and is_rough(o, base, seam_deg=seam_deg)]
    return _advice(source, measured, base, options, best, rough)


def _first() -> Option:
    chosen: dict[str, Value] = {'chunk.mode': Mode.REFLEX.value,
                                'chunk.stitch': Stitch.BLEND.value}
    return Option('chunks as the policy makes them', chosen)


def _last(desk: _Desk) -> Replayed:
    assert desk.last is not None
    return desk.last


def _seam_budget() -> float:
    """Return the largest seam of the shipped budgets, deg."""
    found = {b.figure: b.at_most for b in load_budgets(config_file('budgets.yaml'))}
    bound = found.get('seam_deg')
    return float('inf') if bound is None else bound


def _advice(source: Source, measured: Measured, base: Option, options: Sequence[Option],
            best: Option | None, rough: Sequence[str]) -> Advice:
    told = best or base
    params = {**source.values, **told.overrides}
    switches = switches_from(params)
    timing = measured.timing(params, more_ms=told.more_ms)
    steps, delay = steps_of(params), timing.delay_rows
    worst = ceil(measured.latency_ms['p99'] * MS / measured.step_ns)
    margin = cast('int', params['chunk.margin_steps'])
    lead = min(steps, delay + margin if switches.overlap else margin)
    overlap: dict[str, int | None] = {
        'settled': 0, 'continuous': None, 'threshold': margin, 'overlap': lead}
    entry = 0 if switches.entry is Entry.RESTART else timing.entry_row
    needed = {'settled': steps, 'continuous': entry + worst}
    return Advice(
        measured, base, tuple(options), best, mode=str(params['chunk.mode']),
        stitch=switches.stitch.value, request=switches.request, execute_steps=steps,
        delay_rows=delay, overlap_steps=overlap[switches.request], entry_row=entry,
        horizon=needed.get(switches.request, entry + max(steps, worst)),
        replan_hz=told.outcome.replan_hz if told.outcome is not None else float('nan'),
        notes=(*_rough_notes(rough), *_notes(measured, params, told, [base, *options])),
    )


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
        if not changed['n']:
            raise ConfigError(
                'bag cannot be judged: got no chunk in a replay with what was injected and '
                'changed, expected at least one. Inject less.'
            )
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


def _rough_notes(rough: Sequence[str]) -> list[str]:
    return [f'{"; ".join(rough)}: too rough to be advised (seam or limits)'] if rough else []


def _notes(measured: Measured, params: Mapping[str, Value], told: Option,
           options: Sequence[Option]) -> list[str]:
    timing, steps = measured.timing(params, more_ms=told.more_ms), steps_of(params)
    notes = []
    if measured.guidance_ms:
        notes.append(f'a guided inference took {measured.guided:.2f} times a free one here: rtc '
                     f'was replayed with {measured.guidance_ms:.0f} ms more')
    notes += _hopeless(measured, timing.delay_rows, options)
    found = told.outcome
    replan_ms = 1e3 / found.replan_hz if found is not None and found.replan_hz > 0 else None
    if replan_ms is not None and replan_ms < 0.98 * measured.camera_ms:
        notes.append(f'chunks every {replan_ms:.0f} ms, frames every {measured.camera_ms:.0f} ms: '
                     'chunks are made from frames that were used before')
    is_sync = params['chunk.mode'] == Mode.SYNC.value
    if steps < timing.delay_rows and not is_sync:
        notes.append(f'execute_steps {steps} is below the {timing.delay_rows} rows of the delay: '
                     'the policy, not the setting, decides how often it replans')
    spread = measured.latency_ms['p99'] / max(measured.latency_ms['p50'], 1e-9)
    if spread > 3:
        notes.append(f'the slowest 1 % of the inferences takes {spread:.1f} times the median: '
                     'look for what else runs on this machine')
    age_ns = timing.delta_ns + max(steps, timing.delay_rows) * timing.step_ns
    if age_ns > timing.max_age_ns and not is_sync:
        notes.append(f'observations get {age_ns / MS:.0f} ms old: {_older(age_ns)}')
    return notes


def _older(age_ns: float) -> str:
    """Return how to live with observations of an age."""
    need_s = ceil(age_ns / 5e7) * 0.05
    if need_s > AGE_BOUND_S:
        return 'make the policy faster'
    return f'set safety.max_observation_age_s to {need_s:.2f}, or make the policy faster'


def _hopeless(measured: Measured, delay_rows: int, options: Sequence[Option]) -> list[str]:
    """Return why nothing that overlaps can work, and what would change that."""
    overlapping = [o for o in options if o.overrides.get('chunk.mode', '') != Mode.SYNC.value
                   and o.name != _BASE]
    if not overlapping or any(o.is_usable for o in overlapping):
        return []
    reasons = [why for option in overlapping for why in option.why_not]
    advice = ['make the policy faster']
    if any(why.startswith(RUNS_OUT) for why in reasons):
        advice.append('make its chunks longer')
    if any(why.startswith(TOO_OLD) for why in reasons):
        advice.append('raise safety.max_observation_age_s')
    kinds = [text for start, text in (
        (RUNS_OUT, f'chunks of {measured.rows} rows run out'),
        (TOO_OLD, 'observations get too old')) if any(why.startswith(start) for why in reasons)]
    why = ' and '.join(kinds) or 'its replays say so'
    return [f'nothing that overlaps can work: L is {delay_rows} rows, {why}; '
            f'{" or ".join(advice)}']
