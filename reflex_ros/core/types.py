"""What travels between the parts: plain, frozen values without ROS, torch or locks.

Field names carry the unit. ``*_stamp_ns`` is ROS time, ``*_ns`` alone is the steady clock (see
``core.clock``). Joint vectors are ``float64[J]`` in the order of ``joint_names``: rad for joints,
metres of total opening for ``gripper``. Arrays are never written to after construction.

All parts import this vocabulary from here; it is defined in four modules beside this one.
"""

from __future__ import annotations

from reflex_ros.core.arrays import (
    JOINT_NAMES,
    ByteArray,
    FloatArray,
)
from reflex_ros.core.flow import (
    ActionChunk,
    CameraStatus,
    Frame,
    KvBlock,
    Plan,
    Reply,
    SlotRef,
    StageStatus,
    StageTime,
    Task,
)
from reflex_ros.core.records import (
    ArmFeedback,
    ChunkTrace,
    ControlTick,
    SimEvent,
    SimTruth,
    StallEvent,
)
from reflex_ros.core.words import (
    ArmState,
    Cause,
    Entry,
    Fate,
    Mode,
    RejectReason,
    StateSource,
    Stitch,
    Verdict,
)

__all__ = (
    'JOINT_NAMES',
    'ByteArray',
    'FloatArray',
    'ActionChunk',
    'CameraStatus',
    'Frame',
    'KvBlock',
    'Plan',
    'Reply',
    'SlotRef',
    'StageStatus',
    'StageTime',
    'Task',
    'ArmFeedback',
    'ChunkTrace',
    'ControlTick',
    'SimEvent',
    'SimTruth',
    'StallEvent',
    'ArmState',
    'Cause',
    'Entry',
    'Fate',
    'Mode',
    'RejectReason',
    'StateSource',
    'Stitch',
    'Verdict',
)
