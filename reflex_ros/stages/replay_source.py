"""What a bag gives to a replay: cameras, states, true states, instructions, times.

Small topics are read at once; images are streamed. All times are put on one axis, that of the
recorder's receipt; with ``/clock`` in the bag, ROS time is what it said, else it is that axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from reflex_ros.bag import values
from reflex_ros.bag.read import BagMessage, BagReader
from reflex_ros.core.clock import S
from reflex_ros.core.clock_steps import ClockSteps, find_steps
from reflex_ros.core.errors import ConfigError, LayoutError
from reflex_ros.core.grid import plausible, several_runs, usual_period_ns
from reflex_ros.core.straight import straight_traces
from reflex_ros.core.types import JOINT_NAMES, FloatArray
from reflex_ros.stages.replay_costs import (
    TRANSPORT,
    TRANSPORT_BLOCK,
    TRANSPORT_PLAN,
    Samples,
)
from reflex_ros.stages.replay_straight import LONGEST_NS, StraightReader

if TYPE_CHECKING:
    from reflex_ros.core.types import ChunkTrace, ControlTick, StageTime

T = TypeVar('T')
Bag = BagReader | StraightReader

SAME_CLOCK_NS = 10 * S
"""A stage that began further from its observation ran on another machine's clock."""
FAR_NS = 10 * S
"""A stamp so far from where the others say it should be was damaged."""
ENDLESS_NS = 600 * S
"""No stage of a run that went on took so long."""
POLICY_STAGES = frozenset({'stage_copy', 'denoise', 'decode'})
_IMAGES = ('sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage')
FEW_RECEIPTS = 0.02
"""Share of ticks with a receipt far from their stamps that is still damage."""
_UNTIMED = ('delay_pad',)


@dataclass(frozen=True, slots=True)
class States:
    """Recorded joint states: when (axis, ns, rising), position and velocity ``float64[N, J]``."""

    at_ns: Any
    position: FloatArray
    velocity: FloatArray

    def at(self, axis_ns: int) -> tuple[FloatArray, FloatArray]:
        """Return position and velocity at a time, linear in between, held outside."""
        after = int(self.at_ns.searchsorted(axis_ns))
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
        notes: What was left out because it is damaged, and steps of the clock, in words.
        steps: Steps of ROS time that were taken out; None where stamps and receipts stand.
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
    notes: tuple[str, ...] = ()
    steps: ClockSteps | None = None

    def events(self, reader: BagReader) -> Iterator[BagMessage]:
        """Yield images, true states and ``/clock`` from the start on, in order of receipt."""
        wanted = [*self.cameras.values()]
        if self.has_truth:
            wanted.append(f'{self.prefix}/sim_truth')
        if self.uses_sim_time:
            wanted.append('/clock')
        if wanted:
            source = StraightReader(reader, self.steps, []) if self.steps else reader
            yield from source.messages(*wanted, start_ns=self.start_ns, stop_ns=self.stop_ns)


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
        notes: list[str] = []
        received, ticks = _decoded(reader, f'{prefix}/control_tick', values.control_tick, notes)
        _, traces = _decoded(reader, f'{prefix}/chunk_trace', values.chunk_trace, notes)
        if not ticks:
            raise _foreign(reader.folder, 'no control_tick')
        if got := several_runs([t.index for t in ticks], [t.due_ns for t in ticks]):
            raise _foreign(reader.folder, f'two runs: {got}')
        steps = None if has_clock else _steps_of(ticks, received, notes)
        source: Bag = reader
        if steps is not None:
            source = StraightReader(reader, steps, notes)
            ticks, received, traces = _straight(ticks, received, traces, steps)
        ticks, stamps, period_ns = _on_grid(ticks, received, notes, is_received=has_clock)
        offset_ns = _median([s - tick.due_ns for s, tick in zip(stamps, ticks, strict=True)])
        start_ns = ticks[0].due_ns + offset_ns
        return Recorded(
            folder=reader.folder, prefix=prefix, start_ns=start_ns,
            stop_ns=ticks[-1].due_ns + offset_ns + period_ns,
            start_stamp_ns=ticks[0].stamp_ns, uses_sim_time=has_clock,
            ticks=tuple(ticks), traces=tuple(traces),
            states=_states(source, prefix, ticks, stamps, notes, is_received=has_clock),
            samples=_samples(source, prefix, traces, offset_ns, notes,
                             is_clock_simulated=has_clock),
            instructions=_instructions(source, prefix, notes, is_received=has_clock),
            cameras=_cameras(reader, prefix, cameras),
            has_truth=_has(reader, f'{prefix}/sim_truth'),
            notes=tuple(dict.fromkeys(notes)), steps=steps,
        )


