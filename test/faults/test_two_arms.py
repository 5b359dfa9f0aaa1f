"""Two simulated arms, one bridge process, 50 commands a second for each; judged by counts."""

from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.core.clock import SystemClock
from reflex_ros.core.ledger import SENT, LedgerReader
from reflex_ros.sim.can_server import CanServer
from reflex_ros.sim.emulator import Emulator
from reflex_ros.sim.faults import Fault, Kind
from reflex_ros.sim.plant import KinematicPlant

pytestmark = [pytest.mark.ros, pytest.mark.can, pytest.mark.realtime]

SIDES = ('left', 'right')
CHANNELS = tuple(f'can_{side}' for side in SIDES)
TICKS = 150


@pytest.fixture
def buses():
    """Return a server with one emulated arm on each of two channels."""
    clock = SystemClock()
    arms = {name: Emulator(KinematicPlant(clock), clock.mono_ns()) for name in CHANNELS}
    server = CanServer(arms, clock, port=0)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def bridge(stage, buses, tmp_path):
    """Return a stage whose one node, the bridge, holds both arms."""
    from reflex_ros.bringup.settings import config_file, effective, write_params

    stage.port = buses.port
    several = tuple(f'{side}={name}' for side, name in zip(SIDES, CHANNELS, strict=True))
    values = effective([config_file('sim.yaml')], {
        'run.folder': str(stage.folder), 'arm.port': buses.port, 'arm.several': several,
        'safety.feedback_timeout_s': 1.0})
    path = tmp_path / 'bridge.yaml'
    write_params(path, values)
    stage.start_with('controller_bridge', path)
    stage.walk('controller_bridge')
    return stage


def records(stage):
    return LedgerReader(stage.folder / 'ledger.bin').records()


def run(stage, ticks):
    stage.spin(lambda: len(records(stage)) >= ticks, f'{ticks} ticks', 60.0)


def poses_by_channel(server):
    """Return how often each arm was sent its first joint frame."""
    return {name: server.stats().received[name].get(0x155, 0) for name in CHANNELS}


def judge(found, frames):
    """Return what is wrong with a run: every tick that was sent must be a frame for each arm.

    What was sent while the arms were enabled comes before the first tick and does not count.
    """
    sent = int(((found['flags'] & SENT) != 0).sum())
    wrong = [] if sent > 0.5 * TICKS else [f'{sent} ticks were sent']
    for name in CHANNELS:
        got = sum(frame.channel == name and frame.can_id == 0x155
                  and frame.mono_ns >= found['due_ns'][0] for frame in frames)
        wrong += [] if got == sent else [f'{name}: {got} commands for {sent} ticks']
    return wrong


def test_two_arms_at_50_hz_from_one_bridge_process(bridge, buses):
    assert all(poses_by_channel(buses).values()), 'enabled one after the other'
    run(bridge, TICKS)
    bridge.nodes['controller_bridge'].end()
    found, frames = records(bridge), buses.tap.recent()
    assert LedgerReader(bridge.folder / 'ledger.bin').header.period_ns == 20_000_000
    assert found['command'].shape[1] == 14
    assert judge(found, frames) == []
    lost = next(i for i, frame in enumerate(frames) if frame.channel == 'can_right'
                and frame.can_id == 0x155 and frame.mono_ns >= found['due_ns'][0])
    assert judge(found, frames[:lost] + frames[lost + 1:]), 'one lost command is noticed'


def test_two_arms_at_50_hz_can_fail():
    ticks = np.zeros(TICKS, [('flags', 'u1'), ('due_ns', '<i8')])
    assert judge(ticks, []) == ['0 ticks were sent']


def test_a_fault_of_one_arm_ends_the_commands_of_both(bridge, buses):
    run(bridge, 30)
    buses.emulators['can_right'].faults.inject(Fault(Kind.ESTOP), SystemClock().mono_ns())
    bridge.spin(lambda: 'arm_fault' in bridge.causes(), 'an arm fault')
    ticks, before = len(records(bridge)), poses_by_channel(buses)
    run(bridge, ticks + 30)
    after = poses_by_channel(buses)
    assert all(after[name] - before[name] <= 1 for name in CHANNELS), 'one may be on its way'
    assert np.isfinite(records(bridge)['measured'][-1]).all()
