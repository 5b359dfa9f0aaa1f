"""One fault in real time: an arm in a process of its own, the SDK's socket to it, real threads.

The same faults as on the virtual clock (``fault_rig``), with what a real clock brings along: bytes
through a socket, threads that run late, and an arm whose process knows nothing of ours.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from reflex_ros.arm.config import DriverConfig
from reflex_ros.arm.driver import PiperDriver
from reflex_ros.core.clock import MS, S
from reflex_ros.core.errors import ArmError
from reflex_ros.core.interpolate import revolute
from reflex_ros.core.ledger import LedgerWriter
from reflex_ros.core.types import JOINT_NAMES
from reflex_ros.sim.can_tap import TapRecord, read_tap
from reflex_ros.stages.build import bridge_config, limits_from, policy_config
from reflex_ros.stages.inproc import InprocConfig
from reflex_ros.study.fault_arrivals import judge_arrivals, parts_of
from reflex_ros.study.fault_rig import FAULT_S, LEDGER, Records, RigOptions, of_one, rig_params
from reflex_ros.study.fault_sim import CHANNEL, POSES, TAP, fault_to_json
from reflex_ros.study.fault_socket_run import SocketRun, soon
from reflex_ros.study.fault_socket_scene import HomeExpert, SteppedClock
from reflex_ros.study.fault_swing import INFERENCE_NS, LEAD_S, FaultyOracle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from reflex_ros.arm.protocol import Arm
    from reflex_ros.core.types import FloatArray, Reply
    from reflex_ros.sim.faults import Fault
    from reflex_ros.study.fault_arrivals import Arrivals

PRIORITY = 50
"""FIFO priority of bus and ticks, where the system allows it: as on a robot."""


class Simulator:
    """The process of the simulated arm.

    Args:
        folder: For its tap and its poses.
        options: Kind of arm and its script. priority: FIFO priority of its bus.
        channels: One for each arm.
    """

    def __init__(self, folder: Path, options: RigOptions, priority: int,
                 channels: Sequence[str] = (CHANNEL,)) -> None:
        self._process = subprocess.Popen(
            [sys.executable, '-m', 'reflex_ros.study.fault_sim'], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        script = None if options.script is None else {
            'seed': options.script.seed, 'faults': list(map(fault_to_json, options.script.faults))}
        self.order({'folder': str(folder), 'emulator': asdict(options.emulator),
                    'script': script, 'priority': priority, 'channels': list(channels)})
        self.port = int(self._answer()['port'])
        self.stats: dict[str, Any] = {}

    def order(self, values: dict[str, Any]) -> None:
        """Give an order."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(values) + '\n')
        self._process.stdin.flush()

    def end(self) -> None:
        """End it and read its counters; once."""
        if self.stats:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        self.stats = self._answer()
        self._process.wait(10.0)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        values: dict[str, Any] = json.loads(self._process.stdout.readline())
        return values


class SocketBus:
    """What reached the simulator, and how to break the way there.

    Args:
        arm: The driver. folder: With the tap. number: Of the arm's channel.
    """

    def __init__(self, arm: PiperDriver, folder: Path, number: int = 0) -> None:
        self._arm, self._folder, self._number = arm, folder, number
        self.tap = self

    def recent(self, *, since_ns: int = 0) -> tuple[TapRecord, ...]:
        """Return all frames that arrived from an instant on, oldest first."""
        return tuple(
            TapRecord(int(r['mono_ns']), CHANNEL, int(r['can_id']),
                      r['data'][:r['length']].tobytes())
            for r in read_tap(self._folder / TAP)[1]
            if r['mono_ns'] >= since_ns and r['channel'] == self._number)

    def fill(self, is_full: bool) -> None:
        """Let the system take no frames, as a socket whose queue is full."""
        import can

        def refuse(*args: object, **names: object) -> None:
            raise can.CanOperationError('Failed to transmit: No buffer space available')

        bus = self._can.send_bus
        if is_full:
            bus.send = refuse
        elif 'send' in vars(bus):
            del bus.send

    def lose(self, can_id: int, times: int) -> None:
        """Let the system not take the next frames of an id."""
        import can

        bus, left = self._can.send_bus, times
        send = bus.send

        def lossy(message: Any, *args: object, **names: object) -> Any:
            nonlocal left
            if not left or message.arbitration_id != can_id:
                return send(message, *args, **names)
            left -= 1
            raise can.CanOperationError('Failed to transmit: No buffer space available')

        bus.send = lossy

    def cut(self) -> None:
        """Close both connections from below, as a server that ends does."""
        for bus in {id(b): b for b in (self._can.recv_bus, self._can.send_bus)}.values():
            bus._SocketCanDaemonBus__socket.shutdown(socket.SHUT_RDWR)

    @property
    def _can(self) -> Any:
        return self._arm._link.sdk.GetCanBus()


