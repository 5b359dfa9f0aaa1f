"""The bridge: every 50 Hz tick one command, one verdict and one cause.

It owns the epoch and the plan, judges chunks, keeps the arm within its limits and holds it when
nothing live covers a tick. It never catches up: a late tick sends nothing new.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.arm.states import ArmEvent, StateMachine, may_send
from reflex_ros.core.cause import is_camera_frozen
from reflex_ros.core.clock import MS, S
from reflex_ros.core.delay import DelayEstimator
from reflex_ros.core.errors import ReflexError
from reflex_ros.core.interpolate import revolute
from reflex_ros.core.types import ArmState, Entry, RejectReason, Reply, Task
from reflex_ros.stages.accounts import StallBook, TraceBook
from reflex_ros.stages.admission import Admission, judge
from reflex_ros.stages.base import ENCODER, POLICY, Output
from reflex_ros.stages.contact import ContactWatch
from reflex_ros.stages.follower import Running, make_running
from reflex_ros.stages.health import ClockWatch, NodeWatch
from reflex_ros.stages.mover import Mover
from reflex_ros.stages.seam import judge_seam
from reflex_ros.stages.tick import Motion, Rest, Situation, TickBook, plan_of

if TYPE_CHECKING:
    from reflex_ros.arm.protocol import Arm, ArmReport
    from reflex_ros.core.clock import Clock, Instant
    from reflex_ros.core.ledger import LedgerWriter
    from reflex_ros.core.types import ActionChunk, ArmFeedback, StageStatus
    from reflex_ros.stages.bridge_config import BridgeConfig


MAX_INSTRUCTION = 1000
"""Characters; no policy takes more, and every message of the epoch carries it."""
RESTING_RAD_S = 1.0
"""An arm that is slower rests, as far as its pose may become the command."""
LONGEST_NS = 20 * MS
"""Two readings further apart are compared as if they were so far apart."""
_MOVING = (ArmState.RAMP_IN, ArmState.TRACKING)


class Bridge:
    """Control stage over one arm. Not thread-safe: a wiring serialises all calls but ``recover``.

    Args:
        arm: A connected, checked and enabled arm, or one that ``start`` brings there.
        config: Settings.
        clock: Both times.
        ledger: Where every tick is written, None for none.
    """

    def __init__(self, arm: Arm, config: BridgeConfig, clock: Clock,
                 ledger: LedgerWriter | None = None) -> None:
        now = clock.now()
        self._arm = arm
        self._config = config
        self._clock = clock
        self.states = StateMachine(clock)
        self._mover = Mover(arm, config, self.states)
        self.follower = self._mover.follower
        self.nodes = NodeWatch()
        self.clocks = ClockWatch(now, uses_sim_time=config.uses_sim_time)
        self.latency = _estimator(config, config.initial_latency_ns)
        self.delta = _estimator(config, config.initial_delta_ns)
        self._traces = TraceBook()
        self._stalls = StallBook(period_ns=config.period_ns)
        self._ticks = TickBook(config, ledger)
        self._contacts = ContactWatch(config.contact, arm.names)
        self._joints = revolute(len(arm.names))
        self.reading: ArmFeedback | None = None
        """What the arm said at the newest tick, None before the first."""
        self.report: ArmReport | None = None
        """What the newest check of the arm found, None before it."""
        self._may_reset = False
        self.contact = ''
        """What the arm gave way to since the last resume, '' if nothing."""
        self.epoch = now.stamp_ns // S
        self.instruction = config.instruction
        self._task_number = self._plan_number = 0
        self._out: list[Output] = []
        self._last_chunk_id = 0
        self._next_due_ns = now.mono_ns
        self._plan_at_ns = 0
        self._is_plan_dirty = True
        self._is_stopping = False
        self._reported_rest = Rest()
        self._readings: deque[ArmFeedback] = deque(maxlen=2)

    # ---- life cycle --------------------------------------------------------------------------

    def connect(self) -> None:
        """Open and check the arm; nothing moves. Raises ArmError with what to do."""
        self._arm.connect()
        self.states.fire(ArmEvent.CONNECT)
        self.report = self._arm.check()
        self.states.fire(ArmEvent.CHECK)

    def activate(self, *, may_autostart: bool = True) -> None:
        """Enable the arm at its measured pose; motion starts now or on ``resume``.

        A bridge that was active before checks the arm again, as a new one would.

        Args:
            may_autostart: False for a bridge that replaces a dead one: it waits for the operator.
        """
        if self.states.state is not ArmState.CHECKED:
            self._arm.disconnect()
            self.states.fire(ArmEvent.DISCONNECT)
            self.connect()
        self._arm.enable()
        self.states.fire(ArmEvent.ENABLE)
        now = self._clock.now()
        self.nodes.restart(now.mono_ns)  # powering the joints takes longer than a sign of life
        self._mover.disarm()
        self._contacts.restart()
        self.contact = ''
        self._ticks.restart(self._mover.seed(), is_shadow=self._arm.stats().is_shadow)
        self._is_stopping = False
        self._next_due_ns = now.mono_ns
        # a simulated clock may have begun to run only after the bridge was made
        self.epoch = max(self.epoch, now.stamp_ns // S)
        self._publish_task(now)
        if self._config.is_autostarted and may_autostart:
            self._arm_motion()

    def use_ledger(self, ledger: LedgerWriter) -> None:
        """Write every tick to ``ledger`` from its next index on; call before the first tick."""
        self._ticks.use_ledger(ledger)

    def request_stop(self, now: Instant) -> None:
        """Decelerate and hold for good; ticks until ``is_at_rest`` finish it."""
        self._is_stopping = True
        self._drop_plan(now, 'stop requested')
        self._ticks.stop()
        self._mover.disarm()

    @property
    def is_at_rest(self) -> bool:
        """Return whether the command stream stands still or nothing may be sent."""
        return self._mover.is_at_rest

    def close(self, now: Instant) -> tuple[Output, ...]:
        """Publish what is still open; the arm keeps its power and holds."""
        self._drop_plan(now, 'bridge closed')
        self._put(self._stalls.close())
        self._ticks.close()
        return self._take()

    # ---- inputs ------------------------------------------------------------------------------

    def status(self, status: StageStatus, now: Instant) -> None:
        """Take a sign of life of the encoder or the policy."""
        self.nodes.status(status, now.mono_ns)

    def offer(self, chunk: ActionChunk, now: Instant) -> tuple[Output, ...]:
        """Judge a chunk; accepted, it takes over at the first tick not before its row 0."""
        self.clocks.chunk(chunk)
        self._ticks.seen_chunk(now.mono_ns)
        next_due_ns = self._next_tick_ns(now.mono_ns)
        is_restart = chunk.entry is Entry.RESTART
        step0_ns = next_due_ns if is_restart else self.clocks.offset.to_mono(chunk.step0_at_ns)
        observation_ns = self.clocks.offset.to_mono(chunk.oldest_stamp_ns)
        reason, text = judge(chunk, self._admission(next_due_ns, step0_ns, observation_ns))
        if reason is RejectReason.NONE:
            limits, grippers = self._arm.limits(), ~self._joints
            running = make_running(
                chunk, step0_ns=step0_ns, observation_ns=observation_ns, accepted_ns=now.mono_ns,
                covered_ns=self._covered_ns(chunk, now.mono_ns),
                gripper_m=(limits.lower[grippers], limits.upper[grippers]),
            )
            reason, text = self._judge_seam(running, next_due_ns)
        if reason is not RejectReason.NONE:
            self._reject(chunk, reason, text, now)
        else:
            self._accept(running, next_due_ns, now)
        self._last_chunk_id = max(self._last_chunk_id, chunk.chunk_id)
        return self._take()

    def set_instruction(self, instruction: str, now: Instant) -> tuple[Reply, tuple[Output, ...]]:
        """Start a new epoch with another instruction; the old plan is dropped at once."""
        if not instruction.strip():
            return Reply(False, 'Instruction: got an empty text, expected words.'), ()
        if len(instruction) > MAX_INSTRUCTION:
            return Reply(False, f'Instruction: got {len(instruction)} characters, expected at '
                                f'most {MAX_INSTRUCTION}. Use a shorter one.'), ()
        self.instruction = instruction
        self._new_epoch(now)
        return Reply(True, f'epoch {self.epoch}'), self._take()

    def hold(self, now: Instant) -> tuple[Reply, tuple[Output, ...]]:
        """Stop in software: decelerate within the limits and hold until ``resume``."""
        if not may_send(self.states.state):
            return Reply(False, f'The arm is {self.states.state.value}; nothing moves it.'), ()
        self._mover.disarm()
        self._ticks.operator_hold(True, now.mono_ns)
        self._drop_plan(now, 'held by the operator')
        self._is_plan_dirty = True
        return Reply(True, 'holding'), self._take()

    def resume(self, now: Instant) -> tuple[Reply, tuple[Output, ...]]:
        """Allow motion again; the next chunk ramps in from the held pose."""
        if self._is_stopping:
            return Reply(False, 'The bridge is stopping.'), ()
        if not may_send(self.states.state):
            return Reply(False, f'The arm is {self.states.state.value}. Recover it first.'), ()
        if self._mover.is_armed and self.states.state in _MOVING:
            return Reply(True, 'already in motion'), ()
        reading = self._arm.feedback()
        if self._ticks.error_of(reading) > self._config.bounds.max_tracking_error_rad:
            # pushed aside or sunk while it held: go on from where the arm really is
            if not self._is_resting(reading):
                return Reply(False, 'The arm is away from its command and does not rest there. '
                                    'Let go of it, check its feedback, and resume again.'), ()
            self._ticks.commanded(self._mover.seed())
        self._ticks.operator_hold(False, now.mono_ns)
        self._arm_motion()
        self._is_plan_dirty = True
        return Reply(True, 'the next chunk ramps in'), self._take()

    def overload(self) -> str:
        """Return which joints carry more than they should, '' if none."""
        return self._contacts.overload(self._arm.feedback())

    def _is_resting(self, reading: ArmFeedback) -> bool:
        """Return whether a pose equals the one read before it: a damaged one does not."""
        before = [other for other in self._readings if other.mono_ns < reading.mono_ns]
        if not before:
            return False
        moved = np.abs(reading.position - before[-1].position)[self._joints]
        passed_ns = min(reading.mono_ns - before[-1].mono_ns, LONGEST_NS)
        return bool((moved < RESTING_RAD_S * passed_ns / S).all())

    def recover(self, *, arm_supported: bool) -> Reply:
        """Clear faults, check and enable again; blocks, and may run beside ticks.

        The arm holds its measured pose afterwards and does not move before ``resume``. The power
        is never cut at the first request for a fault: the operator is told and must ask again.

        Args:
            arm_supported: The operator's word. Powering the joints may let the arm sag.
        """
        if self.states.state is not ArmState.FAULTED:
            return Reply(False, f'The arm is {self.states.state.value}, not faulted.')
        if not arm_supported:
            return Reply(False, 'Powering the joints may let the arm sag or drop. Support it, '
                                'then repeat with arm_supported.')
        reply = self._arm.clear_faults(arm_supported=self._may_reset)
        self._may_reset = not reply.accepted
        if not reply.accepted:
            return reply
        try:
            self.states.fire(ArmEvent.RECOVER)
            self.report = self._arm.check()
            self.states.fire(ArmEvent.CHECK)
            self._arm.enable()
        except ReflexError as error:
            if self.states.allows(ArmEvent.FAULT):
                self.states.fire(ArmEvent.FAULT, str(error))
            return Reply(False, str(error))
        self._mover.disarm()
        self._ticks.commanded(self._mover.seed())
        self.states.fire(ArmEvent.ENABLE)
        return Reply(True, 'Recovered; holding the measured pose. Resume to move.')

    # ---- the tick ----------------------------------------------------------------------------

    def step(self, now: Instant, due_ns: int, index: int) -> tuple[Output, ...]:
        """Run one due tick; skipped instants before ``index`` get a record each.

        Args:
            now: When the tick really runs.
            due_ns: Steady instant at which it was due.
            index: Number of the due instant since the loop's start.
        """
        self._next_due_ns = due_ns + self._config.period_ns
        if self.clocks.watch(now):
            self._new_epoch(now)
        self.reading = reading = self._arm.feedback()
        if not self._readings or reading.mono_ns > self._readings[-1].mono_ns:
            self._readings.append(reading)
        faults = self._watch_arm(reading, now)
        is_late = 2 * (now.mono_ns - due_ns) > self._config.period_ns
        motion = Motion()
        if may_send(self.states.state):
            self._watch_contact(reading, now)
        if may_send(self.states.state) and not is_late:
            motion = self._move(now, due_ns, reading)
        ticks = self._ticks.record(self._situation(faults), motion, reading, now=now,
                                   due_ns=due_ns, index=index)
        for tick in ticks:
            self._put(tick)
            self._put(self._stalls.add(tick))
        self._settle(now, reading)
        self._publish_plan(now, due_ns, reading)
        return self._take()

    def _watch_arm(self, reading: ArmFeedback, now: Instant) -> tuple[str, ...]:
        """Enter ``faulted`` on a fault or lost feedback and return the codes in force."""
        faults = self._arm.faults()
        is_running = may_send(self.states.state)
        lost = now.mono_ns - reading.mono_ns > self._config.bounds.feedback_ns
        if is_running and (faults or lost):
            self._fault(now, ', '.join(faults) or 'feedback_lost')
        return faults

    def _watch_contact(self, reading: ArmFeedback, now: Instant) -> None:
        """Give way to what blocks the arm, and hold there until the operator resumes."""
        found = self._contacts.look(self._ticks.followed(), reading)
        if found is None:
            return
        self.contact = found.text
        self._mover.disarm()
        self._mover.give_way(reading.position, found.joints)
        self._ticks.contact(True)
        self._drop_plan(now, found.text)
        self._is_plan_dirty = True

    def _fault(self, now: Instant, reason: str) -> None:
        self.states.fire(ArmEvent.FAULT, reason)
        self._may_reset = False
        self._mover.disarm()
        self._drop_plan(now, f'arm fault: {reason}')
        self._is_plan_dirty = True

    def _move(self, now: Instant, due_ns: int, reading: ArmFeedback) -> Motion:
        """Let the mover send this tick's command and note what changed by it."""
        before, bounds = self.states.state, self._config.bounds
        moved = self._mover.step(
            due_ns, max_age_ns=self.age_limit_ns,
            is_state_good=due_ns - reading.mono_ns <= bounds.state_ns
            and self._ticks.error_of(reading) <= bounds.max_tracking_error_rad
            and not is_camera_frozen(self.nodes.facts(ENCODER), bounds),
        )
        active, state = self.follower.active, self.states.state
        for ended, text in moved.ended:
            self._end(ended, now, text)
        if active is not None and active.entered_ns == due_ns:
            active.stalled_ticks, self._stalls.since_chunk = self._stalls.since_chunk, 0
            self._is_plan_dirty = True
        if state is not before:
            self._ticks.hold_since(now if state is ArmState.HOLDING else None)
            self._is_plan_dirty = True
        if state in _MOVING:
            self._ticks.executed(now.mono_ns)
            self._is_plan_dirty |= active is not None and active.ticks == 1
        if moved.failure:
            self._fault(now, moved.failure)
        return moved.motion

    # ---- chunks ------------------------------------------------------------------------------

    def _next_tick_ns(self, now_ns: int) -> int:
        """Return the due instant of the first tick that can execute what arrives now.

        A tick that is overdue by less than half a period is still to come.
        """
        period_ns = self._config.period_ns
        missed = (now_ns - self._next_due_ns + period_ns // 2) // period_ns
        return self._next_due_ns + max(0, missed) * period_ns

    def _admission(self, next_due_ns: int, step0_ns: int, observation_ns: int) -> Admission:
        return Admission(
            joint_names=self._arm.names, epoch=self.epoch, arm_state=self.states.state,
            is_armed=self._mover.is_armed, is_clock_trusted=self.clocks.is_trusted,
            next_due_ns=next_due_ns, step0_ns=step0_ns, observation_ns=observation_ns,
            max_age_ns=self.age_limit_ns, last_chunk_id=self._last_chunk_id,
        )

    @property
    def age_limit_ns(self) -> int:
        """Return the age at which an observation stops being live, ns."""
        return self._config.age_limit_ns(self.latency.value_ns)

    def _judge_seam(self, running: Running, next_due_ns: int) -> tuple[RejectReason, str]:
        position = self._mover.position
        step = self._mover.seam(running, next_due_ns)
        if step is None or position is None:
            return RejectReason.NONE, ''
        switch_ns = max(next_due_ns, running.step0_ns)
        return judge_seam(
            running, step, names=self._arm.names, held=position, switch_ns=switch_ns,
            rest_ns=self._rest_since_ns(switch_ns), speed=self._arm.limits().velocity,
            max_seam_rad=self._config.max_seam_rad)

    def _rest_since_ns(self, switch_ns: int) -> int | None:
        """Return since when the arm has been at rest, None while it follows a plan.

        0 before a ramp: it has been still for longer than any observation. While it still
        decelerates it will not have come to rest before the switch.
        """
        if self._mover.needs_ramp:
            return 0
        if self.states.state is not ArmState.HOLDING:
            return None
        return self._ticks.rest.settled_since_ns or switch_ns

    def _covered_ns(self, chunk: ActionChunk, now_ns: int) -> int:
        """Return the part of the chunk's inference that the plan before it covered."""
        newest = self.follower.newest
        start_ns = self.clocks.inference_start_ns(chunk)
        if newest is None or not start_ns:
            return 0
        until_ns = min(now_ns, newest.live_until(self.age_limit_ns))
        return max(0, until_ns - start_ns)

    def _accept(self, running: Running, next_due_ns: int, now: Instant) -> None:
        for replaced in self.follower.offer(running):
            self._end(replaced, now, f'replaced by chunk {running.chunk.chunk_id}')
        chunk = running.chunk
        if chunk.inference_start_ns:
            self.latency.add(now.mono_ns - self.clocks.inference_start_ns(chunk))
        # the deliberate wait for row 0 is left out: Delta would otherwise feed on itself
        self.delta.add(next_due_ns - self.clocks.offset.to_mono(chunk.observation_stamp_ns))
        self._ticks.accepted(now.mono_ns)

    def _reject(self, chunk: ActionChunk, reason: RejectReason, text: str, now: Instant) -> None:
        self._ticks.rejected(now.mono_ns, text)
        self._put(self._traces.rejected(
            chunk, reason, text, now_ns=now.mono_ns, stamp_ns=now.stamp_ns,
        ))
        self._is_plan_dirty = True

    def _end(self, running: Running, now: Instant, text: str) -> None:
        self._put(self._traces.ended(
            running, self.clocks.offset, stamp_ns=now.stamp_ns, text=text,
        ))

    def _drop_plan(self, now: Instant, text: str) -> None:
        for running in self._mover.drop():
            self._end(running, now, text)

    def _new_epoch(self, now: Instant) -> None:
        self.epoch += 1
        self._drop_plan(now, 'a new epoch began')
        self._ticks.new_instruction(now.mono_ns)
        self._publish_task(now)
        self._is_plan_dirty = True

    # ---- outputs -----------------------------------------------------------------------------

    def _arm_motion(self) -> None:
        """Leave ``enabled``: wait in ``holding`` for the first chunk, which then ramps in."""
        self._mover.arm_motion()
        self._ticks.hold_since(self._clock.now())
        self._ticks.contact(False)
        self._contacts.restart()
        self.contact = ''

    def _settle(self, now: Instant, reading: ArmFeedback) -> None:
        joints = reading.velocity[self._joints]
        is_slow = bool(np.all(np.abs(joints) < self._config.settled_velocity))
        self._ticks.settled(now, is_slow and self.is_at_rest)

    def _publish_task(self, now: Instant) -> None:
        self._task_number += 1
        self._put(Task(self._task_number, now.stamp_ns, self.epoch, self.instruction))

    def _publish_plan(self, now: Instant, due_ns: int, reading: ArmFeedback) -> None:
        rest = self._ticks.rest
        is_due = now.mono_ns - self._plan_at_ns >= self._config.plan_period_ns
        if not (self._is_plan_dirty or is_due or rest != self._reported_rest):
            return
        self._plan_number += 1
        self._plan_at_ns, self._is_plan_dirty, self._reported_rest = now.mono_ns, False, rest
        self._put(plan_of(self._situation(()), self._ticks, self.follower, reading,
                          held=self._mover.position, offset=self.clocks.offset,
                          number=self._plan_number, now=now, due_ns=due_ns))

    def _situation(self, faults: tuple[str, ...]) -> Situation:
        return Situation(
            joint_names=self._arm.names, arm_state=self.states.state, epoch=self.epoch,
            faults=faults, is_clock_trusted=self.clocks.is_trusted,
            latency_ns=self.latency.value_ns, delta_ns=self.delta.value_ns,
            max_age_ns=self.age_limit_ns, encoder=self.nodes.facts(ENCODER),
            policy=self.nodes.facts(POLICY),
        )

    def _put(self, value: object | None) -> None:
        if value is not None:
            self._out.append(Output(value))

    def _take(self) -> tuple[Output, ...]:
        out, self._out = tuple(self._out), []
        return out


def _estimator(config: BridgeConfig, initial_ns: int) -> DelayEstimator:
    return DelayEstimator(
        initial_ns=initial_ns, window=config.delay_window, quantile=config.delay_quantile,
        warmup=config.delay_warmup,
    )
