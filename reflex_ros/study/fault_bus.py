"""A CAN bus without a wire or threads: the real driver and SDK against the emulated arm.

Frames go from the SDK to the emulator and back by plain calls on the virtual clock, so a run with
a fault is the same every time. What reaches the arm is decoded here by the simulator's codec.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from reflex_ros.arm import wire
from reflex_ros.arm.link import load_sdk
from reflex_ros.core.clock import Instant
from reflex_ros.core.errors import ArmError
from reflex_ros.sim import can_codec as codec
from reflex_ros.sim.can_codec import CanFrame
from reflex_ros.sim.can_tap import CommandTap
from reflex_ros.sim.emulator import PERIOD_NS, Emulator

if TYPE_CHECKING:
    from collections.abc import Callable

    from reflex_ros.arm.config import DriverConfig
    from reflex_ros.arm.feedback import FeedbackBook
    from reflex_ros.arm.gate import CommandGate
    from reflex_ros.core.clock import ManualClock
    from reflex_ros.core.timeline import Timeline
    from reflex_ros.core.types import FloatArray

CHANNEL = 'can0'
BEFORE_TICKS = -1
"""Priority of the bus on the timeline: feedback of an instant is there before its tick."""
RAD_PER_MDEG = np.pi / 180_000.0


class TimelineClock:
    """A manual clock whose sleepers let the timeline run; for calls that block.

    Args:
        timeline: Runs meanwhile. clock: Its clock.
    """

    def __init__(self, timeline: Timeline, clock: ManualClock) -> None:
        self._timeline, self._clock = timeline, clock

    def mono_ns(self) -> int:
        """Return the steady clock in ns."""
        return self._clock.mono_ns()

    def stamp_ns(self) -> int:
        """Return ROS time in ns."""
        return self._clock.stamp_ns()

    def now(self) -> Instant:
        """Return both times."""
        return self._clock.now()

    def sleep_until(self, mono_ns: int) -> None:
        """Run the timeline up to ``mono_ns``."""
        if mono_ns > self._clock.mono_ns():
            self._timeline.run_until(mono_ns)


@dataclass(slots=True)
class Received:
    """What reached the arm's socket.

    Attributes:
        times_ns: Steady time of each command, and its ``commands``: rad, opening in m; not a
            number where a frame of it did not come.
        measured: Where the arm really was, the same form. restarts: Indices of commands that
            follow a power-on: the stream begins anew there.
    """

    times_ns: list[int] = field(default_factory=list)
    commands: list[list[float]] = field(default_factory=list)
    measured: list[list[float]] = field(default_factory=list)
    restarts: list[int] = field(default_factory=list)


class VirtualBus:
    """One emulated arm on a bus of the virtual clock.

    Args:
        emulator: The arm.
        timeline, clock: Virtual time. before_step: Called before the arm steps.

    Attributes:
        tap: Every frame from the host. received: The commands among them.
        is_full: Whether the bus takes no frames.
    """

    def __init__(self, emulator: Emulator, timeline: Timeline, clock: ManualClock, *,
                 before_step: Callable[[], None]) -> None:
        self.emulator, self._timeline, self._clock = emulator, timeline, clock
        self._before_step = before_step
        self.tap = CommandTap((CHANNEL,))
        self.received = Received()
        self.is_full = False
        self._lossy_id = self._losses = 0
        self.link: VirtualLink | None = None
        self._angles = [0.0] * codec.JOINTS
        self._parts: set[int] = set()
        self._part_ns = 0
        self._opening_m = emulator.firmware.reading.gripper_m

    def start(self) -> None:
        """Let the arm step every 5 ms from now on."""
        self._timeline.at(self._clock.mono_ns() + PERIOD_NS, self._step, priority=BEFORE_TICKS)

    def lose(self, can_id: int, times: int) -> None:
        """Take so many frames of an id not."""
        self._lossy_id, self._losses = can_id, times

    def send(self, can_id: int, data: bytes) -> bool:
        """Take a frame from the host; return False if the bus is full or loses it."""
        if self.is_full:
            return False
        if self._losses and can_id == self._lossy_id:
            self._losses -= 1
            return False
        now_ns, frame = self._clock.mono_ns(), CanFrame(can_id, bytes(data))
        self.tap.record(CHANNEL, frame, now_ns)
        self._note(frame, now_ns)
        self.emulator.receive(frame.can_id, frame.data, now_ns)
        return True

    def _step(self) -> None:
        now_ns = self._clock.mono_ns()
        self._before_step()
        frames = self.emulator.due(now_ns) + self.emulator.step(now_ns)
        if self.link is not None:
            self.link.take(frames)
        self._timeline.at(now_ns + PERIOD_NS, self._step, priority=BEFORE_TICKS)

    def _note(self, frame: CanFrame, now_ns: int) -> None:
        match codec.decode_command(*frame):
            case codec.JointTarget(joint, first, second):
                if self._parts and now_ns != self._part_ns:
                    self._end_command()  # of which a frame did not come
                self._angles[joint - 1:joint + 1] = first * RAD_PER_MDEG, second * RAD_PER_MDEG
                self._parts.add(joint)
                self._part_ns = now_ns
            case codec.GripperTarget(opening_um):
                self._opening_m = opening_um * 1e-6
                for at_ns, command in zip(reversed(self.received.times_ns),
                                          reversed(self.received.commands), strict=True):
                    if at_ns != now_ns:
                        break
                    command[-1] = self._opening_m  # a hold sends its pose twice before
            case codec.Power():
                self.received.restarts.append(len(self.received.times_ns))
        if len(self._parts) == codec.JOINTS // 2:
            self._end_command()

    def _end_command(self) -> None:
        """Note a command; what did not come of it is not a number."""
        reading = self.emulator.firmware.reading
        angles = [angle if joint in self._parts else np.nan
                  for joint, angle in zip((1, 1, 3, 3, 5, 5), self._angles, strict=True)]
        self._parts.clear()
        self.received.times_ns.append(self._part_ns)
        self.received.commands.append([*angles, self._opening_m])
        self.received.measured.append([*reading.joints_rad, reading.gripper_m])


class VirtualLink:
    """``arm.link.CanLink`` over a ``VirtualBus``: the SDK encodes, nothing else of it runs.

    Args:
        config: Channel. clock: Stamps received frames. book: Takes every received frame.
        gate: Guards every sent frame. bus: The bus.
    """

    def __init__(self, config: DriverConfig, clock: TimelineClock, *, book: FeedbackBook,
                 gate: CommandGate, bus: VirtualBus, read_info: object = None) -> None:
        del read_info
        self._config, self._clock, self._book, self._gate = config, clock, book, gate
        self._bus = bus
        self._piper: Any = None
        self.lost_reason = ''
        self.error_frames = 0
        self.warnings: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Return whether the bus is open."""
        return self._piper is not None and not self.lost_reason

    @property
    def sdk(self) -> Any:
        """Return the SDK interface."""
        if self._piper is None:
            raise ArmError('CAN bus: got it closed, expected it open. Call connect() first.',
                           code='not_connected')
        return self._piper

    def open(self) -> None:
        """Connect the SDK to the bus; no thread is started."""
        sdk, _ = load_sdk()
        self.lost_reason = ''
        piper = sdk.C_PiperInterface_V2(
            f'virtual{id(self):x}', judge_flag=False, can_auto_init=False,
            logger_level=sdk.LogLevel.CRITICAL)
        with warnings.catch_warnings():
            warnings.simplefilter('ignore', DeprecationWarning)
            piper.CreateCanBus(CHANNEL, bustype='virtual', judge_flag=False)
        can_bus = piper.GetCanBus()
        status = can_bus.CAN_STATUS

        def send(can_id: int, data: Any, dlc: int = 8, is_extended_id: bool = False) -> object:
            del dlc, is_extended_id
            is_taken = self._bus.send(can_id, bytes(data))
            return status.SEND_MESSAGE_SUCCESS if is_taken else status.SEND_MESSAGE_FAILED

        can_bus.SendCanMessage = send
        self._gate.install(can_bus)
        self._piper, self._bus.link = piper, self

    def close(self) -> None:
        """Disconnect; the arm keeps its power."""
        if self._piper is not None:
            self._gate.remove()
            self._piper.GetCanBus().Close()
        self._piper = self._bus.link = None

    def lose(self, reason: str) -> None:
        """Break the connection, as a server that ends does."""
        self.lost_reason = reason

    def take(self, frames: list[CanFrame]) -> None:
        """Hand frames of the arm to the driver."""
        if not self.is_open:
            return
        now = self._clock.now()
        for can_id, data in frames:
            if can_id == codec.ERROR_ID:
                self.error_frames += 1
                continue
            frame = wire.Frame(can_id, data)
            self._book.on_frame(frame, mono_ns=now.mono_ns, stamp_s=now.stamp_ns * 1e-9)
            if can_id in wire.COMMAND_IDS and not self._gate.is_own(frame, now.mono_ns):
                self._book.on_foreign(can_id, mono_ns=now.mono_ns)


def commands_of(received: Received) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return times in s, commands ``float64[N, 7]`` and measured poses of what was received."""
    width = codec.JOINTS + 1
    return (np.array(received.times_ns, np.float64) * 1e-9,
            np.array(received.commands, np.float64).reshape(-1, width),
            np.array(received.measured, np.float64).reshape(-1, width))
