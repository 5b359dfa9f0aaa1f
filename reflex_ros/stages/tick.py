"""What one tick was: its facts, its record, and the plan that is published beside it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.core.cause import (
    CauseBounds,
    ChunkFacts,
    LinkFacts,
    NodeFacts,
    TickFacts,
    decide,
    is_in_motion,
    is_live,
)
from reflex_ros.core.clock import MS
from reflex_ros.core.interpolate import revolute
from reflex_ros.core.types import ArmState, Cause, ControlTick, Plan, Verdict

if TYPE_CHECKING:
    from reflex_ros.core.clock import ClockOffset, Instant
    from reflex_ros.core.ledger import LedgerWriter
    from reflex_ros.core.types import ArmFeedback, FloatArray
    from reflex_ros.stages.bridge_config import BridgeConfig
    from reflex_ros.stages.follower import Follower, Running

ENCODE_NS = 100 * MS
"""An encoder busy for longer is late."""

_EMPTY = np.empty(0)


@dataclass(frozen=True, slots=True)
class Motion:
    """What a tick did.

    Attributes:
        running: Active chunk, None if none. ``setpoint``: wanted, ``command``: after limits.
        limited: Joints whose command the limiter changed. ``is_sent``: handed to the bus.
    """

    running: Running | None = None
    setpoint: FloatArray = field(default_factory=lambda: _EMPTY)
    command: FloatArray = field(default_factory=lambda: _EMPTY)
    limited: tuple[str, ...] = ()
    is_sent: bool = False


@dataclass(frozen=True, slots=True)
class Situation:
    """The bridge at a tick; durations in ns."""

    joint_names: tuple[str, ...]
    arm_state: ArmState
    epoch: int
    faults: tuple[str, ...]
    is_clock_trusted: bool
    latency_ns: int
    delta_ns: int
    max_age_ns: int
    encoder: NodeFacts | None
    policy: NodeFacts | None
    link: LinkFacts | None = None


@dataclass(frozen=True, slots=True)
class Rest:
    """Since when the arm holds and is settled, steady, 0 = it does not.

    ROS time may step while the arm rests; a stamp taken before would lie in the future for ever.
    """

    hold_since_ns: int = 0
    settled_since_ns: int = 0


class TickBook:
    """Remembers what decides a tick, makes its record and writes the ledger.

    Args:
        config: Settings of the bridge.
        ledger: Where every record goes, None for none.
    """

    def __init__(self, config: BridgeConfig, ledger: LedgerWriter | None) -> None:
        self._config = config
        self._ledger = ledger
        self._bounds = config.bounds
        self._number = 0
        self._is_shadow = False
        self.period_ns = config.period_ns
        self._asked: tuple[object, object] = (None, None)
        self._error = 0.0
        self.restart(None, is_shadow=False)

    # ---- events ------------------------------------------------------------------------------

    def restart(self, command: FloatArray | None, *, is_shadow: bool) -> None:
        """Begin a run: forget what happened before, but not the message counter.

        Args:
            command: Pose that the arm was told to hold, None if none.
            is_shadow: Whether nothing is sent: an arm that gets no commands follows none.
        """
        self._next_index = 0 if self._ledger is None else self._ledger.next_index
        self._has_tracked = self._is_operator_hold = self._is_stopped = False
        self._has_contact = False
        self._resumed_ns = self._instruction_ns = 0
        self._last_chunk_ns = self._last_accept_ns = self._last_reject_ns = 0
        self._last_command = command
        self._is_shadow = is_shadow
        self._arm_state = ArmState.ENABLED
        self._held_for = Cause.NONE
        self.last_reject = ''
        self.rest = Rest()

    def commanded(self, command: FloatArray) -> None:
        """Note a pose that the arm was told to hold outside a tick."""
        self._last_command = command

    def operator_hold(self, is_held: bool, now_ns: int) -> None:
        """Note that the operator holds or resumes."""
        self._is_operator_hold = is_held
        self._resumed_ns = 0 if is_held else now_ns

    def new_instruction(self, now_ns: int) -> None:
        """Note a new epoch."""
        self._instruction_ns = now_ns

    def contact(self, has_contact: bool) -> None:
        """Note that the arm gave way to something, or that the operator resumed since."""
        self._has_contact = has_contact

    def stop(self) -> None:
        """Note the stop request; from here on nothing counts as motion."""
        self._is_stopped = True
        self._is_operator_hold = True

    def hold_since(self, now: Instant | None) -> None:
        """Note that the bridge began to hold, or with None that it moves again."""
        self.rest = Rest() if now is None else Rest(now.mono_ns, 0)

    def settled(self, now: Instant, is_settled: bool) -> None:
        """Note whether the joints rest while the bridge holds."""
        since = self.rest.settled_since_ns
        if not self.rest.hold_since_ns or not is_settled:
            self.rest = replace(self.rest, settled_since_ns=0) if since else self.rest
        elif not since:
            self.rest = replace(self.rest, settled_since_ns=now.mono_ns)

    def seen_chunk(self, now_ns: int) -> None:
        """Note the receipt of a chunk, whatever becomes of it."""
        self._last_chunk_ns = now_ns

    def accepted(self, now_ns: int) -> None:
        """Note an accepted chunk."""
        self._last_accept_ns = now_ns

    def rejected(self, now_ns: int, text: str) -> None:
        """Note a rejected chunk and why."""
        self._last_reject_ns = now_ns
        self.last_reject = text

    def executed(self) -> None:
        """Note a tick that executed a chunk: it answers a resume or a new instruction."""
        self._has_tracked = True
        self._resumed_ns = self._instruction_ns = 0

    def use_ledger(self, ledger: LedgerWriter) -> None:
        """Write records to ``ledger`` from its next index on."""
        self._ledger = ledger
        self._next_index = ledger.next_index

    # ---- records -----------------------------------------------------------------------------

    def error_of(self, reading: ArmFeedback) -> float:
        """Return the largest joint error between the last command and the measured state, rad.

        0 in shadow mode.
        """
        if self._last_command is None or self._is_shadow:
            return 0.0
        asked = (self._last_command, reading)
        if any(one is not known for one, known in zip(asked, self._asked, strict=True)):
            error = np.abs(self._last_command - reading.position)
            self._asked, self._error = asked, float(error[revolute(len(error))].max())
        return self._error

    def followed(self) -> FloatArray | None:
        """Return the command that the arm should follow, None without one and in shadow mode."""
        return None if self._is_shadow else self._last_command

    def joint_errors(self, held: FloatArray | None, reading: ArmFeedback) -> FloatArray:
        """Return ``float64[J]`` command minus measured; nan without a command, 0 in shadow."""
        if held is None:
            return np.full(len(reading.position), np.nan)
        if self._is_shadow:
            return np.zeros(len(reading.position))
        return np.asarray(held - reading.position)

    def record(self, at: Situation, motion: Motion, reading: ArmFeedback, *, now: Instant,
               due_ns: int, index: int) -> tuple[ControlTick, ...]:
        """Return the record of this tick, preceded by one for each skipped instant.

        Nothing was executed at a skipped instant, so no chunk covers it, as in a late tick.
        """
        period_ns = self._config.period_ns
        # a ramp that begins after a pause had not begun in it
        was_tracking = self._arm_state is ArmState.TRACKING and at.arm_state is ArmState.RAMP_IN
        before = replace(at, arm_state=self._arm_state) if was_tracking else at
        skipped = [
            self._one(before, Motion(), reading, now=now, index=i,
                      due_ns=due_ns - (index - i) * period_ns)
            for i in range(self._next_index, index)
        ]
        tick = self._one(at, motion, reading, now=now, due_ns=due_ns, index=index)
        if len(motion.command):
            self._last_command = motion.command
        self._next_index = index + 1
        self._arm_state = at.arm_state
        return (*skipped, tick)

    def close(self) -> None:
        """Close the ledger."""
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None

    def _one(self, at: Situation, motion: Motion, reading: ArmFeedback, *, now: Instant,
             due_ns: int, index: int) -> ControlTick:
        error = self.error_of(reading)
        late_ns = now.mono_ns - due_ns
        facts = self._facts(at, motion, reading, error, due_ns=due_ns, late_ns=late_ns)
        verdict, cause = decide(facts)
        self._note_hold(verdict, cause)
        running = motion.running
        self._number += 1
        tick = ControlTick(
            number=self._number,
            stamp_ns=now.stamp_ns - late_ns,
            index=index, due_ns=due_ns, late_ns=late_ns,
            verdict=verdict, cause=cause, arm_state=at.arm_state, epoch=at.epoch,
            chunk_id=running.chunk.chunk_id if running else 0,
            row=running.row(due_ns) if running else -1.0,
            is_sent=motion.is_sent,
            in_motion=is_in_motion(at.arm_state, cause) and not self._is_stopped,
            is_covered=is_live(facts),
            observation_age_ns=due_ns - running.observation_ns if running else -1,
            tracking_error=error,
            setpoint=motion.setpoint, command=motion.command, measured=reading.position,
        )
        if self._ledger is not None:
            self._ledger.append(tick)
        return tick

    def _note_hold(self, verdict: Verdict, cause: Cause) -> None:
        """Remember why the arm is held; a late tick begins no hold and ends none."""
        if verdict not in (Verdict.HELD, Verdict.STOPPED):
            self._held_for = Cause.NONE
        elif cause is not Cause.TICK_LATE:
            self._held_for = cause

    def _facts(self, at: Situation, motion: Motion, reading: ArmFeedback, error: float, *,
               due_ns: int, late_ns: int) -> TickFacts:
        running = motion.running
        chunk = None
        if running is not None:
            chunk = ChunkFacts(
                running.chunk.epoch, running.row(due_ns), len(running.chunk.positions),
                due_ns - running.observation_ns,
            )
        return TickFacts(
            now_ns=due_ns, arm_state=at.arm_state, late_ns=late_ns, epoch=at.epoch, chunk=chunk,
            has_tracked=self._has_tracked, limited=motion.limited, faults=at.faults,
            feedback_ns=reading.mono_ns, tracking_error_rad=error,
            has_contact=self._has_contact,
            is_operator_hold=self._is_operator_hold, resumed_ns=self._resumed_ns,
            instruction_ns=self._instruction_ns, is_clock_distrusted=not at.is_clock_trusted,
            mode=self._config.mode, hold_ns=self.rest.hold_since_ns, held_for=self._held_for,
            latency_ns=at.latency_ns, delta_ns=at.delta_ns, encode_ns=ENCODE_NS,
            last_chunk_ns=self._last_chunk_ns, last_accept_ns=self._last_accept_ns,
            last_reject_ns=self._last_reject_ns, encoder=at.encoder, policy=at.policy,
            link=at.link, bounds=self._bounds_of(at.max_age_ns),
        )

    def _bounds_of(self, max_age_ns: int) -> CauseBounds:
        """Return the bounds with an age; it changes no more often than chunks come."""
        if self._bounds.max_age_ns != max_age_ns:
            self._bounds = replace(self._bounds, max_age_ns=max_age_ns)
        return self._bounds


def plan_of(at: Situation, book: TickBook, follower: Follower, reading: ArmFeedback, *,
            held: FloatArray | None, offset: ClockOffset, number: int, now: Instant,
            due_ns: int) -> Plan:
    """Return the plan message: active chunk, rests, delays and the setpoints still to come."""
    active = follower.active
    times, rows = follower.remaining(due_ns, period_ns=book.period_ns)
    if at.arm_state is not ArmState.TRACKING or not len(times):
        pose = reading.position if held is None else held
        times, rows = np.array([due_ns], np.int64), pose[None, :].copy()
    return Plan(
        number=number, stamp_ns=now.stamp_ns, epoch=at.epoch, arm_state=at.arm_state,
        joint_names=at.joint_names,
        active_chunk_id=active.chunk.chunk_id if active else 0,
        active_since_ns=_stamp(offset, active.first_command_ns) if active else 0,
        entered_row=active.entered_row if active else -1,
        plan_end_ns=offset.to_stamp(active.end_ns) if active else 0,
        hold_since_ns=_stamp(offset, book.rest.hold_since_ns),
        settled_since_ns=_stamp(offset, book.rest.settled_since_ns),
        last_reject=book.last_reject, latency_ns=at.latency_ns, delta_ns=at.delta_ns,
        measured_stamp_ns=offset.to_stamp(reading.mono_ns), measured=reading.position,
        tracking_error=book.joint_errors(held, reading),
        setpoint_stamps_ns=times + offset.offset_ns, setpoints=rows,
    )


def _stamp(offset: ClockOffset, mono_ns: int) -> int:
    """Return the ROS time of an instant; 0 stays "never"."""
    return offset.to_stamp(mono_ns) if mono_ns else 0
