"""The simulated arm of one fault, in a process of its own behind a socketcand server.

It is what ``reflex_ros.sim.can_server`` serves, with orders on standard input, a line of JSON
each: ``{"inject": {...}}`` puts a fault in force now, ``{"push": [rad, seconds]}`` is somebody who
pushes joint 1 aside. What arrived goes to ``can_tap.bin``, where the arm was at every cycle to
``poses.npy``. The end of the input ends it; its last line are the server's counters. Of several
arms orders are for the first.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from reflex_ros.core.clock import S, SystemClock
from reflex_ros.core.priority import freeze_garbage, realtime
from reflex_ros.sim.can_server import CanServer
from reflex_ros.sim.emulator import Emulator, EmulatorConfig
from reflex_ros.sim.faults import Direction, Fault, FaultScript, Kind
from reflex_ros.sim.injector import FaultInjector
from reflex_ros.sim.plant import KinematicPlant
from reflex_ros.study.fault_push import push_firmware

CHANNEL = 'can0'
TAP, POSES = 'can_tap.bin', 'poses.npy'


def fault_to_json(fault: Fault) -> dict[str, Any]:
    """Return a fault as plain values."""
    return asdict(fault)


def fault_from_json(values: Mapping[str, Any]) -> Fault:
    """Return the fault of plain values."""
    known = {field.name for field in fields(Fault)}
    plain = {name: tuple(value) if isinstance(value, list) else value
             for name, value in values.items() if name in known}
    return Fault(**{**plain, 'kind': Kind(plain['kind']),
                    'direction': Direction(plain['direction'])})


def script_from_json(values: Mapping[str, Any]) -> FaultScript:
    """Return the script of plain values: ``seed`` and ``faults``."""
    return FaultScript(seed=values['seed'],
                       faults=tuple(map(fault_from_json, values['faults'])))


class SimulatedArms:
    """Arms on a server, each on a channel.

    Args:
        folder: For the tap and the poses.
        config: Kind of arm. script: Faults of the first from power-on, None for none.
        channels: Their names.
    """

    def __init__(self, folder: Path, config: EmulatorConfig, script: FaultScript | None,
                 channels: Sequence[str] = (CHANNEL,)) -> None:
        self._folder, self._clock = folder, SystemClock()
        arms = {name: self._make_arm(config, script if n == 0 else None)
                for n, name in enumerate(channels)}
        self._every, self._first = tuple(arms.values()), arms[channels[0]]
        self._poses: list[tuple[float, ...]] = []
        self.server = CanServer(arms, self._clock, port=0, tap_path=folder / TAP,
                                before_tick=self._note)

    def _make_arm(self, config: EmulatorConfig, script: FaultScript | None) -> Emulator:
        return Emulator(KinematicPlant(self._clock), self._clock.mono_ns(), config=config,
                        faults=FaultInjector(script) if script else None)

    def serve(self, orders: Iterable[str], *, priority: int) -> None:
        """Serve until the orders end.

        Args:
            orders: Lines of JSON.
            priority: FIFO priority of the bus, 0 = normal; a bus does not wait for a machine.
        """
        freeze_garbage()
        with realtime(priority):
            self.server.start()
        print(json.dumps({'port': self.server.port}), flush=True)
        for line in orders:
            self._obey(json.loads(line))
        stats = self.server.stats()
        self.server.close()
        np.save(self._folder / POSES, np.array(self._poses, np.float64))
        print(json.dumps({'late_max_ns': stats.late_max_ns, 'missed': stats.missed_ticks}),
              flush=True)

    def _obey(self, order: Mapping[str, Any]) -> None:
        if 'inject' in order:
            self._first.faults.inject(fault_from_json(order['inject']), self._clock.mono_ns())
        if 'push' in order:
            rad, seconds = order['push']
            push_firmware(self._first.firmware, rad, seconds, _later)

    def _note(self, now_ns: int) -> None:
        readings = [arm.firmware.reading for arm in self._every]
        self._poses.append((now_ns / S, *(value for one in readings for value in (
            *one.joints_rad, one.gripper_m))))


def _later(seconds: float, action: Any) -> None:
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()


def main() -> int:
    """Serve as the first line of the input says: folder, priority, kind, script, channels."""
    first = json.loads(sys.stdin.readline())
    script = script_from_json(first['script']) if first['script'] else None
    arms = SimulatedArms(Path(first['folder']), EmulatorConfig(**first['emulator']), script,
                         first['channels'])
    arms.serve(sys.stdin, priority=first['priority'])
    return 0


if __name__ == '__main__':
    sys.exit(main())
