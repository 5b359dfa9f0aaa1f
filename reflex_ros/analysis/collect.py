"""One pass over the bags of a run: what the figures need, images left where they are."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from reflex_ros.analysis.numbers import Numbers, is_count, is_possible
from reflex_ros.analysis.source import Source
from reflex_ros.bag import values
from reflex_ros.bag.counts import NUMBERED, read_number
from reflex_ros.bag.read import BagMessage
from reflex_ros.bag.run_folder import RECORDER_REPORT
from reflex_ros.core.clock import S
from reflex_ros.core.errors import ConfigError, LayoutError
from reflex_ros.core.grid import several_runs
from reflex_ros.core.types import ChunkTrace, ControlTick, SimTruth, StallEvent
from reflex_ros.core.yaml_text import parse_json, parse_yaml

IMAGES = ('sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage')
JOINTS = 'sensor_msgs/msg/JointState'
UNNUMBERED = (JOINTS, 'diagnostic_msgs/msg/DiagnosticArray', 'rosgraph_msgs/msg/Clock')
"""Types without a number: what the recorder wrote and is not there is lost, no more is known."""
_OURS = 'reflex_msgs/msg/'


@dataclass(frozen=True, slots=True)
class Seen:
    """A camera as the encoder saw it: ns since its newest frame, -1 without any; equal frames."""

    camera: str
    silent_ns: int
    equal_frames: int


@dataclass(frozen=True, slots=True)
class Status:
    """A sign of life, of which reports need these fields; see ``core.types.StageStatus``."""

    stamp_ns: int
    node: str
    state: str
    busy_since_ns: int
    sent_ns: int
    ring_ok: bool
    reason: str
    cameras: tuple[Seen, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """Frames of one observation: ROS time of each, primary first, and the cameras' names."""

    stamp_ns: int
    cameras: tuple[str, ...]
    stamps_ns: tuple[int, ...]


@dataclass(slots=True)
class Recorded:
    """What the bags of a run hold.

    Attributes:
        ticks, traces, stalls, truths, statuses, blocks: Messages in the order of their receipt.
        execute_steps, mode: As the first chunk says; None without one.
        images: ROS times of the frames of each image topic.
        joint_stamps: ROS times of the joint states.
        numbers: Numbers by (topic, publisher). ``read``: messages read by topic.
        counts: Messages that the metadata promise, by topic.
        written: Messages that the recorder says it wrote, by topic; empty without its report.
        types: Type of each topic.
        undecodable: Messages by topic that could not be decoded. ``reasons``: why the first one
            of a topic was refused, where its values say it.
        notes: What could not be read, in words.
    """

    ticks: list[ControlTick] = field(default_factory=list)
    traces: list[ChunkTrace] = field(default_factory=list)
    stalls: list[StallEvent] = field(default_factory=list)
    truths: list[SimTruth] = field(default_factory=list)
    statuses: list[Status] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    execute_steps: int | None = None
    images: dict[str, list[int]] = field(default_factory=dict)
    joint_stamps: list[int] = field(default_factory=list)
    numbers: dict[tuple[str, str], Numbers] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    undecodable: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def topics_of(self, kind: str) -> list[str]:
        """Return the topics of a short type name of ``reflex_msgs``."""
        return [name for name, full in self.types.items() if full == _OURS + kind]


def collect(sources: Iterable[Source]) -> Recorded:
    """Read the bags of one run, oldest first.

    Raises:
        ConfigError: Two namespaces publish the same topic of the suite, or there are the ticks of
            two runs.
    """
    found = Recorded()
    for source in sources:
        for message in source.messages(_is_wanted):
            _take(found, source, message)
        source.close()
        _take_report(found, source.path)
        for topic, count in source.counts.items():
            found.counts[topic] = found.counts.get(topic, 0) + count
        found.types |= source.types
        found.notes += source.notes
    _note_damage(found)
    _check_namespaces(found)
    _check_runs(found)
    return found


def _is_wanted(topic: str, kind: str) -> bool:
    return kind.startswith(_OURS) or kind in IMAGES or kind in UNNUMBERED


def _take(found: Recorded, source: Source, message: BagMessage) -> None:
    found.read[message.topic] = found.read.get(message.topic, 0) + 1
    try:
        if message.type in IMAGES:
            found.images.setdefault(message.topic, []).append(header_stamp(message.data))
        elif message.type == JOINTS:
            found.joint_stamps.append(header_stamp(message.data))
        elif message.type.startswith(_OURS):
            _count(found, message)
            take = _TAKERS.get(message.type.removeprefix(_OURS))
            if take is not None:
                take(found, source.decode(message))
    except LayoutError as error:
        if message.topic not in found.undecodable:
            found.notes.append(f'{message.topic}: {error}')
            found.reasons[message.topic] = str(error)
        _bad(found, message.topic)
    except Exception:  # the library raises anything for damaged bytes
        _bad(found, message.topic)


def _bad(found: Recorded, topic: str) -> None:
    found.undecodable[topic] = found.undecodable.get(topic, 0) + 1


def _count(found: Recorded, message: BagMessage) -> None:
    if message.type.startswith(NUMBERED):
        publisher, number = read_number(message.type, message.data)
        found.numbers.setdefault((message.topic, publisher), Numbers()).add(number)


