"""The bag that a replay writes: what was replayed, as recorded, and what was published."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from reflex_ros.bag.encode import TOPICS
from reflex_ros.bag.encode_flow import FLOW_TOPICS, FlowEncoder
from reflex_ros.bag.files import BagFiles, BagTopic, offered_qos
from reflex_ros.bag.schema import Schema, hash_of
from reflex_ros.core.types import JOINT_NAMES, ControlTick, KvBlock, Plan, SimTruth, Task

if TYPE_CHECKING:
    from reflex_ros.bag.read import BagMessage, BagReader
    from reflex_ros.stages.replay_source import Recorded

_LATCHED = (Plan, Task)
_JOINTS = '/joint_states'


class ReplayWriter:
    """Writes the output of a replay as it is made.

    Args:
        folder: Folder of the bag; it must not exist.
        recorded: The bag that is replayed. ``reader``: the same, open.

    Raises:
        ConfigError: The folder cannot be made, or message definitions are missing.
    """

    def __init__(self, folder: Path, recorded: Recorded, reader: BagReader) -> None:
        self._encoder = FlowEncoder()
        self._prefix = recorded.prefix
        self._names: dict[type, str] = {
            kind: recorded.prefix + name for kind, name in (*TOPICS, *FLOW_TOPICS)
            if kind is not SimTruth
        }
        topics = [
            BagTopic(name, self._encoder.schemas[kind.__name__],
                     (offered_qos(is_reliable=True, is_latched=kind in _LATCHED, depth=100),))
            for kind, name in self._names.items()
        ]
        joints = offered_qos(is_reliable=True, is_latched=False, depth=100)
        topics.append(BagTopic(self._prefix + _JOINTS, self._encoder.schemas['JointState'],
                               (joints,)))
        topics += [_copied(reader, name) for name in _copied_names(recorded)]
        self._files = BagFiles(folder, topics)
        self._files.open()

    def publish(self, value: object, axis_ns: int) -> None:
        """Write a published value, received at ``axis_ns``."""
        if isinstance(value, KvBlock) and value.ring_id:
            value = replace(value, ring_id=0)  # its ring is gone when the bag is read
        self._files.write(self._names[type(value)], axis_ns, self._encoder.encode(value))
        if isinstance(value, ControlTick) and len(value.measured) == len(JOINT_NAMES):
            self._files.write(self._prefix + _JOINTS, axis_ns, self._encoder.joint_state(
                value.stamp_ns, JOINT_NAMES, value.measured))

    def copy(self, message: BagMessage) -> None:
        """Write a replayed message as it was recorded."""
        self._files.write(message.topic, message.stamp_ns, message.data)

    def close(self) -> None:
        """Complete the bag."""
        self._files.close()


def _copied_names(recorded: Recorded) -> list[str]:
    names = [*dict.fromkeys(recorded.cameras.values())]
    if recorded.has_truth:
        names.append(f'{recorded.prefix}/sim_truth')
    if recorded.uses_sim_time:
        names.append('/clock')
    return names


def _copied(reader: BagReader, name: str) -> BagTopic:
    info = reader.topics[name]
    schema = Schema(info.type, info.definition, hash_of(info.type, info.definition))
    return BagTopic(name, schema, info.qos, info.type.endswith('Image'))
