"""What the arm said: every frame decoded once, stamped, and read as one coherent view.

The SDK's getters hand out live objects that mix two cycles and show zeros before the first frame;
this book is filled in the SDK's receive callback instead, before the SDK sees the frame.
"""

from __future__ import annotations

import struct
import threading
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

from reflex_ros.arm import wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from reflex_ros.core.types import FloatArray

_Taker: TypeAlias = 'Callable[[bytes, int, float], None]'
_State = TypeVar('_State')
MAX_SPREAD_S = 0.0025
"""Half of the 200 Hz period: parts farther apart belong to different cycles."""
MAX_MDEG = 360_000
"""No joint turns further; a larger angle is a damaged frame."""
RATE_WINDOW_NS = 500_000_000
SILENT_NS = 1_000_000_000
_SLOPE_SAMPLES = 10
_FIRMWARE_BYTES = 256


@dataclass(frozen=True, slots=True)
class FeedbackView:
    """Everything known at one moment; immutable. All ``_ns`` are steady receive times, 0 = never.

    Attributes:
        joints_mdeg: Six angles of one cycle, 0.001 deg. ``joints_ns``: their time.
        status, gripper: Newest frames, None if none. ``motors``, ``drivers``: joint 1 first.
        motors_ns, drivers_ns: Times of each joint's newest 0x25x and 0x26x.
        gripper_speed_m_s: Slope of the opening over the last 50 ms.
        angle_limits, acceleration_limits: By joint 1..6, as answered since the last ``forget``.
        gripper_range_m: Answered range, None if not answered.
        firmware: Version, '' if not answered.
        gripper_lost: Of its power and zero bits those that fell since ``watch_gripper``, also if
            they came back since: every command powers the gripper anew.
        foreign_ns, leader_ns: Last command frame of another sender, last leader-mode frame.
    """

    joints_mdeg: tuple[int, ...] = ()
    joints_ns: int = 0
    status: wire.Status | None = None
    status_ns: int = 0
    gripper: wire.GripperState | None = None
    gripper_ns: int = 0
    gripper_speed_m_s: float = 0.0
    gripper_lost: int = 0
    motors: tuple[wire.MotorState | None, ...] = (None,) * wire.JOINTS
    motors_ns: tuple[int, ...] = (0,) * wire.JOINTS
    drivers: tuple[wire.DriverState | None, ...] = (None,) * wire.JOINTS
    drivers_ns: tuple[int, ...] = (0,) * wire.JOINTS
    angle_limits: dict[int, wire.AngleLimit] = field(default_factory=dict)
    acceleration_limits: dict[int, wire.AccelerationLimit] = field(default_factory=dict)
    gripper_range_m: float | None = None
    firmware: str = ''
    foreign_ns: int = 0
    foreign_id: int = 0
    leader_ns: int = 0
    frames: int = 0
    foreign_frames: int = 0
    decode_errors: int = 0
    incoherent_sets: int = 0

    @property
    def position(self) -> FloatArray:
        """Return ``float64[7]`` rad and m; all nan before the first complete reading."""
        if not self.joints_ns or self.gripper is None:
            return np.full(wire.JOINTS + 1, np.nan)
        angles = [wire.mdeg_to_rad(angle) for angle in self.joints_mdeg]
        return np.array([*angles, self.gripper.opening_m])

    @property
    def velocity(self) -> FloatArray:
        """Return ``float64[7]`` rad/s and m/s; nan where unknown."""
        speeds = [np.nan if motor is None else motor.speed_rad_s for motor in self.motors]
        return np.array([*speeds, self.gripper_speed_m_s])

    @property
    def enabled(self) -> tuple[bool, ...]:
        """Return which motors are powered, gripper last."""
        states = (*self.drivers, self.gripper)
        return tuple(s is not None and bool(s.bits & wire.ENABLED_BIT) for s in states)

    def effort(self, *, is_old_scale: bool) -> FloatArray:
        """Return ``float64[7]`` N·m; nan where unknown and for the gripper, whose force is."""
        torques = [
            np.nan if motor is None else
            wire.torque_nm(i, motor.current_a, is_old_scale=is_old_scale)
            for i, motor in enumerate(self.motors, start=1)
        ]
        return np.array([*torques, np.nan])


class _Heard:
    """What was heard of one id: frames, those before the window of its rate, the newest's time."""

    __slots__ = ('before', 'count', 'last_ns', 'take')

    def __init__(self, take: _Taker) -> None:
        self.take = take
        self.count = self.before = self.last_ns = 0


