"""Settings that may be advised, why some cannot work, and which of the others is best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reflex_ros.core.clock import MS
from reflex_ros.core.feasible import TOO_OLD, Choice, Timing, feasible_steps, problems
from reflex_ros.core.types import Mode, StateSource, Stitch
from reflex_ros.stages.build import bridge_config, execute_steps_from, switches_from

if TYPE_CHECKING:
    from reflex_ros.bringup.advise_figures import Outcome
    from reflex_ros.bringup.replay_input import Source
    from reflex_ros.core.param_table import Value

STALL_TIE = 0.001
"""Stall ratios closer than this are equal; then the faster reaction counts. Reactions less than a
row apart are equal, since commands come in rows; then the smoother commands count."""
JERK_TIE = 0.1
"""Share by which another setting's commands must be smoother to be worth a change."""
MOST_STALLS = 0.5
"""A setting that overlaps and yet stands still for longer than this does not work."""
MOST_LIMITED = 0.2
"""Share of ticks that a limit may change before commands count as rough; ``seam_deg`` of the
shipped budgets bounds the seam."""
REFUTED = 0.02
"""Fewer stalls than this in a replay refute the rules, which go by the slowest 5 %: it is what the
shipped budgets allow."""
SMOOTH_COST = 0.02
"""So many more stalls a smooth setting may have than the best one; then stalls count more."""
ROUGHER = 2.0
"""A faster reaction is not bought with so many times the jerk of the recorded settings."""
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

    def timing(self, params: Mapping[str, Value], *, more_ms: float = 0.0) -> Timing:
        """Return what settings must bear: the 95 % quantiles, what they add, and their bounds.

        Args:
            params: The settings. ``more_ms``: what they add to an inference.
        """
        latency, delta = (round((t['p95'] + more_ms) * MS) for t in
                          (self.latency_ms, self.delta_ms))
        bridge = replace(bridge_config(params, policy=str(params['policy.name'])),
                         execute_steps=steps_of(params), step_period_ns=self.step_ns)
        return Timing(latency, delta, self.step_ns, bridge.age_limit_ns(latency),
                      switches_from(params).state_source is StateSource.MEASURED)


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
        """Whether it was replayed, moved the arm, and nothing forbids it."""
        found = self.outcome
        return found is not None and not self.why_not and found.chunks > 0

    @property
    def score(self) -> tuple[float, float, float]:
        """Return stalls, reaction (ms) and jerk (rad/s³)."""
        assert self.outcome is not None
        return self.outcome.score


