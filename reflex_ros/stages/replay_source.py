"""What a bag gives to a replay: cameras, states, true states, instructions, times.

Small topics are read at once; images are streamed. All times are put on one axis, that of the
recorder's receipt; with ``/clock`` in the bag, ROS time is what it said, else it is that axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from reflex_ros.bag import values
from reflex_ros.bag.read import BagMessage, BagReader
from reflex_ros.core.clock import S
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.types import JOINT_NAMES, FloatArray
from reflex_ros.stages.replay_costs import (
    TRANSPORT,
    TRANSPORT_BLOCK,
    TRANSPORT_PLAN,
    Samples,
)

if TYPE_CHECKING:
    from reflex_ros.core.types import ChunkTrace, ControlTick, StageTime

T = TypeVar('T')

SAME_CLOCK_NS = 10 * S
"""A stage that began further from its observation ran on another machine's clock."""
POLICY_STAGES = frozenset({'stage_copy', 'denoise', 'decode'})
_IMAGES = ('sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage')
_UNTIMED = ('delay_pad',)


@dataclass(frozen=True, slots=True)
class States:
    """Recorded joint states: when (axis, ns, rising), position and velocity ``float64[N, J]``."""

    at_ns: Any
    position: FloatArray
    velocity: FloatArray

    def at(self, axis_ns: int) -> tuple[FloatArray, FloatArray]:
        """Return position and velocity at a time, linear in between, held outside."""
        after = int(np.searchsorted(self.at_ns, axis_ns))
        if after == 0 or after == len(self.at_ns):
            row = min(after, len(self.at_ns) - 1)
            return self.position[row], np.zeros(self.position.shape[1])
        low, high = int(self.at_ns[after - 1]), int(self.at_ns[after])
        share = (axis_ns - low) / (high - low)
        return (
            self.position[after - 1] + share * (self.position[after] - self.position[after - 1]),
            self.velocity[after - 1] + share * (self.velocity[after] - self.velocity[after - 1]),
        )


@dataclass(frozen=True, slots=True)
class Recorded:
    """A bag as a replay needs it.

    Attributes:
        folder: The bag. ``prefix``: namespace of its topics, '' or ``/name``.
        start_ns, stop_ns: First tick and the end of the last one, on the axis.
        start_stamp_ns: ROS time at the start.
        uses_sim_time: Whether ROS time is that of the recorded ``/clock``.
        ticks, traces: What was recorded of them.
        states: The arm. ``samples``: durations by stage.
        instructions: (axis, text), oldest first.
        cameras: Topic of each camera that has images.
        has_truth: Whether the simulator's true state was recorded.
    """

    folder: Path
    prefix: str
    start_ns: int
    stop_ns: int
    start_stamp_ns: int
    uses_sim_time: bool
    ticks: tuple[ControlTick, ...]
    traces: tuple[ChunkTrace, ...]
    states: States
    samples: Mapping[str, Samples]
    instructions: tuple[tuple[int, str], ...]
    cameras: Mapping[str, str]
    has_truth: bool

    def events(self, reader: BagReader) -> Iterator[BagMessage]:
        """Yield images, true states and ``/clock`` from the start on, in order of receipt."""
        wanted = [*self.cameras.values()]
        if self.has_truth:
            wanted.append(f'{self.prefix}/sim_truth')
        if self.uses_sim_time:
            wanted.append('/clock')
        if wanted:
            yield from reader.messages(*wanted, start_ns=self.start_ns, stop_ns=self.stop_ns)