class FeedbackBook:
    """Collects frames on the reader thread, hands out views on any. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._takers = self._by_id()
        self.clear()

    def clear(self) -> None:
        """Forget everything, as before the first frame of a newly opened bus."""
        with self._lock:
            self._start()

    def _start(self) -> None:
        self._view: FeedbackView | None = None
        self._joints: tuple[int, ...] = ()
        self._joints_ns = 0
        self._pending: dict[int, tuple[tuple[int, int], float]] = {}
        self._status = self._gripper = b''
        self._status_ns = self._gripper_ns = 0
        self._gripper_had = self._gripper_lost = 0
        self._openings: deque[tuple[int, bytes]] = deque(maxlen=_SLOPE_SAMPLES)
        self._motors = [b''] * wire.JOINTS
        self._motors_ns = [0] * wire.JOINTS
        self._drivers = [b''] * wire.JOINTS
        self._drivers_ns = [0] * wire.JOINTS
        self._angle_limits: dict[int, wire.AngleLimit] = {}
        self._acceleration_limits: dict[int, wire.AccelerationLimit] = {}
        self._gripper_range_m: float | None = None
        self._firmware, self._version = bytearray(), ''
        self._foreign_ns = self._foreign_id = self._leader_ns = 0
        self._foreign_frames = self._errors = self._incoherent = 0
        self._heard = {can_id: _Heard(take) for can_id, take in self._takers.items()}
        self._window_ns = 0
        self._rates: dict[int, float] = {}

    def on_frame(self, frame: wire.Frame, *, mono_ns: int, stamp_s: float) -> None:
        """Take one received frame.

        Args:
            frame: Identifier and data.
            mono_ns: Steady receive time.
            stamp_s: Time stamp of the bus, 0 if it has none; only differences are used.
        """
        with self._lock:
            self._view = None
            heard = self._heard.get(frame.can_id) or self._new(frame.can_id)
            heard.count += 1
            heard.last_ns = mono_ns
            if mono_ns - self._window_ns >= RATE_WINDOW_NS:
                self._roll(mono_ns)
            try:
                heard.take(frame.data, mono_ns, stamp_s)
            except (struct.error, IndexError):
                self._errors += 1

    def on_foreign(self, can_id: int, *, mono_ns: int) -> None:
        """Note a command frame that this process did not send."""
        with self._lock:
            self._view = None
            self._foreign_ns, self._foreign_id = mono_ns, can_id
            self._foreign_frames += 1

    def forget_answers(self) -> None:
        """Drop answers to earlier queries, so that only fresh ones are believed."""
        with self._lock:
            self._view = None
            self._angle_limits.clear()
            self._acceleration_limits.clear()
            self._gripper_range_m = None
            self._firmware.clear()
            self._version = ''

    def watch_gripper(self) -> None:
        """Keep from now on what the gripper loses of the power and the zero that it has."""
        with self._lock:
            self._view = None
            bits = wire.gripper_bits(self._gripper) if self._gripper else 0
            self._gripper_had = bits & (wire.ENABLED_BIT | wire.HOMED_BIT)
            self._gripper_lost = 0

    def silent_ids(self, now_ns: int) -> tuple[int, ...]:
        """Return the cyclic ids of which nothing came for a second; all that never came."""
        with self._lock:
            return tuple(i for i in wire.CYCLIC_IDS
                         if not self._heard[i].count
                         or now_ns - self._heard[i].last_ns >= SILENT_NS)

    def rates_hz(self, now_ns: int) -> dict[int, float]:
        """Return frames per second by id over the last half second or more; a copy."""
        with self._lock:
            elapsed = now_ns - self._window_ns
            if elapsed < 2 * RATE_WINDOW_NS:
                return dict(self._rates)
            return self._measured(elapsed)

    def view(self) -> FeedbackView:
        """Return everything known, as one consistent copy; the same until something comes."""
        with self._lock:
            if self._view is None:
                self._view = self._look()
            return self._view

    def _look(self) -> FeedbackView:
        return FeedbackView(
            joints_mdeg=self._joints, joints_ns=self._joints_ns,
            status=_decoded(wire.decode_status, self._status), status_ns=self._status_ns,
            gripper=_decoded(wire.decode_gripper, self._gripper),
            gripper_ns=self._gripper_ns,
            gripper_speed_m_s=self._slope(), gripper_lost=self._gripper_lost,
            motors=tuple(_decoded(wire.decode_motor, data) for data in self._motors),
            motors_ns=tuple(self._motors_ns),
            drivers=tuple(_decoded(wire.decode_driver, data) for data in self._drivers),
            drivers_ns=tuple(self._drivers_ns),
            angle_limits=dict(self._angle_limits),
            acceleration_limits=dict(self._acceleration_limits),
            gripper_range_m=self._gripper_range_m,
            firmware=self._version,
            foreign_ns=self._foreign_ns, foreign_id=self._foreign_id,
            leader_ns=self._leader_ns,
            frames=sum(heard.count for heard in self._heard.values()),
            foreign_frames=self._foreign_frames, decode_errors=self._errors,
            incoherent_sets=self._incoherent,
        )

    def _new(self, can_id: int) -> _Heard:
        """Return an entry for an id that is not read."""
        take = self._take_leader if can_id in wire.LEADER_IDS else _nothing
        self._heard[can_id] = _Heard(take)
        return self._heard[can_id]

    def _by_id(self) -> dict[int, _Taker]:
        """Return what takes the data of an id; frames come three thousand times a second."""
        parts = range(wire.FEEDBACK_12, wire.FEEDBACK_56 + 1)
        answers = (wire.ANGLE_LIMIT, wire.ACCELERATION_LIMIT, wire.GRIPPER_PARAMETERS,
                   wire.FIRMWARE)
        return {
            wire.STATUS: self._take_status, wire.GRIPPER_FEEDBACK: self._take_gripper,
            **{can_id: partial(self._joint_part, i) for i, can_id in enumerate(parts)},
            **{can_id: partial(self._take_motor, i) for i, can_id in enumerate(wire.HIGH_SPEED)},
            **{can_id: partial(self._take_driver, i) for i, can_id in enumerate(wire.LOW_SPEED)},
            **{can_id: partial(self._answer, can_id) for can_id in answers},
        }

    def _take_leader(self, data: bytes, mono_ns: int, stamp_s: float) -> None:
        self._leader_ns = mono_ns

    def _take_status(self, data: bytes, mono_ns: int, stamp_s: float) -> None:
        self._status, self._status_ns = _whole(data), mono_ns

    def _take_gripper(self, data: bytes, mono_ns: int, stamp_s: float) -> None:
        self._gripper, self._gripper_ns = _whole(data), mono_ns
        self._gripper_lost |= self._gripper_had & ~wire.gripper_bits(data)
        self._openings.append((mono_ns, data))

    def _take_motor(self, i: int, data: bytes, mono_ns: int, stamp_s: float) -> None:
        self._motors[i], self._motors_ns[i] = _whole(data), mono_ns

    def _take_driver(self, i: int, data: bytes, mono_ns: int, stamp_s: float) -> None:
        self._drivers[i], self._drivers_ns[i] = _whole(data), mono_ns

    def _answer(self, can_id: int, data: bytes, mono_ns: int, stamp_s: float) -> None:
        if can_id == wire.ANGLE_LIMIT:
            limit = wire.decode_angle_limit(data)
            self._angle_limits[limit.joint] = limit
        elif can_id == wire.ACCELERATION_LIMIT:
            acceleration = wire.decode_acceleration_limit(data)
            self._acceleration_limits[acceleration.joint] = acceleration
        elif can_id == wire.GRIPPER_PARAMETERS:
            self._gripper_range_m = wire.decode_gripper_range(data)
        elif can_id == wire.FIRMWARE:
            self._firmware += data
            del self._firmware[:-_FIRMWARE_BYTES]
            self._version = wire.firmware_in(bytes(self._firmware))

    def _joint_part(self, part: int, data: bytes, mono_ns: int, stamp_s: float) -> None:
        pair, stamp_s = wire.decode_pair(data), stamp_s or mono_ns * 1e-9
        known = self._pending.get(part)
        if known is not None and known[0] == pair and abs(stamp_s - known[1]) <= MAX_SPREAD_S:
            return  # the bus repeated the frame: an error in its very last bit does that
        # A repeated part or one far from the others means that a frame of the cycle was lost.
        if part in self._pending or any(
            abs(stamp_s - other) > MAX_SPREAD_S for _, other in self._pending.values()
        ):
            self._pending.clear()
            self._incoherent += 1
        self._pending[part] = (pair, stamp_s)
        if len(self._pending) == 3:
            joints = tuple(a for i in range(3) for a in self._pending[i][0])
            self._pending.clear()
            if max(map(abs, joints)) > MAX_MDEG:
                self._incoherent += 1
                return
            self._joints, self._joints_ns = joints, mono_ns

    def _roll(self, mono_ns: int) -> None:
        if self._window_ns:
            self._rates = self._measured(mono_ns - self._window_ns)
            for heard in self._heard.values():
                heard.before = heard.count
        self._window_ns = mono_ns

    def _measured(self, elapsed_ns: int) -> dict[int, float]:
        return {i: (heard.count - heard.before) * 1e9 / elapsed_ns
                for i, heard in self._heard.items() if heard.count}

    def _slope(self) -> float:
        if len(self._openings) < 2:
            return 0.0
        (start_ns, first), (end_ns, last) = self._openings[0], self._openings[-1]
        start, end = wire.decode_gripper(first).opening_m, wire.decode_gripper(last).opening_m
        return (end - start) * 1e9 / (end_ns - start_ns) if end_ns > start_ns else 0.0


def _nothing(data: bytes, mono_ns: int, stamp_s: float) -> None:
    pass


def _whole(data: bytes) -> bytes:
    """Return the data of a frame that is read when somebody asks: most are never looked at.

    Raises:
        IndexError: It is too short or too long to be read.
    """
    if len(data) != wire.FRAME_BYTES:
        raise IndexError(len(data))
    return data


def _decoded(decode: Callable[[bytes], _State], data: bytes) -> _State | None:
    """Return what a frame says, None if it never came."""
    return decode(data) if data else None
