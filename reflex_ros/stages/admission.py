"""Which chunks may be executed, decided from the chunk and the bridge's state alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.core.types import ArmState, RejectReason

if TYPE_CHECKING:
    from reflex_ros.core.types import ActionChunk

ACCEPTING = (ArmState.ENABLED, ArmState.RAMP_IN, ArmState.TRACKING, ArmState.HOLDING)
MAX_HORIZON = 1000
MAX_FUTURE_NS = 1_000_000_000
"""A chunk that begins later than this belongs to another clock."""
MAX_AHEAD_NS = 100_000_000
"""A frame stamped later than this would never grow old: its camera has another clock."""
MIN_STEP_NS, MAX_STEP_NS = 1_000_000, 1_000_000_000
"""A plan is published row by row: rows that are denser would fill the memory."""
MAX_ID_JUMP = 2**32
"""No restarted policy skips so many ids or begins so high; a damaged one would leave none for the
next chunk."""
MAX_POSITION = 6.3
"""No joint turns further (rad) and no gripper opens further (m)."""


@dataclass(frozen=True, slots=True)
class Admission:
    """The bridge's state at the arrival of a chunk; times steady, ns.

    Attributes:
        joint_names: Names of the arm, in order.
        epoch: Current epoch.
        arm_state: State of the arm. ``is_armed``: whether motion was asked for.
        is_clock_trusted: False after an offset jump until three chunks agree.
        next_due_ns: First tick that could execute the chunk.
        step0_ns: Row 0 of the chunk. ``observation_ns``: its oldest frame.
        max_age_ns: Age limit of an observation.
        last_chunk_id: Id that it must exceed, 0 if any will do.
    """

    joint_names: tuple[str, ...]
    epoch: int
    arm_state: ArmState
    is_armed: bool
    is_clock_trusted: bool
    next_due_ns: int
    step0_ns: int
    observation_ns: int
    max_age_ns: int
    last_chunk_id: int


def judge(chunk: ActionChunk, at: Admission) -> tuple[RejectReason, str]:
    """Return ``(NONE, '')`` or the first reason against the chunk, with what to do.

    Args:
        chunk: The chunk as received.
        at: The bridge's state at its arrival.
    """
    return (
        _shape(chunk, at)
        or _content(chunk, at)
        or _authority(chunk, at)
        or _time(chunk, at)
        or (RejectReason.NONE, '')
    )


def _shape(chunk: ActionChunk, at: Admission) -> tuple[RejectReason, str] | None:
    if chunk.joint_names != at.joint_names:
        return RejectReason.JOINT_NAMES, (
            f'Joint names of chunk {chunk.chunk_id}: got '
            f'{str(list(chunk.joint_names)):.200}, expected '
            f'{list(at.joint_names)} in this order. Bind the policy by name.'
        )
    rows = chunk.positions.shape
    if len(rows) != 2 or rows[1] != len(at.joint_names) or not 1 <= rows[0] <= MAX_HORIZON:
        return RejectReason.MALFORMED, (
            f'Positions of chunk {chunk.chunk_id}: got shape {rows}, expected '
            f'(1..{MAX_HORIZON}, {len(at.joint_names)}) (rows, joints).'
        )
    if not MIN_STEP_NS <= chunk.step_period_ns <= MAX_STEP_NS:
        return RejectReason.MALFORMED, (
            f'Step period of chunk {chunk.chunk_id}: got {chunk.step_period_ns} ns, expected '
            f'{MIN_STEP_NS} to {MAX_STEP_NS} (ns). Correct the policy.'
        )
    return _identity(chunk, at)


def _identity(chunk: ActionChunk, at: Admission) -> tuple[RejectReason, str] | None:
    """Refuse an id that was used before, or one that no policy of this run can have reached."""
    if chunk.chunk_id <= at.last_chunk_id:
        return RejectReason.MALFORMED, (
            f'Chunk id: got {chunk.chunk_id}, expected > {at.last_chunk_id}. '
            'Two policies publish, or a message was repeated.'
        )
    if chunk.chunk_id - at.last_chunk_id > MAX_ID_JUMP:
        return RejectReason.MALFORMED, (
            f'Chunk id: got {chunk.chunk_id}, expected at most {at.last_chunk_id + MAX_ID_JUMP}. '
            'Two policies publish, or a message was damaged.'
        )
    return None


def _content(chunk: ActionChunk, at: Admission) -> tuple[RejectReason, str] | None:
    bad = ~np.isfinite(chunk.positions)
    if bad.any():
        row, joint = (int(i) for i in np.argwhere(bad)[0])
        return RejectReason.NOT_FINITE, (
            f'Chunk {chunk.chunk_id}, row {row}, {at.joint_names[joint]}: got '
            f'{chunk.positions[row, joint]}, expected a finite number (rad, m).'
        )
    far = np.abs(chunk.positions) > MAX_POSITION
    if far.any():
        row, joint = (int(i) for i in np.argwhere(far)[0])
        return RejectReason.MALFORMED, (
            f'Chunk {chunk.chunk_id}, row {row}, {at.joint_names[joint]}: got '
            f'{chunk.positions[row, joint]:.4g}, expected at most {MAX_POSITION} either way '
            '(rad, m). Check the units and the normalisation of the policy.'
        )
    return None


def _authority(chunk: ActionChunk, at: Admission) -> tuple[RejectReason, str] | None:
    if chunk.epoch != at.epoch:
        return RejectReason.EPOCH, (
            f'Epoch of chunk {chunk.chunk_id}: got {chunk.epoch}, expected {at.epoch}.'
        )
    if at.arm_state not in ACCEPTING or not at.is_armed:
        return RejectReason.ARM_STATE, (
            f'Chunk {chunk.chunk_id}: arm is {at.arm_state.value}'
            f'{"" if at.is_armed else ", held by the operator"}. Resume it first.'
        )
    if not at.is_clock_trusted:
        return RejectReason.CLOCK, (
            f'Chunk {chunk.chunk_id}: the offset between ROS time and the steady clock jumped; '
            'refused until three chunks agree on the new one.'
        )
    return None


def _time(chunk: ActionChunk, at: Admission) -> tuple[RejectReason, str] | None:
    last_row_ns = at.step0_ns + (len(chunk.positions) - 1) * chunk.step_period_ns
    if last_row_ns + chunk.step_period_ns <= at.next_due_ns:
        late_ms = (at.next_due_ns - last_row_ns) / 1e6
        return RejectReason.ALL_ROWS_PAST, (
            f'Chunk {chunk.chunk_id}: its last row was due {late_ms:.0f} ms before the next tick. '
            'Inference takes longer than the chunk lasts.'
        )
    most_ns = max(MAX_FUTURE_NS, at.max_age_ns)
    if at.step0_ns - at.next_due_ns > most_ns:
        ahead_s = (at.step0_ns - at.next_due_ns) / 1e9
        return RejectReason.CLOCK, (
            f'Chunk {chunk.chunk_id}: row 0 lies {ahead_s:.1f} s ahead, expected at most '
            f'{most_ns / 1e9:g} s. Synchronise the clocks of both machines.'
        )
    age_ns = at.next_due_ns - at.observation_ns
    if age_ns < -MAX_AHEAD_NS:
        return RejectReason.CLOCK, (
            f'Observation of chunk {chunk.chunk_id}: got {-age_ns / 1e6:.0f} ms in the future, '
            f'expected at most {MAX_AHEAD_NS / 1e6:.0f} ms. Synchronise the clock of the camera.'
        )
    if age_ns > at.max_age_ns:
        return RejectReason.STALE, (
            f'Observation of chunk {chunk.chunk_id}: got age {age_ns / 1e6:.0f} ms, expected at '
            f'most {at.max_age_ns / 1e6:.0f} ms.'
        )
    return _frames(chunk, age_ns)


def _frames(chunk: ActionChunk, age_ns: int) -> tuple[RejectReason, str] | None:
    """Refuse frames out of order: both delays are measured from these stamps."""
    if not chunk.oldest_stamp_ns <= chunk.observation_stamp_ns <= chunk.newest_stamp_ns:
        return RejectReason.MALFORMED, (
            f'Frames of chunk {chunk.chunk_id}: got oldest {chunk.oldest_stamp_ns}, primary '
            f'{chunk.observation_stamp_ns}, newest {chunk.newest_stamp_ns}, expected this order '
            '(ROS time, ns). Correct the policy.'
        )
    ahead_ns = chunk.newest_stamp_ns - chunk.oldest_stamp_ns - age_ns
    if ahead_ns > MAX_AHEAD_NS:
        return RejectReason.CLOCK, (
            f'Newest frame of chunk {chunk.chunk_id}: got {ahead_ns / 1e6:.0f} ms in the future, '
            f'expected at most {MAX_AHEAD_NS / 1e6:.0f} ms. Synchronise the clock of the camera.'
        )
    return None
