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
from reflex_ros.core.types import ChunkTrace, ControlTick, FloatArray, SimTruth, StallEvent

BASE_FRAME = 'base_link'
Recordable = ControlTick | ChunkTrace | StallEvent | SimTruth

_PACKAGE = 'reflex_msgs/msg'
_TOPICS = (
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
    topics = [BagTopic(name, encoder.schemas[kind.__name__], qos) for kind, name in _TOPICS]
    files = BagFiles(folder, topics, storage=storage)
    files.open()
    try:
        for value in sorted(values, key=lambda value: value.stamp_ns):
            files.write(topic_of(value), value.stamp_ns, encoder.encode(value))
    finally:
        files.close()


def topic_of(value: Recordable) -> str:
    """Return the topic of a value."""
    return next(name for kind, name in _TOPICS if isinstance(value, kind))


class Encoder:
    """Serializes values as their messages.

    Attributes:
        schemas: Definition of each type by its short name.
    """

    def __init__(self, *, shares: Sequence[Path] | None = None) -> None:
        self.schemas: dict[str, Schema] = {
            kind.__name__: find_schema(f'{_PACKAGE}/{kind.__name__}', shares=shares)
            for kind, _ in _TOPICS
        }
        self._store = typestore_of((s.type, s.text) for s in self.schemas.values())

    def encode(self, value: Recordable) -> bytes:
        """Return a value as CDR with its encapsulation header."""
        kind = f'{_PACKAGE}/{type(value).__name__}'
        if isinstance(value, ControlTick):
            fields = self._tick(value)
        elif isinstance(value, ChunkTrace):
            fields = self._trace(value)
        elif isinstance(value, StallEvent):
            fields = _same(value, 'first_index', 'ticks', 'duration_ns', 'cause', 'text')
        else:
            fields = self._truth(value)
        frame = BASE_FRAME if isinstance(value, SimTruth) else ''
        header = self._new('std_msgs/msg/Header', stamp=self._time(value.stamp_ns), frame_id=frame)
        message = self._new(kind, header=header, number=value.number,
                            schema_version=SCHEMA_VERSION, **fields)
        return bytes(self._store.serialize_cdr(message, kind))

    def _tick(self, tick: ControlTick) -> dict[str, Any]:
        return _same(
            tick, 'index', 'due_ns', 'late_ns', 'verdict', 'cause', 'arm_state', 'epoch',
            'chunk_id', 'row', 'is_sent', 'in_motion', 'is_covered', 'observation_age_ns',
            'tracking_error', 'setpoint', 'command', 'measured',
        )

    def _trace(self, trace: ChunkTrace) -> dict[str, Any]:
        fields = _same(
            trace, 'chunk_id', 'epoch', 'fate', 'reason', 'text', 'entered_row', 'seam_position',
            'seam_velocity', 'accepted_ns', 'inference_start_ns', 'covered_ns', 'stalled_ticks',
            'ticks',
        )
        for name in ('observation_stamp', 'newest_stamp', 'first_command_stamp'):
            fields[name] = self._time(getattr(trace, f'{name}_ns'))
        fields['stages'] = [
            self._new(f'{_PACKAGE}/StageTime', name=s.name, start_ns=s.start_ns, end_ns=s.end_ns)
            for s in trace.stages
        ]
        return fields

    def _truth(self, truth: SimTruth) -> dict[str, Any]:
        fields = _same(truth, 'task', 'joint_position', 'joint_velocity', 'phase', 'success')
        fields['tip_position'] = self._xyz('Point', truth.tip_position)
        fields['target_position'] = self._xyz('Point', truth.target_position)
        fields['target_velocity'] = self._xyz('Vector3', truth.target_velocity)
        fields['objects'] = [
            self._new(f'{_PACKAGE}/NamedPose', name=name, pose=self._pose(pose))
            for name, pose in sorted(truth.objects.items())
        ]
        fields['events'] = [
            self._new(f'{_PACKAGE}/SimEvent', name=e.name, stamp=self._time(e.stamp_ns))
            for e in truth.events
        ]
        return fields

    def _new(self, kind: str, **fields: Any) -> Any:
        return self._store.types[kind](**fields)

    def _time(self, stamp_ns: int) -> Any:
        sec, nanosec = divmod(stamp_ns, S)
        return self._new(_TIME, sec=sec, nanosec=nanosec)

    def _xyz(self, kind: str, values: FloatArray) -> Any:
        x, y, z = (float(value) for value in values[:3])
        return self._new(f'geometry_msgs/msg/{kind}', x=x, y=y, z=z)

    def _pose(self, pose: FloatArray) -> Any:
        w, x, y, z = (float(value) for value in pose[3:7])
        turn = self._new('geometry_msgs/msg/Quaternion', x=x, y=y, z=z, w=w)
        return self._new('geometry_msgs/msg/Pose', position=self._xyz('Point', pose),
                         orientation=turn)


def _same(value: Any, *names: str) -> dict[str, Any]:
    """Return the fields whose names agree; enumerations as text, arrays as ``float64[N]``."""
    fields = {name: getattr(value, name) for name in names}
    for name, field in fields.items():
        if isinstance(field, np.ndarray):
            fields[name] = np.ascontiguousarray(field, np.float64)
        else:
            fields[name] = getattr(field, 'value', field)
    return fields
