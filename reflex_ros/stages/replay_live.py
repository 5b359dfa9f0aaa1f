"""A recorded robot in real time: its arm on a CAN bus, its cameras and true states as they came.

It takes the simulator's place: the recorded arm answers on the bus whatever it is commanded, so
the real nodes, driver and SDK see what they saw. Time begins with the first tick.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.bag import values
from reflex_ros.bag.read import BagReader
from reflex_ros.core.clock import MS
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.priority import realtime
from reflex_ros.sim.can_server import CanServer, ServerStats
from reflex_ros.sim.emulator import Emulator
from reflex_ros.stages.replay_source import Recorded, read_recorded

if TYPE_CHECKING:
    from reflex_ros.bag.read import BagMessage
    from reflex_ros.core.clock import Clock
    from reflex_ros.core.types import ByteArray, FloatArray, SimEvent, SimTruth

STOP_WAIT_S = 5.0
POLL_NS = 5 * MS

TakeFrame = Callable[[str, int, 'ByteArray'], None]
TakeTruth = Callable[['SimTruth'], None]


class RecordedArm:
    """The recorded arm as a plant of the emulated firmware. Safe from any thread.

    Args:
        recorded: The bag.
        clock: Its steady time moves the arm, from ``begin`` on.
    """

    def __init__(self, recorded: Recorded, clock: Clock) -> None:
        self._recorded, self._clock = recorded, clock
        self._lock = threading.Lock()
        self._begun_ns = 0

    def begin(self) -> None:
        """Let the recording's time begin; a second call does nothing."""
        with self._lock:
            self._begun_ns = self._begun_ns or self._clock.mono_ns()

    def axis_ns(self) -> int | None:
        """Return the time of the bag that is now, None before it began."""
        with self._lock:
            if not self._begun_ns:
                return None
            return self._recorded.start_ns + self._clock.mono_ns() - self._begun_ns

    def command(self, joints_rad: FloatArray, gripper_m: float) -> None:
        """Take a command; none moves the recorded arm."""

    def joint_state(self) -> tuple[FloatArray, FloatArray]:
        """Return position and velocity, ``float64[7]`` each."""
        axis_ns = self.axis_ns()
        if axis_ns is None:
            position, _ = self._recorded.states.at(self._recorded.start_ns)
            return position, np.zeros(len(position))
        return self._recorded.states.at(axis_ns)


class ReplayedRobot:
    """What ``sim.live.LiveSimulator`` is for a simulated robot; ``start`` and ``stop`` once.

    Args:
        bag: Folder of the bag.
        clock: A real clock.
        channel, host, port: Where the arm is served.
        cameras: Topic of each camera, by name.
        realtime_priority: FIFO priority of the bus, 0 = normal.
        on_frame, on_truth, on_error: See ``LiveSimulator``; stamps are moved to now.

    Raises:
        ConfigError: The bag cannot be replayed, or ran on simulated time.
    """

    def __init__(self, bag: Path, clock: Clock, *, channel: str, host: str, port: int,
                 cameras: dict[str, str], on_frame: TakeFrame, on_truth: TakeTruth,
                 on_error: Callable[[BaseException], None], realtime_priority: int = 0) -> None:
        self._recorded = read_recorded(bag, cameras=cameras)
        if self._recorded.uses_sim_time:
            raise ConfigError(
                f'bag {bag} cannot be replayed through the nodes: got a recorded /clock, expected '
                'a run on real time. Add --virtual.'
            )
        self._clock, self._priority = clock, realtime_priority
        self._on_frame, self._on_truth, self._on_error = on_frame, on_truth, on_error
        self.arm = RecordedArm(self._recorded, clock)
        self.server = CanServer(
            {channel: Emulator(self.arm, clock.mono_ns())}, clock, host=host, port=port)
        self._names = {topic: camera for camera, topic in self._recorded.cameras.items()}
        self._is_stopping = threading.Event()
        self._player = threading.Thread(target=self._guarded, name='player', daemon=True)
        self.frames = 0

    def start(self) -> None:
        """Serve the arm; the recording waits for ``play``."""
        with realtime(self._priority):
            self.server.start()
        self._player.start()

    def play(self) -> None:
        """Begin, with the first tick of the bridge; a second call does nothing."""
        self.arm.begin()

    def stop(self) -> ServerStats:
        """Stop playing and the server; return the server's counters."""
        self._is_stopping.set()
        if self._player.is_alive():
            self._player.join(STOP_WAIT_S)
        stats = self.server.stats()
        self.server.close()
        return stats

    def _guarded(self) -> None:
        try:
            with BagReader(self._recorded.folder) as reader:
                self._run(reader)
        except BaseException as error:  # the owner decides, nothing is swallowed
            self._on_error(error)

    def _run(self, reader: BagReader) -> None:
        while (axis_ns := self.arm.axis_ns()) is None:
            if self._is_stopping.wait(POLL_NS / 1e9):
                return
        start = self._clock.now()
        begun_ns = start.mono_ns - (axis_ns - self._recorded.start_ns)
        shift_ns = start.stamp_ns - axis_ns
        for message in self._recorded.events(reader):
            due_ns = begun_ns + message.stamp_ns - self._recorded.start_ns
            while (left_ns := due_ns - self._clock.mono_ns()) > 0:
                if self._is_stopping.wait(min(left_ns, 100 * MS) / 1e9):
                    return
            self._give(reader, message, shift_ns)

    def _give(self, reader: BagReader, message: BagMessage, shift_ns: int) -> None:
        value = reader.decode(message)
        camera = self._names.get(message.topic)
        if camera is None:
            self._on_truth(_shifted(values.sim_truth(value), shift_ns))
            return
        image = values.image(value)
        if image is not None:
            self.frames += 1
            self._on_frame(camera, values.stamp_of(value.header.stamp) + shift_ns, image)


def _shifted(truth: SimTruth, shift_ns: int) -> SimTruth:
    def moved(event: SimEvent) -> SimEvent:
        return replace(event, stamp_ns=event.stamp_ns + shift_ns)

    return replace(truth, stamp_ns=truth.stamp_ns + shift_ns,
                   events=tuple(moved(event) for event in truth.events))