def _steps_of(ticks: list[ControlTick], received: list[int],
              notes: list[str]) -> ClockSteps | None:
    """Return the steps of the clock, none of them where receipts alone are wrong; else None."""
    order = sorted(ticks, key=lambda tick: tick.index)
    steps = find_steps([t.due_ns for t in order], [t.stamp_ns for t in order])
    notes += [f'{text}: replayed without the step' for text in steps.words()]
    near = [abs(at_ns - tick.stamp_ns) < LONGEST_NS
            for at_ns, tick in zip(received, ticks, strict=True)]
    if near.count(False) > FEW_RECEIPTS * len(near):
        notes.append(f'{near.count(False)} of {len(near)} ticks were received far from their '
                     'stamps: receipts are those that the stamps tell')
        return steps
    return steps if steps.steps_ns else None


def _straight(ticks: list[ControlTick], received: list[int], traces: list[ChunkTrace],
              steps: ClockSteps) -> tuple[list[ControlTick], list[int], list[ChunkTrace]]:
    """Return what was recorded with straight stamps, and receipts at the ticks."""
    shifts = steps.shifts_ns([tick.due_ns for tick in ticks])
    moved = [replace(tick, stamp_ns=tick.stamp_ns - int(shift))
             for tick, shift in zip(ticks, shifts, strict=True)]
    return moved, [tick.stamp_ns for tick in moved], list(straight_traces(
        traces, steps, [t.stamp_ns for t in ticks], [t.stamp_ns for t in moved]))


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


def _has(reader: Bag, name: str) -> bool:
    return name in reader.topics and reader.topics[name].messages > 0


def _values(reader: Bag, name: str, notes: list[str]) -> Iterator[tuple[int, Any]]:
    """Yield (receipt, message) of a topic, less what cannot be decoded; notes how many."""
    lost = 0
    for message in reader.messages(name):
        try:
            value = reader.decode(message)
        except LayoutError:
            lost += 1
            continue
        yield message.stamp_ns, value
    if lost:
        notes.append(f'{name}: {lost} messages are left out: they cannot be decoded')


def _decoded(reader: BagReader, name: str, decode: Callable[[Any], T],
             notes: list[str]) -> tuple[list[int], list[T]]:
    stamps: list[int] = []
    found: list[T] = []
    if not _has(reader, name):
        return stamps, found
    errors: list[Exception] = []
    for stamp_ns, message in _values(reader, name, notes):
        try:
            found.append(decode(message))
            stamps.append(stamp_ns)
        except (LayoutError, ValueError, OverflowError) as error:
            errors.append(error)
    if errors and not found:
        raise errors[0]
    if errors:
        notes.append(f'{name}: {len(errors)} messages are left out: {errors[0]}')
    return stamps, found


def _on_grid(ticks: list[ControlTick], received: list[int], notes: list[str], *,
             is_received: bool) -> tuple[list[ControlTick], list[int], int]:
    """Return the ticks that can be true, when each was on the axis, and their period."""
    stamps = received if is_received else [tick.stamp_ns for tick in ticks]
    order = sorted(range(len(ticks)), key=lambda at: ticks[at].index)
    index, due = [ticks[at].index for at in order], [ticks[at].due_ns for at in order]
    period_ns = usual_period_ns(index, due, 0)
    fits = plausible(index, due, period_ns)
    offset_ns = _median([stamps[at] - ticks[at].due_ns for at, fit in zip(order, fits, strict=True)
                         if fit] or [0])
    near = [bool(fit) and abs(stamps[at] - ticks[at].due_ns - offset_ns) < FAR_NS
            for at, fit in zip(order, fits, strict=True)]
    if not all(near):
        notes.append(f'control_tick: {near.count(False)} of {len(near)} ticks are left out: their '
                     'instants do not fit their indices, or lie far from all others')
    kept = [at for at, is_near in zip(order, near, strict=True) if is_near]
    return [ticks[at] for at in kept], [stamps[at] for at in kept], period_ns


def _near(name: str, rows: list[tuple[int, int, Any]],
          notes: list[str]) -> list[tuple[int, Any]]:
    """Return (stamp, value) of rows (stamp, receipt, value) whose stamp can be true."""
    usual_ns = _median([stamp - received for stamp, received, _ in rows] or [0])
    kept = [(stamp, value) for stamp, received, value in rows
            if abs(stamp - received - usual_ns) < FAR_NS]
    if len(kept) < len(rows):
        notes.append(f'{name}: {len(rows) - len(kept)} messages are left out: their stamps lie '
                     'far from their receipt')
    return kept


