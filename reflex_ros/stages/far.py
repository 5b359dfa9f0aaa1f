"""Signs of life from another machine, whose steady clock counts from another instant.

Everything that decides a cause compares instants on our steady clock. A sign of life from this
machine has them already. One from another machine is shifted by what the quickest of the last
took from its sending to its arrival, so no instant depends on how well the clocks are set. The
way itself is in that, and a chunk may have been quicker by a little, so a margin is left out:
nothing may seem to have been sent later than it came.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from reflex_ros.core.clock import MS, S

if TYPE_CHECKING:
    from reflex_ros.core.clock import Instant
    from reflex_ros.core.types import CameraStatus, StageStatus

SAME_NS = 5 * MS
"""Both clocks of a message agree with ours to so much: it is from this machine."""
MARGIN_NS = 5 * MS
WINDOW = 50
"""Signs of life that are remembered: five seconds."""
AGREEING = 2
"""Signs of life in a row that must be far: one alone may have crossed a step of our clock."""
REBOOT_NS = 60 * S
"""No message is under way for so long: the steady clock began anew."""


class FarClock:
    """Shifts the instants of one node onto our steady clock. Not thread-safe."""

    def __init__(self) -> None:
        self._leads: deque[int] = deque(maxlen=WINDOW)
        self._were_far: deque[bool] = deque(maxlen=AGREEING)

    @property
    def is_far(self) -> bool:
        """Whether the newest signs of life came from another machine."""
        return all(self._were_far) and bool(self._were_far)

    def ours(self, status: StageStatus, now: Instant) -> StageStatus:
        """Return a sign of life that arrived at ``now`` with its instants on our steady clock."""
        skew_ns = (status.stamp_ns - status.sent_ns) - (now.stamp_ns - now.mono_ns)
        self._were_far.append(abs(skew_ns) > SAME_NS)
        if not self._were_far[-1]:
            return status
        lead_ns = now.mono_ns - status.sent_ns
        if self._leads and abs(lead_ns - min(self._leads)) > REBOOT_NS:
            self._leads.clear()
        self._leads.append(lead_ns)
        return shifted(status, min(self._leads) - MARGIN_NS)


class FarClocks:
    """One shift for each node.

    Args:
        uses_sim_time: Whether ROS time is simulated: then it tells nothing about a machine, and
            all is from this one.
    """

    def __init__(self, *, uses_sim_time: bool = False) -> None:
        self._uses_sim_time = uses_sim_time
        self._clocks: dict[str, FarClock] = {}

    def ours(self, status: StageStatus, now: Instant) -> StageStatus:
        """Return a sign of life that arrived at ``now`` with its instants on our steady clock."""
        if self._uses_sim_time:
            return status
        return self._clocks.setdefault(status.node, FarClock()).ours(status, now)

    def is_far(self, node: str) -> bool:
        """Return whether the newest signs of life of ``node`` came from another machine."""
        return node in self._clocks and self._clocks[node].is_far


def shifted(status: StageStatus, by_ns: int) -> StageStatus:
    """Return a sign of life with all its steady instants moved; 0 stays, it means never."""
    def moved(at_ns: int) -> int:
        return at_ns + by_ns if at_ns else 0

    def camera(known: CameraStatus) -> CameraStatus:
        return replace(known, last_received_ns=moved(known.last_received_ns),
                       content_since_ns=moved(known.content_since_ns))

    return replace(
        status, last_input_ns=moved(status.last_input_ns), sent_ns=moved(status.sent_ns),
        last_output_ns=moved(status.last_output_ns), busy_since_ns=moved(status.busy_since_ns),
        cameras=tuple(map(camera, status.cameras)),
    )