def read_recorded(folder: Path | str, *, cameras: Mapping[str, str] | None = None) -> Recorded:
    """Read what a replay needs of a bag; one whose recorder was killed must be repaired first.

    Args:
        folder: The bag.
        cameras: Relative topic of each camera; None for ``camera/<name>/image_raw``.

    Raises:
        ConfigError: It is no bag, or none of a run: without ticks or states of the arm.
        LayoutError: It was recorded by another version.
    """
    with BagReader(folder) as reader:
        prefix = _prefix(reader)
        has_clock = '/clock' in reader.topics and reader.topics['/clock'].messages > 0
        received, ticks = _decoded(reader, f'{prefix}/control_tick', values.control_tick)
        _, traces = _decoded(reader, f'{prefix}/chunk_trace', values.chunk_trace)
        if not ticks:
            raise _foreign(reader.folder, 'no control_tick')
        stamps = received if has_clock else [tick.stamp_ns for tick in ticks]
        pairs = sorted(zip(ticks, stamps, strict=True), key=lambda pair: pair[0].index)
        ticks, stamps = [tick for tick, _ in pairs], [stamp for _, stamp in pairs]
        offset_ns = _median([s - tick.due_ns for s, tick in zip(stamps, ticks, strict=True)])
        start_ns = ticks[0].due_ns + offset_ns
        period_ns = _period(ticks)
        return Recorded(
            folder=reader.folder, prefix=prefix, start_ns=start_ns,
            stop_ns=ticks[-1].due_ns + offset_ns + period_ns,
            start_stamp_ns=ticks[0].stamp_ns, uses_sim_time=has_clock,
            ticks=tuple(ticks), traces=tuple(traces),
            states=_states(reader, prefix, ticks, stamps, is_received=has_clock),
            samples=_samples(reader, prefix, traces, offset_ns, is_clock_simulated=has_clock),
            instructions=_instructions(reader, prefix, is_received=has_clock),
            cameras=_cameras(reader, prefix, cameras),
            has_truth=_has(reader, f'{prefix}/sim_truth'),
        )


def _prefix(reader: BagReader) -> str:
    found = reader.find('control_tick')
    if found is None:
        raise _foreign(reader.folder, f'topics {", ".join(sorted(reader.topics)) or "none"}')
    return found.removesuffix('/control_tick')


def _foreign(folder: Path, got: str) -> ConfigError:
    return ConfigError(
        f'bag {folder} cannot be replayed: got {got}, expected the bag of a run with ticks of '
        'the control loop and states of the arm. Give a bag that the recorder of this suite made.'
    )


def _has(reader: BagReader, name: str) -> bool:
    return name in reader.topics and reader.topics[name].messages > 0


def _decoded(reader: BagReader, name: str,
             decode: Callable[[Any], T]) -> tuple[list[int], list[T]]:
    if not _has(reader, name):
        return [], []
    found = [(stamp_ns, decode(message)) for _, stamp_ns, message in reader.values(name)]
    return [stamp_ns for stamp_ns, _ in found], [value for _, value in found]


