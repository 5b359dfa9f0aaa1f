"""What the bridge knows of the other nodes and of the two clocks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from reflex_ros.core.cause import NodeFacts, lives_far
from reflex_ros.core.clock import MS, ClockOffset
from reflex_ros.stages.base import ENCODER, POLICY

if TYPE_CHECKING:
    from reflex_ros.core.clock import Instant
    from reflex_ros.core.types import ActionChunk, StageStatus

JUMP_NS = 5 * MS
AGREEING_CHUNKS = 3


class NodeWatch:
    """Newest sign of life of the encoder and the policy."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeFacts] = {}

    def status(self, status: StageStatus, now_ns: int, *, is_far: bool = False) -> None:
        """Take a sign of life that arrived at ``now_ns`` (steady), maybe from another machine."""
        if status.node in (ENCODER, POLICY):
            self._nodes[status.node] = NodeFacts(status, now_ns, is_far=is_far)

    @property
    def live_far(self) -> bool:
        """Whether encoder and policy live on another machine."""
        return lives_far(self._nodes.values())

    def restart(self, now_ns: int, *, only_far: bool = False) -> None:
        """Count the silence of known nodes from ``now_ns``: who was not listening cannot judge.

        Args:
            now_ns: The present, steady.
            only_far: Whether only those on another machine could not be heard.
        """
        for name, known in self._nodes.items():
            if known.is_far or not only_far:
                received_ns = max(known.received_ns, now_ns)
                self._nodes[name] = replace(known, received_ns=received_ns)

    def exited(self, node: str) -> None:
        """Note that a supervisor saw the process of ``node`` end."""
        known = self._nodes.get(node)
        if known is not None:
            self._nodes[node] = replace(known, has_exited=True)

    def facts(self, node: str) -> NodeFacts | None:
        """Return what is known of ``node``, None before its first sign of life."""
        return self._nodes.get(node)


class ClockWatch:
    """Offset between the clocks; distrusts it after a jump until three chunks agree.

    The plan goes on in steady time meanwhile; only the conversion of new stamps is in doubt.

    Args:
        now: First pair.
        uses_sim_time: Whether ROS time comes from ``/clock``: then it may run at its own pace,
            and only a step backward counts.
    """

    def __init__(self, now: Instant, *, uses_sim_time: bool = False) -> None:
        self._uses_sim_time = uses_sim_time
        self._last_stamp_ns = now.stamp_ns
        self._agreeing = 0
        self._skew_ns = 0
        self.offset = ClockOffset.at(now)
        self.is_trusted = True
        self.ahead_ns = 0
        """How far ROS time on the machine of the policy is ahead of ours, where it is another."""

    def watch(self, now: Instant) -> bool:
        """Compare a new pair; return True if simulated time went back (a new epoch)."""
        seen = ClockOffset.at(now)
        went_back = now.stamp_ns < self._last_stamp_ns - JUMP_NS
        self._last_stamp_ns = now.stamp_ns
        if self._uses_sim_time:
            self.offset = seen
            return went_back
        if abs(seen.offset_ns - self.offset.offset_ns) > JUMP_NS:
            self.is_trusted = False
            self._agreeing = 0
        self.offset = seen
        return False

    def chunk(self, chunk: ActionChunk) -> None:
        """Let a chunk vote: its own pair of clock readings must agree with the present offset.

        A policy on another machine has another steady clock. Its pairs differ from ours by a
        constant, so they must agree with one another.
        """
        skew_ns = self._skew_of(chunk)
        is_agreeing = min(abs(skew_ns), abs(skew_ns - self._skew_ns)) <= JUMP_NS
        self._skew_ns = skew_ns
        if not self.is_trusted:
            self._agreeing = self._agreeing + 1 if is_agreeing else 0
            self.is_trusted = self._agreeing >= AGREEING_CHUNKS

    def inference_start_ns(self, chunk: ActionChunk) -> int:
        """Return the start of a chunk's inference on our steady clock, 0 if it is unknown.

        Of a policy on another machine it is known by its stamp alone.
        """
        is_ours = self._uses_sim_time or abs(self._skew_of(chunk)) <= JUMP_NS
        if not chunk.inference_start_ns or is_ours or not self.is_trusted:
            return chunk.inference_start_ns
        return self.offset.to_mono(chunk.inference_start_stamp_ns - self.ahead_ns)

    def _skew_of(self, chunk: ActionChunk) -> int:
        pair_ns = chunk.inference_start_stamp_ns - chunk.inference_start_ns
        return pair_ns - self.offset.offset_ns