def header_stamp(data: bytes) -> int:
    """Return the ROS time in the header that a serialized message begins with."""
    sec, nanosec = struct.unpack_from('<iI' if data[1] & 1 else '>iI', data, 4)
    return int(sec) * S + int(nanosec)


def _tick(found: Recorded, msg: Any) -> None:
    found.ticks.append(values.control_tick(msg))


def _trace(found: Recorded, msg: Any) -> None:
    found.traces.append(values.chunk_trace(msg))


def _stall(found: Recorded, msg: Any) -> None:
    found.stalls.append(values.stall_event(msg))


def _truth(found: Recorded, msg: Any) -> None:
    found.truths.append(values.sim_truth(msg))


def _status(found: Recorded, msg: Any) -> None:
    found.statuses.append(Status(
        values.stamp_of(msg.header.stamp), str(msg.node), str(msg.state), int(msg.busy_since_ns),
        int(msg.sent_ns), bool(msg.ring_ok), str(msg.reason),
        tuple(Seen(str(c.camera), int(msg.sent_ns - c.last_received_ns) if c.last_received_ns
                   else -1, int(c.equal_frames)) for c in msg.cameras)))


def _block(found: Recorded, msg: Any) -> None:
    found.blocks.append(Block(
        values.stamp_of(msg.header.stamp), tuple(map(str, msg.camera_names)),
        tuple(values.stamp_of(stamp) for stamp in msg.camera_stamps)))


def _chunk(found: Recorded, msg: Any) -> None:
    if found.execute_steps is None:
        found.execute_steps = int(msg.execute_steps)


_TAKERS = MappingProxyType({
    'ControlTick': _tick, 'ChunkTrace': _trace, 'StallEvent': _stall, 'SimTruth': _truth,
    'StageStatus': _status, 'KvBlock': _block, 'ActionChunk': _chunk,
})


def _take_report(found: Recorded, path: Path) -> None:
    """Take what the recorder itself counted: it knows the first and the last message."""
    try:
        text = (path / RECORDER_REPORT).read_text(encoding='utf-8')
        report = parse_json(text)
        if report['error']:
            found.notes.append(f'{path.name}: the recorder ended early: {report["error"]}')
        for topic, text in report.get('unheard', {}).items():
            found.notes.append(f'{topic}: {text}')
        for topic, counts in report['topics'].items():
            if 'stored_as_it_came' in counts:
                found.notes.append(f'{topic}: {counts["written"]} images were stored as they '
                                   f'came: {counts["stored_as_it_came"]}')
            _take_counts(found, path.name, topic, counts)
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        found.notes.append(f'{path.name}: {RECORDER_REPORT} cannot be read')


def _take_counts(found: Recorded, bag: str, topic: str, counts: Any) -> None:
    written = counts['written']
    logs = {name: log for name, log in counts['publishers'].items() if log['messages']}
    if not is_count(written) or not all(map(is_possible, logs.values())):
        found.notes.append(f'{bag}: {RECORDER_REPORT} contradicts itself about {topic}: its '
                           'counts were not used')
        return
    found.written[topic] = found.written.get(topic, 0) + written
    for publisher, log in logs.items():
        if not log['restarts']:
            numbers = found.numbers.setdefault((topic, publisher), Numbers())
            numbers.bound(log['first'], log['last'])


def _note_damage(found: Recorded) -> None:
    for topic, count in sorted(found.undecodable.items()):
        found.notes.append(f'{topic}: {count} of {found.read[topic]} messages cannot be decoded')
    for topic, count in sorted(found.counts.items()):
        read = found.read.get(topic, 0)
        if _is_wanted(topic, found.types.get(topic, '')) and read < count:
            found.notes.append(f'{topic}: {read} of {count} messages could be read')


def unnumbered_missing(found: Recorded, topic: str) -> int:
    """Return how many messages of a topic without numbers the recorder wrote and nobody read."""
    return max(0, found.written.get(topic, 0) - found.read.get(topic, 0))


def _check_namespaces(found: Recorded) -> None:
    for kind in _TAKERS:
        topics = sorted(found.topics_of(kind))
        if len(topics) > 1:
            raise ConfigError(
                f'bag holds two suites: got {" and ".join(topics)}, expected one namespace. '
                'Record each arm into a bag of its own.'
            )


def _check_runs(found: Recorded) -> None:
    got = several_runs([t.index for t in found.ticks], [t.due_ns for t in found.ticks])
    if got:
        raise ConfigError(
            f'bag holds two runs: got {got}, expected those of one. Record each run into a bag of '
            'its own, or cut the bag.'
        )


def read_settings(path: Path) -> dict[str, Any]:
    """Return the parameters of all nodes by ``group.name``; {} without a readable file."""
    try:
        document = parse_yaml(path.read_text(encoding='utf-8')) or {}
        return dict(_settings(document))
    except (OSError, ValueError, AttributeError, yaml.YAMLError):
        return {}


def _settings(document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for section in document.values():
        for group, keys in section.get('ros__parameters', {}).items():
            for key, value in keys.items() if isinstance(keys, dict) else ():
                yield f'{group}.{key}', value