def _median(numbers: list[int]) -> int:
    return sorted(numbers)[len(numbers) // 2]


def _states(reader: Bag, prefix: str, ticks: list[ControlTick], stamps: Any,
            notes: list[str], *, is_received: bool) -> States:
    name = f'{prefix}/joint_states'
    rows: list[tuple[int, Any, Any]] = []
    if _has(reader, name):
        found = [
            (received_ns if is_received else values.stamp_of(msg.header.stamp), received_ns,
             (_by_name(msg, 'position'), _by_name(msg, 'velocity')))
            for received_ns, msg in _values(reader, name, notes)
        ]
        rows = [(at_ns, *both) for at_ns, both in _near(name, found, notes)]
    else:
        rows = [(s, t.measured, None) for s, t in zip(stamps, ticks, strict=True)]
    whole = [row for row in rows if row[1] is not None and len(row[1]) and (
        np.isfinite(row[1]).all())]
    if len(whole) < len(rows) and _has(reader, name):
        notes.append(f'{name}: {len(rows) - len(whole)} states are left out: they do not have a '
                     'finite position of each joint')
    rows = whole
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


def _samples(reader: Bag, prefix: str, traces: list[ChunkTrace], offset_ns: int,
             notes: list[str], *, is_clock_simulated: bool) -> dict[str, Samples]:
    """Return durations by stage; encoder stages of unused blocks count as well."""
    found: dict[str, dict[int, int]] = {}
    endless: list[str] = []

    def add(stages: tuple[StageTime, ...] | list[Any], observation_ns: int) -> None:
        for stage in stages:
            if stage.name in _UNTIMED:
                continue
            at_ns = stage.start_ns + offset_ns
            if abs(at_ns - observation_ns) > SAME_CLOCK_NS:
                at_ns = observation_ns
            if stage.end_ns - stage.start_ns > ENDLESS_NS:
                endless.append(stage.name)
                continue
            found.setdefault(stage.name, {})[at_ns] = max(0, stage.end_ns - stage.start_ns)

    blocks = f'{prefix}/kv_block'
    if _has(reader, blocks):
        for received_ns, msg in _values(reader, blocks, notes):
            add(msg.stages, received_ns)
            if msg.stages and not is_clock_simulated:
                sent_ns = int(msg.stages[-1].end_ns) + offset_ns
                _note(found, TRANSPORT_BLOCK, sent_ns, received_ns)
    plans = f'{prefix}/plan'
    if _has(reader, plans) and not is_clock_simulated:
        for received_ns, msg in _values(reader, plans, notes):
            _note(found, TRANSPORT_PLAN, values.stamp_of(msg.header.stamp), received_ns)
    for trace in traces:
        add(trace.stages, trace.accepted_ns + offset_ns)
        own = [stage.end_ns for stage in trace.stages if stage.name in (*POLICY_STAGES, *_UNTIMED)]
        if own and trace.accepted_ns:
            rest_ns = max(0, trace.accepted_ns - max(own))
            if rest_ns > ENDLESS_NS:
                endless.append(TRANSPORT)
                continue
            found.setdefault(TRANSPORT, {})[max(own) + offset_ns] = rest_ns
    notes += [f'{name}: {endless.count(name)} durations are left out: longer than '
              f'{ENDLESS_NS // S} s' for name in sorted(set(endless))]
    return {
        name: Samples(tuple(sorted(calls)), tuple(calls[at] for at in sorted(calls)))
        for name, calls in found.items()
    }


def _instructions(reader: Bag, prefix: str, notes: list[str], *,
                  is_received: bool) -> tuple[tuple[int, str], ...]:
    name, found = f'{prefix}/task', []
    if _has(reader, name):
        for received_ns, msg in _values(reader, name, notes):
            at_ns = received_ns if is_received else values.stamp_of(msg.header.stamp)
            found.append((at_ns, str(msg.instruction)))
    return tuple(task for number, task in enumerate(found)
                 if not number or found[number - 1][1] != task[1])


def _cameras(reader: BagReader, prefix: str,
             named: Mapping[str, str] | None) -> dict[str, str]:
    if named is not None:
        full = {c: t if t.startswith('/') else f'{prefix}/{t}' for c, t in named.items()}
        full = {c: max((t, f'{t}/compressed'), key=lambda name: _count(reader, name))
                for c, t in full.items()}
        return {c: t for c, t in full.items() if _has(reader, t)}
    start = f'{prefix}/camera/'
    found: dict[str, str] = {}
    for name, info in sorted(reader.topics.items()):
        if info.type in _IMAGES and info.messages and name.startswith(start):
            # a few may be stored as they came beside the compressed ones
            camera = name[len(start):].split('/')[0]
            if camera not in found or info.messages > _count(reader, found[camera]):
                found[camera] = name
    return found


def _count(reader: BagReader, name: str) -> int:
    return reader.topics[name].messages if name in reader.topics else 0
