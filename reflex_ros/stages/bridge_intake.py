"""What becomes of a chunk that arrives: refused with a reason, or queued; and what it teaches.

Nothing that a chunk brings may decide for longer than the chunk itself could be executed: a stray
or a damaged one must not shut out the good ones behind it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from reflex_ros.core.clock import S
from reflex_ros.core.delay import MAX_SAMPLE_NS, DelayEstimator
from reflex_ros.core.interpolate import revolute
from reflex_ros.core.types import ArmState, Entry, Mode, RejectReason
from reflex_ros.stages.accounts import TraceBook
from reflex_ros.stages.admission import MAX_AHEAD_NS, Admission, judge
from reflex_ros.stages.follower import Running, make_running
from reflex_ros.stages.health import ClockWatch
from reflex_ros.stages.seam import judge_seam

if TYPE_CHECKING:
    from reflex_ros.arm.protocol import Arm
    from reflex_ros.arm.states import StateMachine
    from reflex_ros.core.clock import Instant
    from reflex_ros.core.types import ActionChunk, ChunkTrace
    from reflex_ros.stages.bridge_config import BridgeConfig
    from reflex_ros.stages.mover import Mover
    from reflex_ros.stages.tick import TickBook

ID_MEMORY_NS = 1 * S
"""An accepted id counts for so much longer than a chunk of its age could be executed."""


class Intake:
    """Judges chunks, traces them and estimates both delays. Not thread-safe.

    Args:
        arm: Names and limits.
        config: Settings of the bridge.
        states: State of the arm. ``mover``: gets the accepted chunks. ``ticks``: hears of all.
        now: First pair of clock readings.
    """

    def __init__(self, arm: Arm, config: BridgeConfig, *, states: StateMachine, mover: Mover,
                 ticks: TickBook, now: Instant) -> None:
        self._arm, self._config = arm, config
        self._states, self._mover, self._ticks = states, mover, ticks
        self._traces = TraceBook()
        self._grippers = ~revolute(len(arm.names))
        self._last_id = self._last_id_ns = self._refused_id = 0
        self.clocks = ClockWatch(now, uses_sim_time=config.uses_sim_time)
        self._quickest_ns = 0
        self.latency = _estimator(config, config.initial_latency_ns)
        self.delta = _estimator(config, config.initial_delta_ns)

    @property
    def age_limit_ns(self) -> int:
        """Return the age at which an observation stops being live, ns."""
        latency_ns = self.latency.value_ns
        if not self.latency.samples:
            latency_ns = max(latency_ns, self._quickest_ns)
        return self._config.age_limit_ns(latency_ns)

    def offer(self, chunk: ActionChunk, now: Instant, *, next_due_ns: int,
              epoch: int) -> tuple[ChunkTrace, ...]:
        """Judge a chunk and queue it if it is good; return the traces of what is over by it.

        Args:
            chunk: The chunk as received.
            now: Its arrival.
            next_due_ns: First tick that can execute it.
            epoch: The epoch in force.
        """
        self.clocks.chunk(chunk)
        self._ticks.seen_chunk(now.mono_ns)
        is_restart = chunk.entry is Entry.RESTART
        step0_ns = next_due_ns if is_restart else self.clocks.offset.to_mono(chunk.step0_at_ns)
        observation_ns = self.clocks.offset.to_mono(chunk.oldest_stamp_ns)
        reason, text = judge(chunk, Admission(
            joint_names=self._arm.names, epoch=epoch, arm_state=self._states.state,
            is_armed=self._mover.is_armed, is_clock_trusted=self.clocks.is_trusted,
            next_due_ns=next_due_ns, step0_ns=step0_ns, observation_ns=observation_ns,
            max_age_ns=self.age_limit_ns, last_chunk_id=self._known_id(now.mono_ns),
        ))
        if reason is RejectReason.NONE:
            limits, grippers = self._arm.limits(), self._grippers
            running = make_running(
                chunk, step0_ns=step0_ns, observation_ns=observation_ns, accepted_ns=now.mono_ns,
                covered_ns=self._covered_ns(chunk, now.mono_ns),
                gripper_m=(limits.lower[grippers], limits.upper[grippers]),
            )
            reason, text = self._judge_seam(running, next_due_ns)
        if reason is not RejectReason.NONE:
            self._refused_id = chunk.chunk_id
            if reason is RejectReason.STALE:
                self._learn_wait(chunk, next_due_ns, now)
            self._ticks.rejected(now.mono_ns, text)
            return (self._traces.rejected(chunk, reason, text, now_ns=now.mono_ns,
                                          stamp_ns=now.stamp_ns),)
        return self._accept(running, next_due_ns, now)

    def ended(self, running: Running, now: Instant, text: str) -> ChunkTrace:
        """Return the trace of an accepted chunk that is over."""
        return self._traces.ended(
            running, self.clocks.offset, stamp_ns=now.stamp_ns, text=text)

    def _known_id(self, now_ns: int) -> int:
        """Return the id that a chunk must exceed, 0 if any will do.

        It is the newest accepted one while a repeated chunk could still be executed, and a second
        longer, so that of two slow policies only one is heard. Later it was a stray one, or its
        policy is gone: then ids count that rise among themselves.

        The price: a first chunk of a foreign policy, believed since nothing is known yet, keeps
        lower ids out for that time; nothing tells which of the two is meant. The arm holds and
        the cause says ``chunk_rejected``. A first id that no policy reaches is refused itself.
        """
        is_recent = now_ns - self._last_id_ns <= self.age_limit_ns + ID_MEMORY_NS
        return self._last_id if self._last_id and is_recent else self._refused_id

    def _judge_seam(self, running: Running, next_due_ns: int) -> tuple[RejectReason, str]:
        position = self._mover.held
        step = self._mover.seam(running, next_due_ns)
        if step is None or position is None:
            return RejectReason.NONE, ''
        switch_ns = max(next_due_ns, running.step0_ns)
        text = judge_seam(
            running, step, names=self._arm.names, held=position, switch_ns=switch_ns,
            rest_ns=self._rest_since_ns(switch_ns), speed=self._arm.limits().velocity,
            max_seam_rad=self._config.max_seam_rad,
            fit=partial(self._mover.fit, running, next_due_ns))
        return RejectReason.SEAM if text else RejectReason.NONE, text

    def _rest_since_ns(self, switch_ns: int) -> int | None:
        """Return since when the arm has been at rest, None while it follows a plan.

        0 before a ramp: it has been still for longer than any observation. While it still
        decelerates it will not have come to rest before the switch.
        """
        if self._mover.needs_ramp:
            return 0
        if self._states.state is not ArmState.HOLDING:
            return None
        return self._ticks.rest.settled_since_ns or switch_ns

    def _covered_ns(self, chunk: ActionChunk, now_ns: int) -> int:
        """Return the part of the chunk's inference that the plan before it covered."""
        newest = self._mover.follower.newest
        start_ns = self.clocks.inference_start_ns(chunk)
        if newest is None or not start_ns:
            return 0
        until_ns = min(now_ns, newest.live_until(self.age_limit_ns))
        return max(0, until_ns - start_ns)

    def _accept(self, running: Running, next_due_ns: int,
                now: Instant) -> tuple[ChunkTrace, ...]:
        chunk = running.chunk
        text = f'replaced by chunk {chunk.chunk_id}'
        traces = tuple(self.ended(replaced, now, text)
                       for replaced in self._mover.follower.offer(running))
        self._last_id, self._last_id_ns = chunk.chunk_id, now.mono_ns
        self._refused_id = 0
        self._learn(chunk, next_due_ns, now)
        self._ticks.accepted(now.mono_ns)
        return traces

    def _learn(self, chunk: ActionChunk, next_due_ns: int, now: Instant) -> None:
        """Take both delays of a chunk.

        The deliberate wait for row 0 is left out: Delta would otherwise feed on itself. No
        inference starts before its observation: a start that says so would put every later row 0
        beyond what is accepted, and nothing accepted means nothing learnt.
        """
        delta_ns = next_due_ns - self.clocks.offset.to_mono(chunk.observation_stamp_ns)
        self.delta.add(delta_ns)
        self._learn_latency(chunk, delta_ns, now)

    def _learn_wait(self, chunk: ActionChunk, next_due_ns: int, now: Instant) -> None:
        """Take L of a chunk that came too late for ``sync``, whose age limit follows from L.

        A policy slower than the L it began with would else never be heard: what is refused would
        teach nothing, and the limit would stay.
        """
        if self._config.mode is Mode.SYNC:
            delta_ns = next_due_ns - self.clocks.offset.to_mono(chunk.observation_stamp_ns)
            self._learn_latency(chunk, delta_ns, now)

    def _learn_latency(self, chunk: ActionChunk, delta_ns: int, now: Instant) -> None:
        latency_ns = now.mono_ns - self.clocks.inference_start_ns(chunk)
        if not chunk.inference_start_ns or latency_ns > delta_ns + MAX_AHEAD_NS:
            return
        self.latency.add(latency_ns)
        if 0 < latency_ns <= MAX_SAMPLE_NS:
            # of the warm-up the quickest is nearest to what will be usual
            self._quickest_ns = min(self._quickest_ns or latency_ns, latency_ns)


def _estimator(config: BridgeConfig, initial_ns: int) -> DelayEstimator:
    return DelayEstimator(
        initial_ns=initial_ns, window=config.delay_window, quantile=config.delay_quantile,
        warmup=config.delay_warmup,
    )
