"""The bridge: every 50 Hz tick one command, one verdict and one cause.

It owns the epoch and the plan, judges chunks, keeps the arm within its limits and holds it when
nothing live covers a tick. It never catches up: a late tick sends nothing new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reflex_ros.arm.states import ArmEvent, StateMachine, may_send
from reflex_ros.core.cause import is_camera_frozen
from reflex_ros.core.clock import MS
from reflex_ros.core.errors import ArmError
from reflex_ros.core.types import ArmState, Fate, Reply
from reflex_ros.stages.accounts import StallBook
from reflex_ros.stages.base import ENCODER, POLICY, Output
from reflex_ros.stages.bridge_intake import Intake
from reflex_ros.stages.bridge_readings import Readings
from reflex_ros.stages.bridge_recovery import Recovery
from reflex_ros.stages.bridge_task import TaskBook, refusal
from reflex_ros.stages.contact import ContactWatch
from reflex_ros.stages.far import FarClocks
from reflex_ros.stages.health import NodeWatch
from reflex_ros.stages.mover import Mover
from reflex_ros.stages.tick import Motion, Rest, Situation, TickBook, plan_of

if TYPE_CHECKING:
    from reflex_ros.arm.protocol import Arm, ArmReport
    from reflex_ros.core.cause import LinkFacts
    from reflex_ros.core.clock import Clock, Instant
    from reflex_ros.core.ledger import LedgerWriter
    from reflex_ros.core.types import ActionChunk, ArmFeedback, FloatArray, StageStatus
    from reflex_ros.stages.bridge_config import BridgeConfig


_MOVING = (ArmState.RAMP_IN, ArmState.TRACKING)
STOP_MARGIN_NS = 500 * MS
"""Time beyond that of braking that a stop may take: late ticks send nothing and move nothing."""


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
        self._mover = Mover(arm, config, self.states, clock=clock)
        self.follower = self._mover.follower
        self.nodes = NodeWatch()
        self._far = FarClocks(uses_sim_time=config.uses_sim_time)
        self._link: LinkFacts | None = None
        self._stalls = StallBook(period_ns=config.period_ns)
        self._ticks = TickBook(config, ledger)
        self._intake = Intake(arm, config, states=self.states, mover=self._mover,
                              ticks=self._ticks, now=now)
        self.clocks = self._intake.clocks
        self.latency, self.delta = self._intake.latency, self._intake.delta
        self._recovery = Recovery(arm, self.states, check=self._check, seed=self._seed,
                                  is_at_rest=lambda: self.is_at_rest)
        self._contacts = ContactWatch(config.contact, arm.names)
        self._readings = Readings(len(arm.names))
        self.report: ArmReport | None = None
        """What the newest check of the arm found, None before it."""
        self.contact = ''
        """What the arm gave way to since the last resume, '' if nothing."""
        self._task = TaskBook(config.instruction, now)
        self._plan_number = 0
        self._out: list[Output] = []
        self._next_due_ns = now.mono_ns
        self._plan_at_ns = 0
        self._is_plan_dirty = True
        self._is_stopping = False
        self._reported_rest = Rest()

    @property
    def epoch(self) -> int:
        """Return the epoch in force; anything of another one is dead."""
        return self._task.epoch

    @property
    def reading(self) -> ArmFeedback | None:
        """Return what the arm said at the newest tick, None before the first."""
        return self._readings.newest

    # ---- life cycle --------------------------------------------------------------------------

    def connect(self) -> None:
        """Open and check the arm; nothing moves. Raises ArmError with what to do."""
        self._arm.connect()
        self.states.fire(ArmEvent.CONNECT)
        self._check()

    def _check(self) -> None:
        self.report = self._arm.check()
        self.states.fire(ArmEvent.CHECK)

    def _seed(self, pose: FloatArray) -> None:
        """Begin the command stream anew at the pose held; nothing moves before a resume."""
        self._mover.disarm()
        self._ticks.commanded(self._mover.seed(pose))

    def activate(self, *, may_autostart: bool = True) -> None:
        """Enable the arm at its measured pose; motion starts now or on ``resume``.

        A bridge that was active before checks the arm again, as a new one would.

        Args:
            may_autostart: False for a bridge that replaces a dead one: it waits for the operator.
        """
        self._recovery.wait()
        if self.states.state is not ArmState.CHECKED:
            self._arm.disconnect()
            self.states.fire(ArmEvent.DISCONNECT)
            self.connect()
        first = self._mover.seed(self._arm.enable())
        self.states.fire(ArmEvent.ENABLE)
        now = self._clock.now()
        self.nodes.restart(now.mono_ns)  # powering the joints takes longer than a sign of life
        self._mover.disarm()
        self._contacts.restart()
        self.contact = ''
        self._ticks.restart(first, is_shadow=self._arm.stats().is_shadow)
        self._is_stopping, self._recovery.is_allowed = False, True
        self._next_due_ns = now.mono_ns
        self._task.begin(now)
        self._put(self._task.tell(now))
        if self._config.is_autostarted and may_autostart:
            self._arm_motion()

    def use_ledger(self, ledger: LedgerWriter) -> None:
        """Write every tick to ``ledger`` from its next index on; call before the first tick."""
        self._ticks.use_ledger(ledger)

    def request_stop(self, now: Instant) -> None:
        """Decelerate and hold for good; ticks until ``is_at_rest`` finish it."""
        self._is_stopping, self._recovery.is_allowed = True, False
        self._drop_plan(now, 'stop requested')
        self._ticks.stop()
        self._mover.disarm()

    @property
    def is_at_rest(self) -> bool:
        """Return whether the command stream stands still or nothing may be sent."""
        return self._mover.is_at_rest

    @property
    def longest_stop_ns(self) -> int:
        """Return how long the ticks after ``request_stop`` may take until ``is_at_rest``."""
        return self._mover.longest_stop_ns + STOP_MARGIN_NS

    def close(self, now: Instant) -> tuple[Output, ...]:
        """Publish what is still open; the arm keeps its power and holds.

        Waits for a recovery: nobody may close the bus under it.

        Raises:
            ArmError: A recovery does not end.
        """
        self._recovery.wait()
        self._drop_plan(now, 'bridge closed')
        self._put(self._stalls.close())
        self._ticks.close()
        return self._take()

    # ---- inputs ------------------------------------------------------------------------------

    def status(self, status: StageStatus, now: Instant) -> None:
        """Take a sign of life; a node that lives in another epoch is told the task again."""
        ours = self._far.ours(status, now)
        self.nodes.status(ours, now.mono_ns, is_far=self._far.is_far(status.node))
        if not self._is_stopping:
            self._put(self._task.retell(status, now))

    def link(self, link: LinkFacts | None, now: Instant, *, ahead_ns: int = 0) -> bool:
        """Take what is known of the link to another machine.

        Args:
            link: None while nobody there has answered.
            now: The present.
            ahead_ns: How far its ROS time is ahead of ours.

        Returns:
            Whether encoder and policy live on another machine, so that the link matters.
        """
        before, self._link = self._link, link
        if link is not None and before is not None and link.back_ns != before.back_ns:
            self.nodes.restart(now.mono_ns, only_far=True)  # unheard is not silent
        self.clocks.ahead_ns = ahead_ns
        return self.nodes.live_far

    def offer(self, chunk: ActionChunk, now: Instant) -> tuple[Output, ...]:
        """Judge a chunk; accepted, it takes over at the first tick not before its row 0."""
        traces = self._intake.offer(
            chunk, now, next_due_ns=self._next_tick_ns(now.mono_ns), epoch=self.epoch)
        for trace in traces:
            self._put(trace)
            self._is_plan_dirty |= trace.fate is Fate.REJECTED
        return self._take()

    def set_instruction(self, instruction: str, now: Instant) -> tuple[Reply, tuple[Output, ...]]:
        """Start a new epoch with another instruction; the old plan is dropped at once."""
        text = refusal(instruction)
        if text:
            return Reply(False, text), ()
        self._task.instruction = instruction
        self._new_epoch(now)
        return Reply(True, f'epoch {self.epoch}'), self._take()

    def hold(self, now: Instant) -> tuple[Reply, tuple[Output, ...]]:
        """Stop in software: decelerate within the limits and hold until ``resume``."""
        is_recovering = self._recovery.hold()
        if not (is_recovering or may_send(self.states.state)):
            return Reply(False, f'The arm is {self.states.state.value}; nothing moves it.'), ()
        self._mover.disarm()
        self._ticks.operator_hold(True, now.mono_ns)
        self._drop_plan(now, 'held by the operator')
        self._is_plan_dirty = True
        text = 'holding'
        if is_recovering:
            text += '; a recovery is under way and powers no further joint'
        return Reply(True, text), self._take()

    def resume(self, now: Instant) -> tuple[Reply, tuple[Output, ...]]:
        """Allow motion again; the next chunk ramps in from the held pose.

        An arm that was pushed aside or sank while it held goes on from where it really is. It must
        rest there, proven by several readings, and the commands must rest: they are led there
        within the limits and never step.
        """
        if self._is_stopping:
            return Reply(False, 'The bridge is stopping.'), ()
        if not may_send(self.states.state):
            return Reply(False, f'The arm is {self.states.state.value}. Recover it first.'), ()
        if self._mover.is_armed and self.states.state in _MOVING:
            return Reply(True, 'already in motion'), ()
        if self._mover.is_on_its_way:
            return Reply(True, 'already on its way to where the arm rests'), ()
        reading = self._arm.feedback()
        there = None
        if self._ticks.error_of(reading) > self._config.bounds.max_tracking_error_rad:
            if text := self._unrest(reading):
                return Reply(False, text), ()
            there = reading.position
        try:
            self._arm_motion(there)
        except ArmError as error:
            return Reply(False, str(error)), ()
        self._ticks.operator_hold(False, now.mono_ns)
        self._is_plan_dirty = True
        return Reply(True, 'the next chunk ramps in'), self._take()

    def _unrest(self, reading: ArmFeedback) -> str:
        """Return why an arm cannot go on from where it is, away from its command; '' if it can."""
        if not self._mover.is_at_rest:
            return ('The arm is away from its command, which still brakes. Resume again when it '
                    'holds.')
        if not self._readings.is_resting(reading):
            return ('The arm is away from its command and does not rest there. Let go of it, '
                    'check its feedback, and resume again.')
        return ''

    def overload(self) -> str:
        """Return which joints carry more than they should, '' if none."""
        return self._contacts.overload(self._arm.feedback())

    def recover(self, *, arm_supported: bool) -> Reply:
        """Clear faults, check and enable again; blocks, and may run beside all other calls.

        The arm holds its measured pose afterwards and does not move before ``resume``. The power
        is never cut at the first request for a fault: the operator is told and must ask again.

        Args:
            arm_supported: The operator's word. Powering the joints may let the arm sag.
        """
        return self._recovery.run(arm_supported=arm_supported)

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
        reading = self._readings.take(self._arm.feedback())
        faults = self._watch_arm(reading, now)
        is_late = 2 * (now.mono_ns - due_ns) > self._config.period_ns
        motion, is_overdue = Motion(), False
        if may_send(self.states.state):
            self._watch_contact(reading, now)
        if may_send(self.states.state) and not is_late:
            motion = self._move(now, due_ns, reading)
            is_overdue = self._mover.is_overdue
        elif self.states.state is ArmState.FAULTED and not is_late:
            with self._recovery.braking() as may_send_to_others:
                if may_send_to_others:
                    motion = self._mover.brake_others(
                        due_ns, seen_after_ns=now.mono_ns - self._config.bounds.feedback_ns)
                    is_overdue = self._mover.is_overdue
        if is_overdue:
            now = self._clock.now()  # the record says how late it was in the end
        ticks = self._ticks.record(self._situation(faults), motion, reading, now=now,
                                   due_ns=due_ns, index=index)
        for tick in ticks:
            self._put(tick)
            self._put(self._stalls.add(tick))
        self._ticks.settled(now, self.is_at_rest and self._readings.is_slow(
            reading, self._config.settled_velocity))
        self._publish_plan(now, due_ns, reading)
        return self._take()

    def _watch_arm(self, reading: ArmFeedback, now: Instant) -> tuple[str, ...]:
        """Enter ``faulted`` on a fault or lost feedback and return the codes in force."""
        faults = reading.faults
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
        self._mover.give_way(found.position, found.joints)
        self._ticks.contact(True)
        self._drop_plan(now, found.text)
        self._is_plan_dirty = True

    def _fault(self, now: Instant, reason: str) -> None:
        self.states.fire(ArmEvent.FAULT, reason)
        self._recovery.new_fault()
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
            self._put(self._intake.ended(ended, now, text))
        if active is not None and active.entered_ns == due_ns:
            active.stalled_ticks, self._stalls.since_chunk = self._stalls.since_chunk, 0
            self._is_plan_dirty = True
        if state is not before:
            self._ticks.hold_since(now if state is ArmState.HOLDING else None)
            self._is_plan_dirty = True
        if state in _MOVING and not self._mover.is_overdue:
            self._ticks.executed()
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

    @property
    def age_limit_ns(self) -> int:
        """Return the age at which an observation stops being live, ns."""
        return self._intake.age_limit_ns

    def _drop_plan(self, now: Instant, text: str) -> None:
        for running in self._mover.drop():
            self._put(self._intake.ended(running, now, text))

    def _new_epoch(self, now: Instant) -> None:
        self._task.epoch += 1
        self._drop_plan(now, 'a new epoch began')
        self._ticks.new_instruction(now.mono_ns)
        self._put(self._task.tell(now))
        self._is_plan_dirty = True

    # ---- outputs -----------------------------------------------------------------------------

    def _arm_motion(self, there: FloatArray | None = None) -> None:
        """Leave ``enabled``: wait in ``holding`` for the first chunk, which then ramps in."""
        self._mover.arm_motion(there)
        self._ticks.hold_since(self._clock.now())
        self._ticks.contact(False)
        self._contacts.restart()
        self.contact = ''

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
            policy=self.nodes.facts(POLICY), link=self._link,
        )

    def _put(self, value: object | None) -> None:
        if value is not None:
            self._out.append(Output(value))

    def _take(self) -> tuple[Output, ...]:
        out, self._out = tuple(self._out), []
        return out
