"""Which delays, execution horizons and chunk lengths fit together, and which cannot.

Counted in rows of a chunk. A chunk is entered at the row that is due, runs for the rows that are
meant to be executed or, if the next inference takes longer, until that one ends, and must not run
out, grow too old or, with guided inpainting, leave nothing to steer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reflex_ros.core.clock import MS
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.types import Stitch

RUNS_OUT, TOO_OLD, RTC = 'runs out', 'too old', 'rtc'
"""How reasons against a choice begin."""


@dataclass(frozen=True, slots=True)
class Timing:
    """What was measured or is expected.

    Attributes:
        latency_ns: L, inference start to acceptance.
        delta_ns: Delta, observation to first command.
        step_ns: Time between rows.
        max_age_ns: Age of an observation at which its chunk is dead.
        is_row0_observed: Row 0 belongs to the observation (measured state); else to the first
            execution, and rows before it do not exist.
    """

    latency_ns: int
    delta_ns: int
    step_ns: int
    max_age_ns: int
    is_row0_observed: bool

    def __post_init__(self) -> None:
        """Refuse times that cannot be."""
        if self.step_ns <= 0 or min(self.latency_ns, self.delta_ns, self.max_age_ns) < 0:
            raise ConfigError(
                f'timing cannot be used: got latency {self.latency_ns}, delta {self.delta_ns}, '
                f'step {self.step_ns} and age {self.max_age_ns} (ns), expected a step > 0 and no '
                'negative time. Correct them.'
            )

    @property
    def delay_rows(self) -> int:
        """Rows executed while an inference runs."""
        return -(-self.latency_ns // self.step_ns)

    @property
    def entry_row(self) -> int:
        """Row of a new chunk that is due when it arrives."""
        return -(-self.delta_ns // self.step_ns) if self.is_row0_observed else 0


@dataclass(frozen=True, slots=True)
class Choice:
    """What is to be judged: rows of a chunk, rows meant to be executed, how chunks are joined."""

    horizon: int
    execute_steps: int
    stitch: Stitch = Stitch.BLEND


def problems(choice: Choice, timing: Timing) -> tuple[str, ...]:
    """Return why a choice cannot work, nothing if it can.

    Args:
        choice: Chunk, execution horizon and stitcher.
        timing: Delays and bounds.
    """
    rows, delay = choice.execute_steps, timing.delay_rows
    if not 1 <= rows <= choice.horizon:
        return (f'executes {rows} of {choice.horizon} rows',)
    used = max(rows, delay)
    last = timing.entry_row + used
    age_ns = timing.delta_ns + used * timing.step_ns
    found = []
    if last > choice.horizon:
        found.append(f'{RUNS_OUT}: row {last} of {choice.horizon} is needed')
    if age_ns > timing.max_age_ns:
        found.append(f'{TOO_OLD}: {age_ns / MS:.0f} of {timing.max_age_ns / MS:.0f} ms')
    if choice.stitch is Stitch.RTC:
        found += _rtc_problems(choice, delay)
    return tuple(found)


def _rtc_problems(choice: Choice, delay: int) -> list[str]:
    """Return what guided inpainting asks for beyond: ``d <= s <= H - d``."""
    found = []
    if choice.execute_steps < delay:
        found.append(f'{RTC} executes fewer rows than the {delay} of the delay')
    if choice.execute_steps > choice.horizon - delay:
        found.append(f'{RTC} leaves {choice.horizon - choice.execute_steps} rows for a delay of '
                     f'{delay}')
    return found


def require(choice: Choice, timing: Timing) -> None:
    """Refuse a choice that cannot work.

    Raises:
        ConfigError: Names every reason and the execution horizons that would do.
    """
    if found := problems(choice, timing):
        span = feasible_steps(choice, timing)
        instead = f'{span[0]} to {span[-1]}' if span else 'none at this delay and chunk'
        raise ConfigError(
            f'chunk.execute_steps cannot be used: got {choice.execute_steps} '
            f'({"; ".join(found)}), expected {instead}. Execute other rows, use a longer '
            'chunk or a faster policy.'
        )


def feasible_steps(choice: Choice, timing: Timing) -> range:
    """Return every execution horizon that would work with this chunk and stitcher."""
    delay, horizon = timing.delay_rows, choice.horizon
    by_age = (timing.max_age_ns - timing.delta_ns) // timing.step_ns
    first, last = 1, min(horizon, horizon - timing.entry_row, by_age)
    if choice.stitch is Stitch.RTC:
        first, last = max(first, delay), min(last, horizon - delay)
    is_late = timing.entry_row + delay > horizon or delay > by_age
    return range(first, first if is_late else max(first, last + 1))


@dataclass(frozen=True, slots=True)
class Region:
    """Feasible execution horizons by delay, for one chunk length.

    Attributes:
        horizon: Rows of the chunk.
        latencies_ns: One row each. spans: Smallest and largest feasible horizon, None = none.
    """

    horizon: int
    latencies_ns: tuple[int, ...]
    spans: tuple[tuple[int, int] | None, ...]


def region(
    horizon: int, timing: Timing, latencies_ns: Sequence[int], *, stitch: Stitch
) -> Region:
    """Return what is feasible as the delay grows; what Delta has beyond L stays as it is.

    Args:
        horizon: Rows of a chunk.
        timing: Measured delays.
        latencies_ns: Delays L to judge.
        stitch: How chunks are joined.
    """
    beyond = timing.delta_ns - timing.latency_ns
    spans: list[tuple[int, int] | None] = []
    for latency in latencies_ns:
        moved = Timing(latency, max(0, latency + beyond), timing.step_ns, timing.max_age_ns,
                       timing.is_row0_observed)
        steps = feasible_steps(Choice(horizon, 1, stitch), moved)
        spans.append((steps[0], steps[-1]) if steps else None)
    return Region(horizon, tuple(latencies_ns), tuple(spans))