def _median(numbers: list[int]) -> int:
    return sorted(numbers)[len(numbers) // 2]


def _period(ticks: list[ControlTick]) -> int:
    steps = ticks[-1].index - ticks[0].index
    return round((ticks[-1].due_ns - ticks[0].due_ns) / steps) if steps else 0


def _states(reader: BagReader, prefix: str, ticks: list[ControlTick], stamps: Any, *,
            is_received: bool) -> States:
    name = f'{prefix}/joint_states'
    rows: list[tuple[int, Any, Any]] = []
    if _has(reader, name):
        for _, received_ns, msg in reader.values(name):
            at_ns = received_ns if is_received else values.stamp_of(msg.header.stamp)
            rows.append((at_ns, _by_name(msg, 'position'), _by_name(msg, 'velocity')))
    else:
        rows = [(s, t.measured, None) for s, t in zip(stamps, ticks, strict=True)]
    rows = [row for row in rows if row[1] is not None and len(row[1]) and (
        np.isfinite(row[1]).all())]
    newest = np.maximum.accumulate([0, *(row[0] for row in rows)])
    rows = [row for row, before in zip(rows, newest[:-1], strict=True) if row[0] > before]
    if not rows:
        raise _foreign(reader.folder, 'no state of the arm')
    times = np.array([row[0] for row in rows], np.int64)
    position = np.array([row[1] for row in rows], np.float64)
    velocity = np.array([row[2] if row[2] is not None else np.full(position.shape[1], np.nan)
                         for row in rows], np.float64)
    return States(times, position, _finite(velocity, position, times))


def _by_name(msg: Any, field: str) -> FloatArray | None:
    names, numbers = list(msg.name), getattr(msg, field)
    if set(names) != set(JOINT_NAMES) or len(numbers) != len(names):
        return None
    return np.array([numbers[names.index(name)] for name in JOINT_NAMES])


def _finite(velocity: FloatArray, position: FloatArray, at_ns: Any) -> FloatArray:
    """Return the velocities, from the positions where none was recorded."""
    if len(at_ns) < 2:
        return np.nan_to_num(velocity)
    slope = np.gradient(position, at_ns / S, axis=0)
    return np.where(np.isfinite(velocity), velocity, slope)


def _note(found: dict[str, dict[int, int]], name: str, sent_ns: int, received_ns: int) -> None:
    """Note a transport, unless the clocks of both ends do not fit."""
    if 0 <= received_ns - sent_ns < SAME_CLOCK_NS:
        found.setdefault(name, {})[sent_ns] = received_ns - sent_ns


def _samples(reader: BagReader, prefix: str, traces: list[ChunkTrace],
             offset_ns: int, *, is_clock_simulated: bool) -> dict[str, Samples]:
    """Return durations by stage; encoder stages of unused blocks count as well."""
    found: dict[str, dict[int, int]] = {}

    def add(stages: tuple[StageTime, ...] | list[Any], observation_ns: int) -> None:
        for stage in stages:
            if stage.name in _UNTIMED:
                continue
            at_ns = stage.start_ns + offset_ns
            if abs(at_ns - observation_ns) > SAME_CLOCK_NS:
                at_ns = observation_ns
            found.setdefault(stage.name, {})[at_ns] = max(0, stage.end_ns - stage.start_ns)

    blocks = f'{prefix}/kv_block'
    if _has(reader, blocks):
        for _, received_ns, msg in reader.values(blocks):
            add(msg.stages, received_ns)
            if msg.stages and not is_clock_simulated:
                sent_ns = int(msg.stages[-1].end_ns) + offset_ns
                _note(found, TRANSPORT_BLOCK, sent_ns, received_ns)
    plans = f'{prefix}/plan'
    if _has(reader, plans) and not is_clock_simulated:
        for _, received_ns, msg in reader.values(plans):
            _note(found, TRANSPORT_PLAN, values.stamp_of(msg.header.stamp), received_ns)
    for trace in traces:
        add(trace.stages, trace.accepted_ns + offset_ns)
        own = [stage.end_ns for stage in trace.stages if stage.name in (*POLICY_STAGES, *_UNTIMED)]
        if own and trace.accepted_ns:
            rest_ns = max(0, trace.accepted_ns - max(own))
            found.setdefault(TRANSPORT, {})[max(own) + offset_ns] = rest_ns
    return {
        name: Samples(tuple(sorted(calls)), tuple(calls[at] for at in sorted(calls)))
        for name, calls in found.items()
    }


def _instructions(reader: BagReader, prefix: str, *,
                  is_received: bool) -> tuple[tuple[int, str], ...]:
    found: list[tuple[int, str]] = []
    if _has(reader, f'{prefix}/task'):
        for _, received_ns, msg in reader.values(f'{prefix}/task'):
            at_ns = received_ns if is_received else values.stamp_of(msg.header.stamp)
            if not found or found[-1][1] != msg.instruction:
                found.append((at_ns, str(msg.instruction)))
    return tuple(found)


def _cameras(reader: BagReader, prefix: str,
             named: Mapping[str, str] | None) -> dict[str, str]:
    if named is not None:
        full = {c: t if t.startswith('/') else f'{prefix}/{t}' for c, t in named.items()}
        full = {c: t if _has(reader, t) else f'{t}/compressed' for c, t in full.items()}
        return {c: t for c, t in full.items() if _has(reader, t)}
    start = f'{prefix}/camera/'
    found: dict[str, str] = {}
    for name, info in sorted(reader.topics.items()):
        if info.type in _IMAGES and info.messages and name.startswith(start):
            found.setdefault(name[len(start):].split('/')[0], name)
    return found
