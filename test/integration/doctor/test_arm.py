"""The doctor beside an emulated arm, through the unmodified SDK: what leaves are questions."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from reflex_ros.arm.config import DriverConfig
from reflex_ros.arm.lock import ChannelLock
from reflex_ros.cli.main import main
from reflex_ros.core.clock import SystemClock
from reflex_ros.doctor.arm_sample import QUERY_IDS, listen
from reflex_ros.sim.can_server import CanServer
from reflex_ros.sim.emulator import Emulator
from reflex_ros.sim.faults import Fault, Kind
from reflex_ros.sim.plant import KinematicPlant

pytestmark = pytest.mark.can


@pytest.fixture
def bus(tmp_path, monkeypatch):
    """Return an emulated arm on a bus, with what hosts sent to it."""
    monkeypatch.setenv('XDG_RUNTIME_DIR', str(tmp_path))
    clock = SystemClock()
    plant = KinematicPlant(clock)
    arm = Emulator(plant, clock.mono_ns())
    server = CanServer({'can0': arm}, clock, port=0)
    server.start()
    yield SimpleNamespace(
        arm=arm, plant=plant, clock=clock, port=server.port, name=f'can0@127.0.0.1:{server.port}',
        config=DriverConfig(transport='socketcand', port=server.port, lock_dir=tmp_path),
        sent=lambda: [record.can_id for record in server.tap.recent()])
    server.stop()


def test_a_visit_asks_and_never_commands(bus, tmp_path, capsys):
    before, _ = bus.plant.joint_state()
    path = tmp_path / 'doctor.json'
    main(['doctor', '--arm', bus.name, '--only', 'arm', '--seconds', '1', '--json', str(path)])
    capsys.readouterr()
    found = {f['check']: f for f in json.loads(path.read_text())['findings']}
    assert set(bus.sent()) == QUERY_IDS
    assert found['arm-firmware']['measured']['firmware'] == 'S-V1.8-9'
    assert found['arm-feedback']['measured']['rates_hz']['0x2A5'] > 0
    assert found['arm-status']['measured']['powered'] == [False] * 7
    assert found['arm-limits']['level'] == 'ok'
    assert bus.arm.firmware.persistent_writes == 0
    after, _ = bus.plant.joint_state()
    assert after.tolist() == before.tolist()


def test_listening_only_sends_nothing_at_all(bus):
    sample = listen(bus.config, bus.clock, seconds=1.0, asks=False)
    assert bus.sent() == [] and not sample.is_asked
    assert sample.error is None and sample.view.frames > 0


def power_on(bus):
    """Power the joints as a driver would, whatever a busy machine has heard of the arm."""
    from reflex_ros.arm.commands import Commands
    from reflex_ros.arm.feedback import FeedbackBook
    from reflex_ros.arm.gate import CommandGate
    from reflex_ros.arm.link import CanLink

    gate = CommandGate(bus.clock, send_frames=True)
    link = CanLink(bus.config, bus.clock, book=FeedbackBook(), gate=gate)
    link.open()
    commands = Commands(bus.config, link=link, gate=gate)
    for joint in range(1, 7):
        assert commands.power_on(joint)
    bus.clock.sleep_until(bus.clock.mono_ns() + 200_000_000)
    link.close()


def test_what_leaves_can_fail(bus):
    """What powers a joint is seen by the same tap."""
    power_on(bus)
    assert not set(bus.sent()) <= QUERY_IDS


def test_an_enabled_arm_stays_enabled(bus):
    power_on(bus)
    powered = list(bus.arm.firmware.powered)
    sample = listen(bus.config, bus.clock, seconds=1.0, asks=True)
    assert list(bus.arm.firmware.powered) == powered and any(powered)
    assert sample.error is None


def test_a_silent_bus_is_a_failure_that_ends_in_time(bus, capsys):
    bus.arm.faults.inject(Fault(Kind.SILENCE), bus.clock.mono_ns())
    code = main(['doctor', '--arm', bus.name, '--only', 'arm', '--seconds', '1'])
    out = capsys.readouterr().out
    assert code == 1
    assert 'FAIL  arm-feedback' in out and 'Check power, cable, bitrate' in out


def test_a_channel_that_a_bridge_uses_is_left_to_it(bus, capsys):
    lock = ChannelLock(bus.config.bus_name)
    lock.acquire()
    try:
        code = main(['doctor', '--arm', bus.name, '--only', 'arm'])
    finally:
        lock.release()
    assert code == 0 and bus.sent() == []
    assert 'in use by process' in capsys.readouterr().out


def test_a_server_that_is_not_there_is_a_failure(capsys):
    code = main(['doctor', '--arm', 'can0@127.0.0.1:9', '--only', 'arm'])
    assert code == 1
    assert 'Start the simulator or socketcand' in capsys.readouterr().out
