"""Bookkeeping of the bridge: one trace for every chunk, one event for every stall."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from reflex_ros.core.clock import S
from reflex_ros.core.types import ChunkTrace, Fate, RejectReason, StallEvent

if TYPE_CHECKING:
    from reflex_ros.core.clock import ClockOffset
    from reflex_ros.core.types import ActionChunk, Cause, ControlTick
    from reflex_ros.stages.follower import Running

EXPLANATIONS = MappingProxyType({
    'arm_fault': 'the arm or its bus reported a fault',
    'operator': 'the operator holds the arm',
    'instruction': 'a new instruction was given',
    'clock': 'ROS time and the steady clock disagree',
    'tick_late': 'the control tick itself ran late',
    'node_dead': 'a node died or fell silent',
    'ring_lost': 'the KV ring was lost',
    'state_stale': 'the measured state is too old',
    'tracking': 'the arm does not follow its commands',
    'chunk_rejected': 'the newest chunk was rejected',
    'sync_wait': 'sync mode waits for the arm to settle',
    'transport': 'a message did not arrive in time',
    'denoise_late': 'inference takes longer than usual',
    'encode_late': 'encoding takes longer than usual',
    'camera_late': 'a camera gives no new frames',
    'camera_frozen': 'a camera repeats the same picture',
    'plan_end': 'the plan ended before a new chunk came',
    'limit': 'a limit changed the command',
    'warmup': 'nothing was executed yet',
})
"""What each cause of a stall means, for people."""


REMEDIES = MappingProxyType({
    'arm_fault': 'look at the arm, then `reflex-ros arm status`',
    'operator': '`reflex-ros arm resume` when nobody is in reach',
    'instruction': 'wait: its first chunk goes on by itself',
    'clock': 'stop whatever steps the clock of this machine',
    'tick_late': 'relieve the computer; allow real-time priority',
    'node_dead': 'read its log in the run folder; it is restarted three times',
    'ring_lost': 'read the log of the encoder',
    'state_stale': 'relieve the computer and the bus',
    'tracking': 'look at the arm, free it, then `reflex-ros arm resume`',
    'chunk_rejected': 'read the reason in `chunk_trace`',
    'sync_wait': 'nothing: this is what sync does',
    'transport': 'look at the network; run encoder and policy in one process',
    'denoise_late': 'relieve the computer or the GPU',
    'encode_late': 'relieve the computer or the GPU',
    'camera_late': 'check the cable and the driver of the camera',
    'camera_frozen': 'restart the driver of the camera',
    'plan_end': 'a faster policy, or more rows for each chunk',
    'limit': 'nothing, or raise safety.speed_scale',
    'warmup': 'wait for the first chunk',
})
"""What to do about each cause, in one line."""


class TraceBook:
    """Numbers and builds the traces of chunks."""

    def __init__(self) -> None:
        self._number = 0

    def rejected(self, chunk: ActionChunk, reason: RejectReason, text: str, *, now_ns: int,
                 stamp_ns: int) -> ChunkTrace:
        """Return the trace of a chunk that was refused."""
        self._number += 1
        return ChunkTrace(
            number=self._number, stamp_ns=stamp_ns, chunk_id=chunk.chunk_id, epoch=chunk.epoch,
            fate=Fate.REJECTED, reason=reason, text=text, entered_row=-1,
            seam_position=0.0, seam_velocity=0.0,
            observation_stamp_ns=chunk.observation_stamp_ns,
            newest_stamp_ns=chunk.newest_stamp_ns, first_command_stamp_ns=0, accepted_ns=now_ns,
            inference_start_ns=chunk.inference_start_ns, covered_ns=0, stalled_ticks=0, ticks=0,
            stages=chunk.stages,
        )

    def ended(self, running: Running, offset: ClockOffset, *, stamp_ns: int,
              text: str) -> ChunkTrace:
        """Return the trace of an accepted chunk that is over."""
        self._number += 1
        chunk, seam = running.chunk, running.seam
        if running.fitted_ns or running.is_apart:
            text += f'; {joined(running)}'
        first_ns = running.first_command_ns
        return ChunkTrace(
            number=self._number, stamp_ns=stamp_ns, chunk_id=chunk.chunk_id, epoch=chunk.epoch,
            fate=Fate.EXECUTED if running.ticks else Fate.SUPERSEDED,
            reason=RejectReason.NONE, text=text, entered_row=running.entered_row,
            seam_position=seam.position if seam else 0.0,
            seam_velocity=seam.velocity if seam else 0.0,
            observation_stamp_ns=chunk.observation_stamp_ns,
            newest_stamp_ns=chunk.newest_stamp_ns,
            first_command_stamp_ns=offset.to_stamp(first_ns) if first_ns else 0,
            accepted_ns=running.accepted_ns, inference_start_ns=chunk.inference_start_ns,
            covered_ns=running.covered_ns, stalled_ticks=running.stalled_ticks,
            ticks=running.ticks, stages=chunk.stages,
        )


class StallBook:
    """Groups in-motion ticks that no live chunk covered into stall events."""

    def __init__(self, *, period_ns: int) -> None:
        self._period_ns = period_ns
        self._number = 0
        self._first: ControlTick | None = None
        self._last: ControlTick | None = None
        self.since_chunk = 0
        """Stalled ticks since the last chunk took over."""

    def add(self, tick: ControlTick) -> StallEvent | None:
        """Account one tick; return the stall that it ends, if any."""
        if tick.in_motion and not tick.is_covered:
            self._first = self._first or tick
            self._last = tick
            self.since_chunk += 1
            return None
        return self.close()

    def close(self) -> StallEvent | None:
        """End the open stall and return it, None if there is none."""
        first, last = self._first, self._last
        self._first = self._last = None
        if first is None or last is None:
            return None
        self._number += 1
        ticks = last.index - first.index + 1
        return StallEvent(
            number=self._number, stamp_ns=first.stamp_ns, first_index=first.index, ticks=ticks,
            duration_ns=ticks * self._period_ns, cause=first.cause, text=explain(first.cause),
        )


def joined(running: Running) -> str:
    """Return how a chunk was joined whose step was too large for what it asked for."""
    asked = f'(asked for {running.chunk.stitch.value})'
    if running.is_apart:
        return f'too far for a blend, joints held to little more than its own speed {asked}'
    return f'blended over {running.fitted_ns / S:.3g} s to stay within the limits {asked}'


def explain(cause: Cause) -> str:
    """Return what a cause means in words."""
    return EXPLANATIONS.get(cause.value, cause.value)


def advise(cause: Cause) -> str:
    """Return what a cause means and what to do."""
    remedy = REMEDIES.get(cause.value)
    return f'{explain(cause)}; {remedy}' if remedy else explain(cause)
