"""The simulated robot in real time: an arm on a CAN server, cameras and truth on a thread.

Physics follows what arrived over CAN and nothing else. The CAN server's thread moves the world;
the camera thread copies a snapshot under the lock and renders outside of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reflex_ros.core.priority import realtime
from reflex_ros.sim.cameras import CameraRig
from reflex_ros.sim.can_server import CanServer, ServerStats
from reflex_ros.sim.emulator import Emulator
from reflex_ros.sim.faults import load_faults
from reflex_ros.sim.injector import FaultInjector
from reflex_ros.sim.tasks import make_task
from reflex_ros.sim.world import World

if TYPE_CHECKING:
    from reflex_ros.core.clock import Clock
    from reflex_ros.core.types import ByteArray, FloatArray, SimTruth
    from reflex_ros.sim.mjcf import Dh

STOP_WAIT_S = 5.0
EPISODE_S = 3600.0
"""Length of a live episode: the world goes on with its events for an hour."""
DRIVE_ACCELERATION_CRAD_S2 = 2000
"""What the simulated drives report, 20 rad/s²: they have no limit of their own below it. A real
PiPer's firmware ends at 5."""

TakeFrame = Callable[[str, int, 'ByteArray'], None]
TakeTruth = Callable[['SimTruth'], None]


@dataclass(frozen=True, slots=True)
class LiveConfig:
    """Settings of the simulated robot.

    Attributes:
        task, seed, dh: World. ``timestep_s``: physics step.
        channel, host, port: Where the arm is served.
        cameras: Names in the scene. ``size``: height and width, px. ``camera_period_ns``.
        realtime_priority: FIFO priority of the bus, 0 = normal.
        faults: Fault script, None for none.
        tap_path: File for every frame that arrives, None for memory only.
    """

    task: str
    seed: int = 0
    dh: Dh = 'new'
    timestep_s: float = 0.004
    channel: str = 'can0'
    host: str = '127.0.0.1'
    port: int = 0
    cameras: tuple[str, ...] = ('main',)
    size: tuple[int, int] = (64, 64)
    camera_period_ns: int = 40_000_000
    realtime_priority: int = 0
    faults: Path | None = None
    tap_path: Path | None = None


class SharedWorld:
    """A world behind a lock; what the arm's firmware drives.

    Args:
        world: The world, at time 0, which is the present of ``start_ns``.
        start_ns: Steady time of its time 0.
    """

    def __init__(self, world: World, start_ns: int) -> None:
        self._world = world
        self._start_ns = start_ns
        self._lock = threading.Lock()

    def advance(self, mono_ns: int) -> None:
        """Run the physics up to a steady instant."""
        with self._lock:
            self._world.advance(mono_ns - self._start_ns)

    def command(self, joints_rad: FloatArray, gripper_m: float) -> None:
        """Set the drive goals."""
        with self._lock:
            self._world.command(joints_rad, gripper_m)

    def joint_state(self) -> tuple[FloatArray, FloatArray]:
        """Return position and velocity, ``float64[7]`` each."""
        with self._lock:
            return self._world.joint_state()

    def look(self, number: int, clock: Clock) -> tuple[int, object, SimTruth]:
        """Return the stamp, a snapshot and the truth of now, all of one instant."""
        with self._lock:
            now = clock.now()
            self._world.advance(now.mono_ns - self._start_ns)
            return now.stamp_ns, self._world.snapshot(), self._world.truth(number, now.stamp_ns)


class LiveSimulator:
    """The simulated robot; ``start`` and ``stop`` once.

    Args:
        config: Settings.
        clock: A real clock.
        on_frame: Takes camera, stamp (ROS time) and image from the camera thread.
        on_truth: Takes the truth of the same stamp, before the frames.
        on_error: Takes what ended the camera thread.
    """

    def __init__(self, config: LiveConfig, clock: Clock, *, on_frame: TakeFrame,
                 on_truth: TakeTruth, on_error: Callable[[BaseException], None]) -> None:
        self._config = config
        self._clock = clock
        self._on_frame, self._on_truth, self._on_error = on_frame, on_truth, on_error
        start_ns = clock.mono_ns()
        task = make_task(config.task, duration_s=EPISODE_S)
        world = World(task, seed=config.seed, dh=config.dh, timestep_s=config.timestep_s)
        self._rig = CameraRig(world.model_xml, cameras=config.cameras, size=config.size,
                              seed=config.seed)
        self.world = SharedWorld(world, start_ns)
        injector = FaultInjector(load_faults(config.faults)) if config.faults else None
        emulator = Emulator(self.world, start_ns, faults=injector)
        settings = emulator.firmware.settings
        settings.acceleration_crad_s2 = [DRIVE_ACCELERATION_CRAD_S2] * len(
            settings.acceleration_crad_s2)
        self.server = CanServer(
            {config.channel: emulator}, clock, host=config.host, port=config.port,
            tap_path=config.tap_path, before_tick=self.world.advance,
        )
        self._is_stopping = threading.Event()
        self._cameras = threading.Thread(target=self._guarded, name='cameras', daemon=True)
        self.frames = 0

    def start(self) -> None:
        """Serve the arm and start the cameras.

        Raises:
            ConfigError: The port is in use, or this machine cannot render.
        """
        with realtime(self._config.realtime_priority):
            self.server.start()  # stands for hardware: its bus does not wait for a busy machine
        self._cameras.start()

    def stop(self) -> ServerStats:
        """Stop the cameras and the server; return the server's counters."""
        self._is_stopping.set()
        if self._cameras.is_alive():
            self._cameras.join(STOP_WAIT_S)
        stats = self.server.stats()
        self.server.close()
        return stats

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:  # the owner decides, nothing is swallowed
            self._on_error(error)

    def _run(self) -> None:
        due_ns = self._clock.mono_ns()
        while not self._is_stopping.is_set():
            self.frames += 1
            stamp_ns, snapshot, truth = self.world.look(self.frames, self._clock)
            self._on_truth(truth)
            for camera in self._config.cameras:
                image = self._rig.render(snapshot, camera, self.frames)
                self._on_frame(camera, stamp_ns, image)
            period_ns = self._config.camera_period_ns
            due_ns += period_ns * max(1, -((due_ns - self._clock.mono_ns()) // period_ns))
            self._clock.sleep_until(due_ns)
