"""When an inference starts and which instants its chunk belongs to. Pure functions of facts.

All times are ROS time (stamps), because plan and blocks carry stamps.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as with_fields
from typing import Literal

from reflex_ros.core.errors import ConfigError
from reflex_ros.core.types import Entry, Mode, Plan, StateSource, Stitch

Request = Literal['continuous', 'threshold', 'overlap', 'settled']
RowZero = Literal['observation', 'first_execution']

AT_ONCE = 0
"""Stamp that lies before every other: due now."""


@dataclass(frozen=True, slots=True)
class Switches:
    """The separate switches that an execution mode is made of.

    Attributes:
        entry: Row of a new chunk that is executed first.
        state_source: State that conditions an inference.
        stitch: How a new chunk joins the running one.
        overlap: Whether an inference is started early by its own delay, so that it ends when the
            running chunk has done its steps; without it the delay comes on top.
        wait_settled: Whether a ``settled`` request waits until the joints rest.
        request: What starts an inference. ``settled``: the bridge holds. ``continuous``: every
            unused block. ``threshold``: the plan is nearly empty. ``overlap``: enough steps of
            the active chunk were executed.
    """

    entry: Entry
    state_source: StateSource
    stitch: Stitch
    overlap: bool
    wait_settled: bool
    request: Request


_SYNC = Switches(Entry.RESTART, StateSource.MEASURED, Stitch.REPLACE, False, True, 'settled')
_NAIVE = Switches(Entry.RESTART, StateSource.MEASURED, Stitch.REPLACE, False, False, 'continuous')
_REFLEX = Switches(Entry.ALIGNED, StateSource.PREDICTED, Stitch.BLEND, True, False, 'overlap')


def switches(
    mode: Mode,
    *,
    entry: Entry | None = None,
    state_source: StateSource | None = None,
    stitch: Stitch | None = None,
    overlap: bool | None = None,
    request: Request | None = None,
) -> Switches:
    """Return the switches of a mode, with those given by the caller put in place.

    Raises:
        ConfigError: The combination is not one that the mode allows: ``sync`` always waits for
            the hold, and only ``sync`` does.
    """
    preset = {Mode.SYNC: _SYNC, Mode.ASYNC_NAIVE: _NAIVE, Mode.REFLEX: _REFLEX}[mode]
    chosen = with_fields(
        preset,
        entry=entry or preset.entry,
        state_source=state_source or preset.state_source,
        stitch=stitch or preset.stitch,
        overlap=preset.overlap if overlap is None else overlap,
        request=request or preset.request,
    )
    if (chosen.request == 'settled') != (mode is Mode.SYNC):
        raise ConfigError(
            f'mode {mode.value} request: got {chosen.request!r}, expected '
            f'{"settled" if mode is Mode.SYNC else "continuous, threshold or overlap"!r}. '
            'Choose another mode or leave the request rule out.'
        )
    if chosen.state_source is StateSource.NONE:
        raise ConfigError(
            f"mode {mode.value} state_source: got 'none', expected 'measured' or 'predicted'. "
            'Leave it out to use the preset.'
        )
    return chosen


def inference_due_at(
    plan: Plan | None,
    *,
    switches: Switches,
    execute_steps: int,
    period_ns: int,
    margin_steps: int,
    newest_oldest_stamp_ns: int,
    last_block_used: int,
    block_number: int,
    inflight: bool,
) -> int | None:
    """Return the stamp at which an inference becomes due by time alone.

    Args:
        plan: Newest plan, None before the first one.
        switches: Switches of the mode.
        execute_steps: Steps of a chunk that are meant to be executed.
        period_ns: Time between steps.
        margin_steps: ``overlap``: steps to start earlier than L asks for. ``threshold``: steps
            left in the plan at which a request is made.
        newest_oldest_stamp_ns: Oldest frame of the newest block.
        last_block_used: Number of the block of the last inference, 0 before the first.
        block_number: Number of the newest block, 0 if there is none.
        inflight: Whether an inference runs, or its chunk is not yet reflected in ``plan``
            (neither active nor rejected).

    Returns:
        ``AT_ONCE`` if it is due already, a stamp, or None while something other than time is
        missing: an unused block, the end of the running inference, the hold.
    """
    if inflight or block_number <= last_block_used:
        return None
    if switches.request == 'settled':
        is_ready = plan is not None and _is_at_rest(plan, switches, newest_oldest_stamp_ns)
        return AT_ONCE if is_ready else None
    if switches.request == 'continuous' or plan is None or not _is_executing(plan):
        return AT_ONCE
    if switches.request == 'threshold':
        return max(AT_ONCE, plan.plan_end_ns - margin_steps * period_ns)
    lead_steps = -(-plan.latency_ns // period_ns) + margin_steps if switches.overlap else 0
    steps = max(0, execute_steps - lead_steps)
    return plan.active_since_ns + steps * period_ns


def inference_due(
    plan: Plan | None,
    now_stamp_ns: int,
    *,
    switches: Switches,
    execute_steps: int,
    period_ns: int,
    margin_steps: int,
    newest_oldest_stamp_ns: int,
    last_block_used: int,
    block_number: int,
    inflight: bool,
) -> bool:
    """Return whether an inference should start now; arguments as ``inference_due_at``."""
    due_at = inference_due_at(
        plan,
        switches=switches,
        execute_steps=execute_steps,
        period_ns=period_ns,
        margin_steps=margin_steps,
        newest_oldest_stamp_ns=newest_oldest_stamp_ns,
        last_block_used=last_block_used,
        block_number=block_number,
        inflight=inflight,
    )
    return due_at is not None and now_stamp_ns >= due_at


def _is_executing(plan: Plan) -> bool:
    """Return whether a chunk has given its first command and has not run out."""
    return plan.active_chunk_id != 0 and plan.active_since_ns > 0 and plan.hold_since_ns == 0


def _is_at_rest(plan: Plan, switches: Switches, oldest_stamp_ns: int) -> bool:
    """Return whether the bridge holds, the joints rest and every frame was taken since."""
    if plan.hold_since_ns == 0 or oldest_stamp_ns <= plan.hold_since_ns:
        return False
    return plan.settled_since_ns > 0 or not switches.wait_settled


def step0_and_state_at(
    state_source: StateSource,
    *,
    observation_stamp_ns: int,
    first_execution_stamp_ns: int,
    pair: RowZero | None = None,
) -> tuple[int, int]:
    """Return the instants of row 0 and of the state, ``(step0_at, state_at)``.

    A measured state belongs to the observation, a predicted one to the expected first execution;
    row 0 belongs to the same instant as the state. A mixed pair counts the delay twice (predicted
    state, row 0 at the observation) or not at all (measured state, row 0 at the first execution);
    they exist to be measured.

    Args:
        state_source: State that conditions the inference.
        observation_stamp_ns: Stamp of the observation.
        first_execution_stamp_ns: Expected instant of the chunk's first command.
        pair: Instant forced on row 0 whatever the state is; None for the consistent pair.
    """
    is_predicted = state_source is StateSource.PREDICTED
    state_at = first_execution_stamp_ns if is_predicted else observation_stamp_ns
    if pair is None:
        return state_at, state_at
    return (observation_stamp_ns if pair == 'observation' else first_execution_stamp_ns), state_at
