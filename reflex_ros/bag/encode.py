"""Values of ``core.types`` as recorded messages, for runs without ROS that leave a bag as well."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reflex_ros.bag.files import BagFiles, BagTopic, offered_qos
from reflex_ros.bag.schema import Schema, find_schema, typestore_of
from reflex_ros.bag.values import SCHEMA_VERSION
from reflex_ros.core.clock import S
from reflex_ros.core.types import (
    ActionChunk,
    ChunkTrace,
    ControlTick,
    FloatArray,
    SimTruth,
    StallEvent,
)

BASE_FRAME = 'base_link'
Recordable = ControlTick | ChunkTrace | StallEvent | SimTruth

_PACKAGE = 'reflex_msgs/msg'
TOPICS = (
    (ControlTick, '/control_tick'),
    (ChunkTrace, '/chunk_trace'),
    (StallEvent, '/stall_event'),
    (SimTruth, '/sim_truth'),
)
_TIME = 'builtin_interfaces/msg/Time'


def write_run(folder: Path | str, values: Iterable[Recordable], *, storage: str = 'mcap',
              shares: Sequence[Path] | None = None) -> None:
    """Write what a run published as a bag, in the order of the stamps.

    Args:
        folder: Folder of the bag; it must not exist.
        values: Ticks, traces, stalls and truths, in any order.
        storage: ``mcap`` or ``sqlite3``.
        shares: Where message definitions are, see ``schema.find_schema``.

    Raises:
        ConfigError: The folder exists, or the definitions of ``reflex_msgs`` are not found.
    """
    encoder = Encoder(shares=shares)
    qos = (offered_qos(is_reliable=True, is_latched=False, depth=100),)
    topics = [BagTopic(name, encoder.schemas[kind.__name__], qos) for kind, name in TOPICS]
    files = BagFiles(folder, topics, storage=storage)
    files.open()
    try:
        for value in sorted(values, key=lambda value: value.stamp_ns):
            files.write(topic_of(value), value.stamp_ns, encoder.encode(value))
    finally:
        files.close()


def topic_of(value: Recordable) -> str:
    """Return the topic of a value."""
    return next(name for kind, name in TOPICS if isinstance(value, kind))


class Encoder:
    """Serializes values as their messages.

    Args:
        kinds: Types of ``core.types`` with their topics.
        shares: Where message definitions are, see ``schema.find_schema``.
        others: Further types that are needed, ``package/msg/Name``.

    Attributes:
        schemas: Definition of each type by its short name. ``store``: their classes.
    """

    def __init__(self, kinds: Sequence[tuple[type, str]] = TOPICS, *,
                 shares: Sequence[Path] | None = None, others: Sequence[str] = ()) -> None:
        names = [*(f'{_PACKAGE}/{kind.__name__}' for kind, _ in kinds), *others]
        self.schemas: dict[str, Schema] = {
            name.rsplit('/', 1)[-1]: find_schema(name, shares=shares) for name in names
        }
        self.store = typestore_of((s.type, s.text) for s in self.schemas.values())

    def encode(self, value: Any) -> bytes:
        """Return a value of one of the types as CDR with its encapsulation header."""
        kind = f'{_PACKAGE}/{type(value).__name__}'
        frame = BASE_FRAME if isinstance(value, SimTruth) else ''
        stamp = self.time(header_stamp_ns(value))
        header = self.new('std_msgs/msg/Header', stamp=stamp, frame_id=frame)
        return self.serialize(self.new(kind, header=header, number=value.number,
                                       schema_version=SCHEMA_VERSION, **self.fields(value)), kind)

    def serialize(self, message: Any, kind: str) -> bytes:
        """Return a message of type ``kind`` as CDR."""
        return bytes(self.store.serialize_cdr(message, kind))

    def fields(self, value: Any) -> dict[str, Any]:
        """Return the fields of a message beyond header, number and schema version."""
        if isinstance(value, ControlTick):
            return self._tick(value)
        if isinstance(value, ChunkTrace):
            return self._trace(value)
        if isinstance(value, StallEvent):
            return same_fields(value, 'first_index', 'ticks', 'duration_ns', 'cause', 'text')
        return self._truth(value)

    def _tick(self, tick: ControlTick) -> dict[str, Any]:
        return same_fields(
            tick, 'index', 'due_ns', 'late_ns', 'verdict', 'cause', 'arm_state', 'epoch',
            'chunk_id', 'row', 'is_sent', 'in_motion', 'is_covered', 'observation_age_ns',
            'tracking_error', 'setpoint', 'command', 'measured',
        )

    def _trace(self, trace: ChunkTrace) -> dict[str, Any]:
        fields = same_fields(
            trace, 'chunk_id', 'epoch', 'fate', 'reason', 'text', 'entered_row', 'seam_position',
            'seam_velocity', 'accepted_ns', 'inference_start_ns', 'covered_ns', 'stalled_ticks',
            'ticks',
        )
        for name in ('observation_stamp', 'newest_stamp', 'first_command_stamp'):
            fields[name] = self.time(getattr(trace, f'{name}_ns'))
        fields['stages'] = [
            self.new(f'{_PACKAGE}/StageTime', name=s.name, start_ns=s.start_ns, end_ns=s.end_ns)
            for s in trace.stages
        ]
        return fields

    def _truth(self, truth: SimTruth) -> dict[str, Any]:
        fields = same_fields(truth, 'task', 'joint_position', 'joint_velocity', 'phase', 'success')
        fields['tip_position'] = self._xyz('Point', truth.tip_position)
        fields['target_position'] = self._xyz('Point', truth.target_position)
        fields['target_velocity'] = self._xyz('Vector3', truth.target_velocity)
        fields['objects'] = [
            self.new(f'{_PACKAGE}/NamedPose', name=name, pose=self._pose(pose))
            for name, pose in sorted(truth.objects.items())
        ]
        fields['events'] = [
            self.new(f'{_PACKAGE}/SimEvent', name=e.name, stamp=self.time(e.stamp_ns))
            for e in truth.events
        ]
        return fields

    def new(self, kind: str, **fields: Any) -> Any:
        """Return a message object of a type with all its fields."""
        return self.store.types[kind](**fields)

    def time(self, stamp_ns: int) -> Any:
        """Return a ``builtin_interfaces/Time``."""
        sec, nanosec = divmod(stamp_ns, S)
        return self.new(_TIME, sec=sec, nanosec=nanosec)

    def _xyz(self, kind: str, values: FloatArray) -> Any:
        x, y, z = (float(value) for value in values[:3])
        return self.new(f'geometry_msgs/msg/{kind}', x=x, y=y, z=z)

    def _pose(self, pose: FloatArray) -> Any:
        w, x, y, z = (float(value) for value in pose[3:7])
        turn = self.new('geometry_msgs/msg/Quaternion', x=x, y=y, z=z, w=w)
        return self.new('geometry_msgs/msg/Pose', position=self._xyz('Point', pose),
                         orientation=turn)


def header_stamp_ns(value: Any) -> int:
    """Return the stamp of a value's message: a chunk carries that of its observation."""
    return int(value.observation_stamp_ns if isinstance(value, ActionChunk) else value.stamp_ns)


def same_fields(value: Any, *names: str) -> dict[str, Any]:
    """Return the fields whose names agree; enumerations as text, arrays as ``float64[N]``."""
    fields = {name: getattr(value, name) for name in names}
    for name, field in fields.items():
        if isinstance(field, np.ndarray):
            fields[name] = np.ascontiguousarray(field, np.float64)
        else:
            fields[name] = getattr(field, 'value', field)
    return fields
