"""Everything a run without ROS published, in order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from reflex_ros.core.types import (
    ActionChunk,
    ChunkTrace,
    ControlTick,
    KvBlock,
    Plan,
    SimTruth,
    StallEvent,
    Task,
)


@dataclass(slots=True)
class RunLog:
    """Lists by type, each in order of publication."""

    ticks: list[ControlTick] = field(default_factory=list)
    traces: list[ChunkTrace] = field(default_factory=list)
    stalls: list[StallEvent] = field(default_factory=list)
    truths: list[SimTruth] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    chunks: list[ActionChunk] = field(default_factory=list)
    blocks: list[KvBlock] = field(default_factory=list)
    _by_type: dict[type, list[Any]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Note which list takes which type."""
        self._by_type = {
            ControlTick: self.ticks, ChunkTrace: self.traces, StallEvent: self.stalls,
            SimTruth: self.truths, Plan: self.plans, Task: self.tasks,
            ActionChunk: self.chunks, KvBlock: self.blocks,
        }

    def add(self, value: object) -> None:
        """Append a published value to the list of its type."""
        self._by_type[type(value)].append(value)