class SocketRig(Records):
    """One run in real time; the same calls as ``FaultRig``.

    Args:
        folder: For ledger, tap and lock.
        options: What differs. priority: FIFO priority of bus and ticks, 0 = normal.
    """

    spare = 5
    sides: tuple[str, ...] = ('',)
    make_model = FaultyOracle

    def __init__(self, folder: Path, options: RigOptions, *, priority: int = PRIORITY) -> None:
        super().__init__()
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.options = folder, options
        params = rig_params(options)
        self.limits, self._random = limits_from(params), np.random.default_rng(options.seed)
        self.simulator = Simulator(
            folder, options, priority, [side or CHANNEL for side in self.sides])
        clock = SteppedClock()
        drivers = [self._make_driver(side, clock) for side in self.sides]
        arm = self._join(drivers)
        self.model = self.make_model(lambda task: HomeExpert(), cost_ns=INFERENCE_NS)
        self.model.clock = clock
        bridge = replace(bridge_config(params, policy='oracle'), instruction='home',
                         **options.bridge)
        self.run = SocketRun(
            InprocConfig(bridge, policy_config(params), options.cameras,
                         duration_ns=round(options.duration_s * S)),
            arm=arm, limits=self.limits, clock=clock, model=self.model, priority=priority,
            render=self._picture if options.has_pictures else None)
        self.buses = [SocketBus(one, folder, n) for n, one in enumerate(drivers)]
        self.bus = self.buses[0]
        self.period_ns = bridge.period_ns
        self._events: list[tuple[float, Callable[[], object]]] = []

    def _make_driver(self, side: str, clock: SteppedClock) -> PiperDriver:
        return PiperDriver(DriverConfig(
            channel=side or CHANNEL, prefix=f'{side}_' if side else '', transport='socketcand',
            port=self.simulator.port, limits=self.limits, lock_dir=self.folder,
            feedback_timeout_ns=100 * MS), clock)

    def _join(self, drivers: Sequence[PiperDriver]) -> Arm:
        return drivers[0]

    # ---- what a fault reaches into -----------------------------------------------------------

    def at(self, time_s: float, action: Callable[[], object]) -> None:
        """Call ``action()`` at a time after the first tick; before it at 0."""
        self._events.append((time_s, action))

    def later(self, delay_s: float, action: Callable[[], object]) -> None:
        """Call ``action()`` after a while."""
        self.run.timeline.at(self.run.clock.mono_ns() + round(delay_s * S), action)

    def inject(self, fault: Fault) -> None:
        """Put a fault of the simulator in force now."""
        self.simulator.order({'inject': fault_to_json(fault)})

    def push(self, rad: float, seconds: float) -> None:
        """Let somebody push joint 1 aside and keep it there for a time."""
        self.simulator.order({'push': [rad, seconds]})

    def fill_bus(self, is_full: bool) -> None:
        """Let the bus take no frames, or take them again."""
        self.bus.fill(is_full)

    def lose_frames(self, can_id: int, times: int) -> None:
        """Let the system not take the next frames of an id."""
        self.bus.lose(can_id, times)

    def cut(self) -> None:
        """Close the connection to the server."""
        self.bus.cut()

    def restart_time(self) -> None:
        """Tell encoder and policy that simulated time went back."""
        self.run.restart_time()

    def kill(self, name: str) -> None:
        """End a stage's thread."""
        self.run.kill(name)

    def revive(self, name: str) -> None:
        """Start a stage's thread again."""
        self.run.revive(name)

    def hang(self, name: str) -> None:
        """Let a stage be busy for ever, still giving signs of life."""
        self.run.hang(name)

    def late_tick(self, seconds: float) -> None:
        """Run one tick late."""
        self.run.late_tick(seconds)

    def freeze(self, seconds: float) -> None:
        """Let the loop stand still once, between reading the clock and sending."""
        self.run.freeze(seconds)

    def skip_ticks(self, number: int) -> None:
        """Let the loop miss some ticks."""
        self.run.skip_ticks(number)

    def stop_process(self, seconds: float) -> None:
        """Stop the process of the bridge for a while."""
        self.run.stop_process(seconds)

    def stop(self) -> None:
        """Ask the bridge to stop."""
        self.run.guarded(self.run.bridge.request_stop)

    def instruct(self, text: str) -> None:
        """Give another instruction."""
        self._reply(lambda now: self.run.bridge.set_instruction(text, now))

    def hold(self) -> None:
        """Let the operator hold."""
        self._reply(self.run.bridge.hold)

    def resume(self) -> None:
        """Let the operator resume."""
        self._reply(self.run.bridge.resume)

    def recover(self, *, arm_supported: bool = False) -> None:
        """Let the operator recover; blocks while the ticks go on."""
        self.replies.append(self.run.bridge.recover(arm_supported=arm_supported))

    # ---- the run -----------------------------------------------------------------------------

    def start(self) -> None:
        """Connect, check and enable; raises what the arm refuses with."""
        try:
            self.run.enable()
        except ArmError:
            self.simulator.end()
            raise

    def finish(self) -> None:
        """Run to the end of the duration, close the ledger and end the simulator."""
        run, begin = self.run, soon(self.run.clock)
        start_ns = begin.mono_ns
        ledger = LedgerWriter.create(self.folder / LEDGER, period_ns=self.period_ns, start=begin)
        run.start_ns = start_ns
        if self.options.is_swinging:
            self.model.swing_from_ns = start_ns + round((FAULT_S - LEAD_S) * S)
        for time_s, action in self._events:
            if time_s > 0.0:
                run.timeline.at(start_ns + round(time_s * S), action)
            else:
                action()
        try:
            run.go(ledger, start_ns)
        finally:
            ledger.close()
        self.end_ns = run.end_ns
        self.note_faults(run.codes)
        run.arm.disconnect()
        self.simulator.end()
        self._poses = np.load(self.folder / POSES)

    def close(self) -> None:
        """Release the channel and end the simulator."""
        self.run.arm.disconnect()
        self.simulator.end()

    # ---- what came of it ---------------------------------------------------------------------

    def judge(self, from_s: float) -> Arrivals:
        """Judge everything that reached the arm; the maxima count from a time of the run on."""
        return self._judge(0, from_s)

    def stream(self) -> tuple[FloatArray, FloatArray]:
        """Return times of the run in s and commands ``float64[N, 7]``, as they arrived."""
        return self._stream(0)

    def path(self) -> tuple[FloatArray, FloatArray]:
        """Return times of the run in s and the true joints of all arms at each tick."""
        due = np.array([tick.due_ns for tick in self.run.log.ticks]) / S
        columns = 1 + np.flatnonzero(revolute(self._poses.shape[1] - 1))
        joints = [np.interp(due, self._poses[:, 0], self._poses[:, j]) for j in columns]
        return due - self.run.start_ns / S, np.stack(joints, axis=1)

    def _judge(self, number: int, from_s: float) -> Arrivals:
        width = len(JOINT_NAMES)
        own = np.r_[0, 1 + number * width:1 + (number + 1) * width]
        return judge_arrivals(
            parts_of(self.buses[number].recent()), self._poses[:, own],
            limits=of_one(self.run.arm.limits(), number).intersect(self.limits),
            period_s=self.period_ns / S, from_s=self.run.start_ns / S + from_s)

    def _stream(self, number: int) -> tuple[FloatArray, FloatArray]:
        parts = parts_of(self.buses[number].recent())
        times = np.concatenate([part.times_s for part in parts]) - self.run.start_ns / S
        return times, np.concatenate([part.commands for part in parts])

    def readings(self, judged: Arrivals) -> dict[str, float]:
        """Return how late commands and their reader were, ms."""
        return {'spread_ms': round(1e3 * judged.spread_s, 1),
                'read_late_ms': round(self.simulator.stats['late_max_ns'] / MS, 1),
                'sent_ms': round(self.run.sent_ns / MS, 1),
                'woke_ms': round(self.run.woke_ns / MS, 1),
                'tick_ms': round(self.run.tick_ns / MS, 1)}

    def _picture(self, snapshot: object, camera: str, number: int) -> Any:
        """Return a picture that no other equals."""
        del snapshot, camera, number
        return self._random.integers(0, 256, (4, 4, 3), np.uint8)

    def _reply(self, call: Callable[[Any], tuple[Reply, tuple[Any, ...]]]) -> None:
        reply, outputs = self.run.guarded(call)
        self.replies.append(reply)
        self.run._publish(outputs)