def options_of(source: Source, measured: Measured) -> list[Option]:
    """Return alternatives to the recorded settings, each with why it cannot work."""
    found = [
        option_of(source, measured, mode, stitch)
        for mode, stitch in ((Mode.REFLEX, Stitch.BLEND), (Mode.REFLEX, Stitch.RTC),
                             (Mode.REFLEX, Stitch.REPLACE), (Mode.ASYNC_NAIVE, Stitch.REPLACE),
                             (Mode.SYNC, Stitch.REPLACE))]
    quickest = max(1, -(-round(measured.latency_ms['p95'] * MS) // measured.step_ns))
    fast = option_of(source, measured, Mode.REFLEX, Stitch.BLEND, steps=quickest)
    is_new = not fast.why_not and fast.name not in {option.name for option in found}
    return [*found, fast] if is_new else found


def option_of(source: Source, measured: Measured, mode: Mode, stitch: Stitch, *,
              steps: int | None = None) -> Option:
    """Return an option; where its rows cannot work but others can, with those."""
    chosen: dict[str, Value] = {'chunk.mode': mode.value, 'chunk.stitch': stitch.value}
    if steps is not None:
        chosen['chunk.execute_steps'] = steps
    params = {**source.values, **chosen}
    more_ms = measured.guidance_ms if stitch is Stitch.RTC else 0.0
    why_not = forbidden(params, measured, more_ms=more_ms)
    timing = measured.timing(params, more_ms=more_ms)
    choice = Choice(measured.rows, steps_of(params), stitch)
    possible = feasible_steps(choice, timing) if why_not and mode is not Mode.SYNC else ()
    if possible:
        rows = min(possible, key=lambda rows: (rows < timing.delay_rows, rows))
        choice, why_not = replace(choice, execute_steps=rows), ()
        chosen['chunk.execute_steps'] = rows
    return Option(f'{mode.value}, {stitch.value}, {choice.execute_steps} rows', chosen, why_not,
                  more_ms)


def forbidden(params: Mapping[str, Value], measured: Measured, *,
              more_ms: float = 0.0) -> tuple[str, ...]:
    """Return why settings cannot work with the measured delays, each with its numbers."""
    switches, timing = switches_from(params), measured.timing(params, more_ms=more_ms)
    choice = Choice(measured.rows, steps_of(params), switches.stitch)
    if switches.request == 'settled':
        return _sync_problems(choice, timing)
    why_not = problems(choice, timing)
    if not why_not:
        return ()
    return (f'L {timing.latency_ns / MS:.0f} ms = {timing.delay_rows} rows', *why_not)


def _sync_problems(choice: Choice, timing: Timing) -> tuple[str, ...]:
    """Return why a chunk cannot be executed while nothing else is made."""
    if choice.execute_steps > choice.horizon:
        return (f'executes {choice.execute_steps} of {choice.horizon} rows',)
    age_ns = timing.delta_ns + choice.execute_steps * timing.step_ns
    if age_ns > timing.max_age_ns:
        return (f'{TOO_OLD}: {age_ns / MS:.0f} of {timing.max_age_ns / MS:.0f} ms',)
    return ()


def tried(option: Option, params: Mapping[str, Value]) -> Option:
    """Return a replayed option with what the replay says against it.

    Where the rules forbid settings that hardly stalled, the replay is right: delays are not all
    as long as the ones that 95 % of them keep to.

    Args:
        option: The option. ``params``: the settings that it was replayed with.
    """
    found = option.outcome
    if found is None:
        return option
    if not found.chunks:
        return replace(option, why_not=(*option.why_not, 'no chunk was executed'))
    is_sync = params['chunk.mode'] == Mode.SYNC.value
    if option.why_not and found.stall_ratio <= REFUTED and not is_sync:
        return replace(option, why_not=())
    if not is_sync and not found.stall_ratio <= MOST_STALLS:
        why = f'stalls for {found.stall_ratio:.0%} of the time'
        return replace(option, why_not=(*option.why_not, why))
    if found.rejected > found.chunks:
        why = f'{found.rejected} of {found.rejected + found.chunks} chunks were rejected'
        return replace(option, why_not=(*option.why_not, why))
    return option


def choose(base: Option, usable: Sequence[Option], *, row_ms: float,
           seam_deg: float) -> Option | None:
    """Return the best of options: stalls first, then reaction, then jerk; the base in a tie.

    Rough ones are no choice while a smooth one stalls hardly more.

    Args:
        base: The recorded settings. ``usable``: what may be advised, the base too if it works.
        row_ms: Time between rows. ``seam_deg``: largest seam that is not rough.

    Returns:
        One of them, None if there is none.
    """
    smooth = [option for option in usable if not is_rough(option, base, seam_deg=seam_deg)]
    if not usable:
        return None
    least = min(option.score[0] for option in usable)
    if any(option.score[0] <= least + SMOOTH_COST for option in smooth):
        usable = smooth
    for figure, tie in ((0, STALL_TIE), (1, row_ms)):
        least = min(option.score[figure] for option in usable)
        usable = [option for option in usable if option.score[figure] <= least + tie]
        if any(option is base for option in usable):  # a faster reaction is not bought with jerk
            usable = [o for o in usable if o is base or o.score[2] <= ROUGHER * base.score[2]]
    best = min(usable, key=lambda option: option.score[2])
    is_tied = any(option is base for option in usable) and (
        best.score[2] >= (1 - JERK_TIE) * base.score[2])
    return base if is_tied else best


def is_rough(option: Option, base: Option, *, seam_deg: float) -> bool:
    """Return whether commands are rough, and rougher than the recorded settings make them."""
    found, known = option.outcome, base.outcome
    if found is None or known is None or option is base:
        return False
    bounds = ((found.smooth.limited_share, max(MOST_LIMITED, known.smooth.limited_share)),
              (found.seam_deg, max(seam_deg, known.seam_deg)))
    return any(value > bound for value, bound in bounds)


def steps_of(params: Mapping[str, Value]) -> int:
    """Return the rows that are meant to be executed of a chunk."""
    return execute_steps_from(params, str(params['policy.name']))
