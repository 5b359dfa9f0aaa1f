"""Two simulated arms from one bridge process, and one at 200 Hz; judged by counts."""

from __future__ import annotations

import time

import numpy as np
import pytest

from reflex_ros.arm.enabling import HOLD_SPEED_PERCENT
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
def hold(stage, buses, tmp_path):
    """Return a starter of the bridge alone, which holds what the changes name."""
    return lambda **changes: start(stage, buses, tmp_path, changes)


@pytest.fixture
def bridge(hold):
    """Return a stage whose one node, the bridge, holds both arms."""
    return hold(**{'arm.several': tuple(
        f'{side}={name}' for side, name in zip(SIDES, CHANNELS, strict=True))})


def start(stage, buses, tmp_path, changes):
    from reflex_ros.bringup.settings import config_file, effective, write_params

    stage.port = buses.port
    values = effective([config_file('sim.yaml')], {
        'run.folder': str(stage.folder), 'arm.port': buses.port,
        'safety.feedback_timeout_s': 1.0, **changes})
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


def judge(found, frames, channels=CHANNELS):
    """Return what is wrong with a run: every tick that was sent must be a frame for each arm.

    While an arm is enabled every mode frame has its own speed and stands between two poses.
    """
    sent = int(((found['flags'] & SENT) != 0).sum())
    wrong = [] if sent > 0.5 * TICKS else [f'{sent} ticks were sent']
    for name in channels:
        own = [frame for frame in frames if frame.channel == name]
        enabling = sum(f.can_id == 0x151 and f.data[2] == HOLD_SPEED_PERCENT for f in own)
        got = sum(frame.can_id == 0x155 for frame in own) - 2 * enabling
        wrong += [] if got == sent else [f'{name}: {got} commands for {sent} ticks']
    return wrong


def all_frames(found, server, channels=CHANNELS):
    """Return all frames once a busy server has taken them."""
    end = time.monotonic() + 20.0
    while judge(found, server.tap.recent(), channels) and time.monotonic() < end:
        time.sleep(0.1)
    return server.tap.recent()


def test_two_arms_at_50_hz_from_one_bridge_process(bridge, buses):
    assert all(poses_by_channel(buses).values()), 'enabled one after the other'
    run(bridge, TICKS)
    bridge.nodes['controller_bridge'].end()
    found = records(bridge)
    frames = all_frames(found, buses)
    assert LedgerReader(bridge.folder / 'ledger.bin').header.period_ns == 20_000_000
    assert found['command'].shape[1] == 14
    assert judge(found, frames) == []
    lost = next(i for i, frame in enumerate(frames)
                if frame.channel == 'can_right' and frame.can_id == 0x155)
    assert judge(found, frames[:lost] + frames[lost + 1:]), 'one lost command is noticed'


def test_two_arms_at_50_hz_can_fail():
    ticks = np.zeros(TICKS, [('flags', 'u1'), ('due_ns', '<i8')])
    assert judge(ticks, []) == ['0 ticks were sent']


def test_one_arm_at_200_hz(hold, buses):
    stage = hold(**{'arm.channel': 'can_left', 'control.rate_hz': 200.0})
    run(stage, 4 * TICKS)
    stage.nodes['controller_bridge'].end()
    found = records(stage)
    assert LedgerReader(stage.folder / 'ledger.bin').header.period_ns == 5_000_000
    assert np.ptp(found['index']) + 1 == found['count'].sum(), 'every due tick has its record'
    assert judge(found, all_frames(found, buses, ('can_left',)), ('can_left',)) == []
    assert not poses_by_channel(buses)['can_right']


def test_a_fault_of_one_arm_ends_the_commands_of_both(bridge, buses):
    run(bridge, 30)
    buses.emulators['can_right'].faults.inject(Fault(Kind.ESTOP), SystemClock().mono_ns())
    bridge.spin(lambda: 'arm_fault' in bridge.causes(), 'an arm fault')
    ticks, before = len(records(bridge)), poses_by_channel(buses)
    run(bridge, ticks + 30)
    after = poses_by_channel(buses)
    assert all(after[name] - before[name] <= 1 for name in CHANNELS), 'one may be on its way'
    assert np.isfinite(records(bridge)['measured'][-1]).all()
