"""Recorded machines, an emulated arm on a manual clock, and probes that measure nothing."""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

import pytest

from reflex_ros.arm import wire
from reflex_ros.arm.config import DriverConfig
from reflex_ros.arm.feedback import FeedbackBook
from reflex_ros.core.clock import MS, ManualClock
from reflex_ros.core.param_table import NODES
from reflex_ros.core.params import load
from reflex_ros.doctor.arm_sample import ArmSample
from reflex_ros.doctor.context import Choices, Context
from reflex_ros.doctor.host import Host
from reflex_ros.doctor.probes import Probes
from reflex_ros.doctor.registry import CHECKS
from reflex_ros.doctor.software import PINS, Cuda
from reflex_ros.doctor.visit import choose, visit
from reflex_ros.ring.cuda_choice import CudaProbe
from reflex_ros.ring.cuda_driver import DeviceFacts
from reflex_ros.ros.camera_log import CameraLog, LatencySample
from reflex_ros.sim.emulator import PERIOD_NS, Emulator, EmulatorConfig
from reflex_ros.sim.plant import KinematicPlant

ROOT = Path(__file__).parents[3]
DATA = ROOT / 'test' / 'data' / 'doctor'
TOPIC = 'camera/main/image_raw'
GIB = 1 << 30


@cache
def shipped():
    values = {}
    for node in NODES:
        values.update(load([ROOT / 'config' / 'robots' / 'piper.yaml'], node))
    return MappingProxyType(values)


def params(**changes):
    return {**shipped(), **{name.replace('__', '.'): value for name, value in changes.items()}}


def lay_out(name, folder):
    """Copy a recorded machine and what it is based on into a folder; return its description."""
    found = json.loads((DATA / name / 'machine.json').read_text())
    base = lay_out(found['base'], folder) if found['base'] else {
        'commands': {}, 'environ': {}, 'fifo': None}
    for path in found['remove']:
        target = folder / path
        shutil.rmtree(target) if target.is_dir() else target.unlink()
    if (DATA / name / 'root').is_dir():
        shutil.copytree(DATA / name / 'root', folder, dirs_exist_ok=True)
    answers = {command: (DATA / name / file).read_text()
               for command, file in found['commands'].items()}
    return {'commands': {**base['commands'], **answers},
            'environ': found['environ'] or base['environ'],
            'fifo': base['fifo'] if found['fifo'] is None else found['fifo']}


def camera(topic=TOPIC, *, count=125, period_ns=40 * MS, age_ns=12 * MS, hashes=None, **changes):
    """Return the log of a healthy camera."""
    log = CameraLog(
        topic, 5.0, ('sensor_msgs/msg/Image',), [i * period_ns for i in range(count)],
        [age_ns + i % 3 * MS for i in range(count)], hashes or list(range(count)), 'rgb8',
        (640, 480))
    for name, value in changes.items():
        setattr(log, name, value)
    return log


class EmulatedArm:
    """An emulated arm whose frames fill a book, without threads or time."""

    def __init__(self, **config):
        self.clock = ManualClock(mono_ns=10**9)
        self.arm = Emulator(KinematicPlant(self.clock), self.clock.mono_ns(),
                            config=EmulatorConfig(**config))
        self.book = FeedbackBook()

    def inject(self, fault):
        self.arm.faults.inject(fault, self.clock.mono_ns())

    def run(self, ticks):
        for _ in range(ticks):
            self.clock.advance(PERIOD_NS)
            now = self.clock.mono_ns()
            for frame in (*self.arm.step(now), *self.arm.due(now)):
                got = wire.Frame(frame.can_id, frame.data)
                self.book.on_frame(got, mono_ns=now, stamp_s=now * 1e-9)
                if got.can_id in wire.COMMAND_IDS:
                    self.book.on_foreign(got.can_id, mono_ns=now)

    def ask(self, frame):
        self.arm.receive(frame.can_id, frame.data, self.clock.mono_ns())
        self.run(2)

    def sample(self, *, asks=True):
        """Return what a visit would have heard."""
        self.run(300)
        now = self.clock.mono_ns()
        rates, silent = self.book.rates_hz(now), self.book.silent_ids(now)
        if asks:
            self.ask(wire.firmware_query_frame())
            for joint in range(1, wire.JOINTS + 1):
                for content in (wire.QUERY_ANGLE, wire.QUERY_ACCELERATION):
                    self.ask(wire.limit_query_frame(joint, content))
            self.ask(wire.gripper_query_frame())
        return ArmSample(None, self.book.view(), rates, rates, silent, self.clock.mono_ns(), asks)


