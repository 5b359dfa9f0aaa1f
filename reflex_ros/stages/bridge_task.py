"""The instruction in force and its epoch, which belong to the bridge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reflex_ros.core.clock import S
from reflex_ros.core.types import Task

if TYPE_CHECKING:
    from reflex_ros.core.clock import Instant
    from reflex_ros.core.types import StageStatus

MAX_INSTRUCTION = 1000
"""Characters; no policy takes more, and every message of the epoch carries it."""
RETELL_NS = 1 * S
"""Shortest time between two publications of a task that did not change."""


class TaskBook:
    """Counts epochs and publications. Not thread-safe.

    Args:
        instruction: First instruction.
        now: Gives the first epoch: seconds of ROS time, so that no earlier run has had it.
    """

    def __init__(self, instruction: str, now: Instant) -> None:
        self.instruction = instruction
        self.epoch = now.stamp_ns // S
        self._number = self._told_ns = 0

    def begin(self, now: Instant) -> None:
        """Begin a run: a simulated clock may have begun only after the bridge was made."""
        self.epoch = max(self.epoch, now.stamp_ns // S)

    def tell(self, now: Instant) -> Task:
        """Return the task to publish."""
        self._number += 1
        self._told_ns = now.mono_ns
        return Task(self._number, now.stamp_ns, self.epoch, self.instruction)

    def retell(self, status: StageStatus, now: Instant) -> Task | None:
        """Return the task for a node that lives in another epoch, None if none does.

        Tasks are published on change alone: a node that a stray one misled, or that missed the
        true one, would else make nothing that the bridge may take, for ever.
        """
        is_astray = status.epoch not in (0, self.epoch)
        is_due = self._number > 0 and now.mono_ns - self._told_ns >= RETELL_NS
        return self.tell(now) if is_astray and is_due else None


def refusal(instruction: str) -> str:
    """Return why an instruction cannot be one, '' if it can."""
    if not instruction.strip():
        return 'Instruction: got an empty text, expected words.'
    if len(instruction) > MAX_INSTRUCTION:
        return (f'Instruction: got {len(instruction)} characters, expected at most '
                f'{MAX_INSTRUCTION}. Use a shorter one.')
    return ''
