"""What the bridge does about each fault of the arm and its bus, and what it writes down.

The real driver and the bridge's loop against the emulated arm on a bus of its own; each fault is
written as in a fault script. The arm holds, so whatever moves it is unasked.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import numpy as np
import pytest
import yaml

from reflex_ros.arm.config import DriverConfig
from reflex_ros.arm.driver import PiperDriver
from reflex_ros.core.clock import MS, SystemClock
from reflex_ros.core.errors import ArmError
from reflex_ros.core.ledger import CAUSE_CODES, LedgerReader, LedgerWriter
from reflex_ros.sim.can_server import CanServer
from reflex_ros.sim.emulator import Emulator
from reflex_ros.sim.faults import load_faults
from reflex_ros.sim.injector import FaultInjector
from reflex_ros.sim.plant import KinematicPlant
from reflex_ros.stages.bridge import Bridge
from reflex_ros.stages.bridge_config import BridgeConfig
from reflex_ros.stages.worker import TickLoop

pytestmark = [pytest.mark.can, pytest.mark.realtime]

PERIOD_NS = 20 * MS
FEEDBACK_NS = 250 * MS
"""More than the 100 ms of a robot, so that a busy machine is not taken for a silent arm."""
POWER, MODE, STOP, TARGETS = 0x471, 0x151, 0x150, (0x155, 0x156, 0x157, 0x159)
RESOLUTION_RAD = 0.003
PATIENCE_S = 10.0


def until(condition):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, 'never happened'
        time.sleep(0.005)


class Rig:
    """An emulated arm, the driver, the bridge and its loop."""

    def __init__(self, folder, script=None):
        self.clock = SystemClock()
        self.plant = KinematicPlant(self.clock)
        injector = FaultInjector(script) if script else None
        self.emulator = Emulator(self.plant, self.clock.mono_ns(), faults=injector)
        self.server = CanServer({'can0': self.emulator}, self.clock, port=0)
        self.server.start()
        self.arm = PiperDriver(DriverConfig(
            transport='socketcand', port=self.server.port, lock_dir=folder,
            feedback_timeout_ns=FEEDBACK_NS))
        bounds = BridgeConfig().bounds.__class__(feedback_ns=FEEDBACK_NS)
        self.bridge = Bridge(self.arm, BridgeConfig(
            instruction='go', is_autostarted=True, bounds=bounds), self.clock)
        self.lock, self.errors = threading.RLock(), []
        self.path, self.loop = folder / 'ledger.bin', None
        self.seen = set()

    def run(self):
        """Enable the arm and start the loop; the arm holds from here on."""
        self.bridge.connect()
        self.bridge.activate()
        self.ledger = LedgerWriter.create(self.path, period_ns=PERIOD_NS, start=self.clock.now())
        self.bridge.use_ledger(self.ledger)

        def step(now, due_ns, index):
            with self.lock:
                self.bridge.step(now, due_ns, index)
            self.seen.update(self.arm.faults())

        self.loop = TickLoop(step, period_ns=PERIOD_NS, clock=self.clock,
                             failed=self.errors.append, start_ns=self.ledger.header.start_ns)
        self.loop.start()
        until(lambda: len(self.records) > 10)
        self.pose = self.position
        return self

    @property
    def position(self):
        return self.plant.joint_state()[0].copy()

    @property
    def records(self):
        return LedgerReader(self.path).records()

    @property
    def state(self):
        return self.bridge.states.state.value

    def sent(self, since=0):
        """Return the ids of the frames from the host."""
        return [record.can_id for record in self.server.tap.recent()][since:]

    def inject(self, script):
        for fault in script.faults:
            self.emulator.faults.inject(fault, self.clock.mono_ns())

    def resume(self):
        with self.lock:
            return self.bridge.resume(self.clock.now())[0]

    def causes(self, since=0):
        return {CAUSE_CODES[code].value for code in self.records['cause'][since:]}

    def end(self):
        if self.loop is not None:
            self.loop.stop()
            self.ledger.close()
        self.arm.disconnect()
        self.server.stop()
        assert not self.errors


@pytest.fixture
def rig(tmp_path, only_allowed):
    made = []

    def make(script=None):
        made.append(Rig(tmp_path, script))
        return made[-1]

    yield make
    for one in made:
        one.end()
        only_allowed(one.server.tap.counts('can0'))


def test_a_frame_that_writes_to_flash_is_seen_can_fail(only_allowed):
    only_allowed({0x155, 0x156, 0x157, 0x159, 0x151, 0x471, 0x472})
    for can_id in (0x474, 0x470, 0x479, 0x47A, 0x47D, 0x191, 0x422, 0x15A, 0x152):
        with pytest.raises(AssertionError, match=hex(can_id)):
            only_allowed({0x155, can_id})


@pytest.fixture
def script(tmp_path):
    """Return a maker of fault scripts, which are read from a file like any other."""
    def make(*faults):
        path = tmp_path / 'faults.yaml'
        path.write_text(yaml.safe_dump({'schema': 1, 'faults': list(faults)}))
        return load_faults(path)

    return make


@dataclass(frozen=True)
class Case:
    """A fault of a running arm, the code it gets, and how it is got rid of.

    ``falls``: joints without power sink, which no software prevents. ``drags``: somebody else
    moves the arm. ``recover``: whether recovery must work once the fault is over.
    """

    fault: dict
    code: str
    needs_support: bool = False
    falls: bool = False
    drags: bool = False
    recover: bool = True
    never_sent: tuple = field(default=(STOP,))


CASES = {
    'silence': Case({'kind': 'silence', 'duration_s': 0.5}, 'feedback_lost'),
    'bus_off': Case({'kind': 'bus_off', 'duration_s': 0.5}, 'feedback_lost'),
    'late': Case({'kind': 'delay', 'delay_s': 0.4, 'duration_s': 1.0}, 'feedback_lost'),
    'estop': Case({'kind': 'estop'}, 'arm_estop', needs_support=True, falls=True, never_sent=()),
    # its frames repeat our last command, so for a second they pass for the echo of our own
    'leader': Case({'kind': 'leader_mode'}, 'foreign_commander', recover=False),
    'teach': Case({'kind': 'teach_mode', 'duration_s': 0.3}, 'control_mode_lost'),
    'status': Case({'kind': 'status', 'status': 3, 'duration_s': 0.3}, 'arm_singular'),
    'collision': Case({'kind': 'driver_flags', 'flags': ['collision'], 'joints': [2],
                       'duration_s': 0.2}, 'joint2_collision'),
    'power': Case({'kind': 'power_loss', 'joints': [3]}, 'joint3_disabled', falls=True,
                  recover=False),
    'second commander': Case({'kind': 'second_commander', 'duration_s': 0.2,
                              'joints_deg': [5, 30, -40, 0, 10, 0]}, 'foreign_commander',
                             drags=True, recover=False),
}


@pytest.mark.parametrize('name', CASES)
def test_a_fault_of_a_running_arm_stops_every_command_until_somebody_recovers_it(
    rig, script, name,
):
    case, r = CASES[name], rig().run()
    r.inject(script(case.fault))
    until(lambda: r.state == 'faulted')
    until(lambda: case.code in r.seen)
    frames, ticks = len(r.sent()), len(r.records)
    refused = r.resume()
    assert not refused.accepted and 'Recover it first' in refused.reason
    until(lambda: len(r.records) > ticks + 15)
    assert not set(r.sent(frames)) & {*TARGETS, MODE, POWER, STOP}, 'nobody asked for anything'
    assert r.state == 'faulted'
    assert r.causes(ticks + 1) == {'arm_fault'}
    if not (case.falls or case.drags):
        assert np.abs(r.position - r.pose).max() < RESOLUTION_RAD
    if case.recover:
        recovered(r, case)


def recovered(r, case):
    refused = r.bridge.recover(arm_supported=False)
    assert not refused.accepted and 'arm_supported' in refused.reason
    end = time.monotonic() + PATIENCE_S
    while not (reply := r.bridge.recover(arm_supported=True)).accepted:
        assert time.monotonic() < end, reply
        time.sleep(0.05)
    assert not set(case.never_sent) & set(r.sent())
    where, ticks = r.position, len(r.records)
    until(lambda: len(r.records) > ticks + 10)
    assert np.abs(r.position - where).max() < RESOLUTION_RAD, 'holds the measured pose'
    assert r.state == 'enabled' and r.resume().accepted


@pytest.mark.parametrize(('fault', 'code'), [
    ({'kind': 'leader_mode'}, 'leader_mode'),
    ({'kind': 'wrong_limits', 'lower_deg': -0.1, 'upper_deg': 0.1}, 'limits_implausible'),
    ({'kind': 'wrong_limits', 'joints': [4], 'acceleration_rad_s2': 600.0}, 'limits_implausible'),
    ({'kind': 'estop'}, 'arm_estop'),
    ({'kind': 'bus_off'}, 'feedback_none'),
    ({'kind': 'second_commander'}, 'foreign_commander'),
    ({'kind': 'driver_flags', 'flags': ['motor_hot', 'stall'], 'joints': [1]}, 'joint1_motor_hot'),
], ids=lambda value: value if isinstance(value, str) else '')
def test_a_fault_from_power_on_keeps_the_arm_from_being_enabled(rig, script, fault, code):
    r = rig(script(fault))
    with pytest.raises(ArmError, match='got .*expected') as caught:
        r.run()
    assert caught.value.code == code
    assert not set(r.sent()) & {*TARGETS, MODE, POWER, STOP}


def test_silence_shorter_than_the_limit_is_no_fault(rig, script):
    r = rig().run()
    ticks = len(r.records)
    r.inject(script({'kind': 'silence', 'duration_s': 0.06}))
    until(lambda: len(r.records) > ticks + 20)
    assert r.state == 'holding' and not r.seen
    assert np.abs(r.position - r.pose).max() < RESOLUTION_RAD


def test_wrong_limits_are_noticed_when_the_arm_is_checked_again(rig, script):
    r = rig().run()
    r.inject(script({'kind': 'wrong_limits', 'lower_deg': -0.1, 'upper_deg': 0.1},
                    {'kind': 'estop'}))
    until(lambda: r.state == 'faulted' and 'arm_estop' in r.seen)
    assert 'A reset cuts the power' in r.bridge.recover(arm_supported=True).reason
    reply = r.bridge.recover(arm_supported=True)
    assert not reply.accepted and 'expected a range wider' in reply.reason
    assert r.state == 'faulted'


def test_damaged_joint_angles_move_nothing_even_on_resume(rig, script):
    r = rig().run()
    r.inject(script({'kind': 'corrupt', 'ids': [0x2A5, 0x2A6, 0x2A7], 'probability': 0.4,
                     'bits': 8, 'duration_s': 1.0}))
    end = time.monotonic() + 1.2
    while time.monotonic() < end:
        with r.lock:
            r.bridge.hold(r.clock.now())
        r.resume()
        time.sleep(0.01)
        assert np.abs(r.position - r.pose).max() < 0.05
    assert {'tracking', 'operator', 'warmup'} & r.causes()


def test_damaged_commands_are_refused_by_the_arm_or_stay_small(rig, script):
    r = rig().run()
    ticks = len(r.records)
    r.inject(script({'kind': 'corrupt', 'direction': 'commands', 'probability': 0.1,
                     'duration_s': 0.6}))
    until(lambda: len(r.records) > ticks + 40)
    assert r.state in ('faulted', 'holding')
    assert r.causes(ticks) <= {'arm_fault', 'tracking', 'warmup', 'tick_late', 'state_stale'}