@pytest.fixture
def emulate():
    """Return ``emulate(*faults, asks=True, **emulator_config) -> ArmSample``."""
    def make(*faults, asks=True, **config):
        arm = EmulatedArm(**config)
        arm.run(20)
        for fault in faults:
            arm.inject(fault)
        return arm.sample(asks=asks)

    return make


@pytest.fixture(scope='session')
def healthy_arm():
    arm = EmulatedArm()
    return arm.sample()


def refuse(*arguments):
    raise AssertionError('this test must not measure')


@pytest.fixture
def probes(healthy_arm):
    """Return ``probes(**replaced) -> Probes`` of a healthy robot."""
    healthy = Probes(
        arm=lambda config, seconds, asks: healthy_arm,
        cameras=lambda topics, seconds, namespace: {topic: camera(topic) for topic in topics},
        checkpoint=lambda choices: {'family': 'tiny', 'folder': 'tiny', 'files': 7,
                                    'model_id': 'c858dcc6ad70', 'manifest': True},
        cuda=lambda: Cuda('12.6', True, 'NVIDIA GeForce RTX 4090', 23 * GIB, 24 * GIB),
        disk=lambda folder: (500 * GIB, 200 * GIB),
        write_rate=lambda folder: 400e6,
        fifo=lambda level: True,
        lateness=lambda seconds, period_ns, level: ([0.05] * 995 + [0.4] * 5, True),
        latency=lambda seconds: LatencySample((2.5,) * 120 + (6.0,) * 5, 125),
        ring=lambda: CudaProbe(object(), DeviceFacts('RTX 4090', '', False, True, True, 12060)),
        messages=lambda: 16,
        version=lambda name: {**PINS, 'ros-jazzy-rclpy': '7.1.6'}.get(name),
    )
    return lambda **replaced: replace(healthy, **replaced)


@pytest.fixture
def machine(tmp_path, probes):
    """Return ``machine(name, change=None, **probes) -> Context`` of a recorded machine."""
    def make(name='robot_x86', *, change=None, choices=None, environ=None, answers=None,
             progress=None, **replaced):
        folder = tmp_path / f'{name}-{len(list(tmp_path.iterdir()))}'
        folder.mkdir()
        found = lay_out(name, folder)
        if change is not None:
            change(folder)
        commands = {**found['commands'], **(answers or {})}
        host = Host(folder, run=lambda command: commands.get(' '.join(command), ''),
                    environ={**found['environ'], **(environ or {})})
        chosen = choices or Choices((DriverConfig(),), params(), {'main': TOPIC})
        replaced.setdefault('fifo', lambda level: found['fifo'])
        return Context(chosen, host, probes(**replaced), progress=progress)

    return make


def look(context, *names):
    """Return the findings of the named checks as ``[(check name, finding)]``."""
    return [(check.name, finding) for check, finding in visit(context, choose(names))]


def levels(context, *names):
    """Return the worst level of each check by name."""
    order = ('skip', 'ok', 'warn', 'fail')
    found = {}
    for name, finding in look(context, *(names or [check.name for check in CHECKS])):
        found[name] = max(found.get(name, 'skip'), finding.level.value, key=order.index)
    return found


@pytest.fixture
def tools():
    """Return helpers that are not fixtures by themselves."""
    return argparse.Namespace(
        look=look, levels=levels, camera=camera, params=params, refuse=refuse, topic=TOPIC,
        lay_out=lay_out, data=DATA, root=ROOT)
