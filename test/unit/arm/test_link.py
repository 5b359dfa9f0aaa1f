"""The bus under the SDK, opened, watched and reopened, over an SDK of the test."""

from __future__ import annotations

import importlib.metadata
import sys
from types import ModuleType, SimpleNamespace

import pytest

from reflex_ros.arm import link as link_module
from reflex_ros.arm import wire
from reflex_ros.arm.arrival import Arrivals
from reflex_ros.arm.config import DriverConfig
from reflex_ros.arm.feedback import FeedbackBook
from reflex_ros.arm.gate import CommandGate
from reflex_ros.arm.health import Health
from reflex_ros.arm.interface import InterfaceInfo
from reflex_ros.arm.link import SDK_VERSION, CanLink, load_sdk
from reflex_ros.core.clock import MS, ManualClock, S
from reflex_ros.core.errors import ArmError, ConfigError

GOOD = InterfaceInfo(exists=True, is_up=True, kind='can', bitrate=1_000_000, has_details=True,
                     state='ERROR-ACTIVE', queue_length=1000, restart_ms=100)
SUCCESS, FAILED = 1, 2


class BackendError(Exception):
    """Stands for ``can.CanOperationError``."""


class Bus:
    """The SDK's bus object over a backend that gives what the test puts into ``incoming``."""

    CAN_STATUS = SimpleNamespace(SEND_MESSAGE_SUCCESS=SUCCESS, SEND_MESSAGE_FAILED=FAILED)

    def __init__(self, clock):
        self.clock, self.incoming, self.read_ns = clock, [], 0
        self.answer, self.sent, self.to_sdk = SUCCESS, [], []
        self.refill = lambda: None
        self.recv_bus = SimpleNamespace(_recv_internal=self.receive)
        self.callback_function = self.to_sdk.append

    def receive(self, timeout):
        self.clock.advance(self.read_ns)
        self.refill()
        if not self.incoming:
            return None, False
        found = self.incoming.pop(0)
        if isinstance(found, Exception):
            raise found
        return found, False

    def SendCanMessage(self, arbitration_id, data, dlc=8, is_extended_id=False):
        self.sent.append((arbitration_id, bytes(data)))
        return self.answer


class Sdk:
    """One interface of the SDK for each name, as its singletons are."""

    LogLevel = SimpleNamespace(CRITICAL=50)

    def __init__(self, clock):
        self.clock, self.made, self.opened, self.broken, self.connected = clock, {}, [], 0, 0
        self.takes_ns = 0

    def C_PiperInterface_V2(self, name, **options):
        return self.made.setdefault(name, self)

    def CreateCanBus(self, channel, **options):
        self.opened.append((channel, options, dict(self.can.rc)))
        if isinstance(self.broken, Exception):
            raise self.broken
        self.bus = Bus(self.clock)
        self.clock.advance(self.takes_ns)
        if self.broken:  # the SDK swallows the error of a backend
            self.broken -= 1
            self.bus.recv_bus = None

    def GetCanBus(self):
        return self.bus

    def ConnectPort(self, *, piper_init):
        self.connected += 1

    def DisconnectPort(self):
        self.connected -= 1

    def EnableArm(self, *args):
        self.bus.SendCanMessage(*wire.power_frame(1, wire.POWER_ON))


@pytest.fixture
def rig(monkeypatch):
    """Return a maker of closed links, each with its ``clock``, ``sdk``, ``book`` and ``gate``."""
    def make(config=None):
        clock = ManualClock(5 * S)
        sdk, can = Sdk(clock), SimpleNamespace(CanOperationError=BackendError, rc={'mine': 1})
        sdk.can = can
        monkeypatch.setattr(link_module, 'load_sdk', lambda: (sdk, can))
        book, gate = FeedbackBook(), CommandGate(clock, send_frames=True)
        config = config or DriverConfig()
        made = CanLink(config, clock, book=book, gate=gate,
                       read_info=lambda name: GOOD)
        return SimpleNamespace(link=made, clock=clock, sdk=sdk, book=book, gate=gate, can=can,
                               config=config)
    return make


def message(can_id, data=bytes(8), *, is_error=False, stamp_s=0.0):
    return SimpleNamespace(arbitration_id=can_id, data=data, is_error_frame=is_error,
                           timestamp=stamp_s)


def power(rig):
    return rig.gate.command([wire.power_frame(1, wire.POWER_ON)],
                            lambda: rig.link.sdk.EnableArm(1, 2))


# ---- the version ------------------------------------------------------------------------------


@pytest.fixture
def installed(monkeypatch):
    """Return a function that installs a piper_sdk of some version, None for none."""
    def install(version):
        for name in ('piper_sdk', 'can'):
            monkeypatch.setitem(sys.modules, name, ModuleType(name) if version else None)
        monkeypatch.setattr(importlib.metadata, 'version', lambda name: version)
    return install


@pytest.mark.parametrize('version', ['0.6.1', '0.6.3', '0.5.0', '1.0.0', '0.6.2.post1'])
def test_another_version_of_the_sdk_is_refused_by_name(installed, version):
    installed(version)
    with pytest.raises(ConfigError) as found:
        load_sdk()
    assert f'got version {version}, expected {SDK_VERSION}' in str(found.value)
    assert f'pip install piper_sdk=={SDK_VERSION}' in str(found.value)


def test_a_missing_sdk_is_refused_by_name(installed):
    installed(None)
    with pytest.raises(ConfigError, match=f'piper_sdk.*expected version {SDK_VERSION}'):
        load_sdk()


def test_the_pinned_version_is_taken_can_fail(installed):
    installed(SDK_VERSION)
    sdk, can = load_sdk()
    assert (sdk.__name__, can.__name__) == ('piper_sdk', 'can')


# ---- opening ----------------------------------------------------------------------------------


def test_an_error_that_the_sdk_swallows_is_tried_again_and_then_named(rig):
    r = rig()
    r.sdk.broken = 2
    r.link.open()
    assert r.link.is_open and len(r.sdk.opened) == 3
    r.link.close()
    r.sdk.broken = 99
    with pytest.raises(ArmError, match='error of the CAN backend') as found:
        r.link.open()
    assert found.value.code == 'can_open' and not r.link.is_open


def test_an_interface_that_cannot_be_opened_is_named(rig):
    r = rig()
    r.sdk.broken = ConnectionError('no such device')
    with pytest.raises(ArmError, match='no such device') as found:
        r.link.open()
    assert found.value.code == 'can_open'
    with pytest.raises(ArmError) as closed:
        r.link.sdk.EnableArm(1, 2)
    assert closed.value.code == 'not_connected'


def test_a_kernel_interface_is_checked_before_it_is_opened(rig):
    r = rig()
    r.link._read_info = lambda name: InterfaceInfo(exists=False)
    with pytest.raises(ArmError) as found:
        r.link.open()
    assert found.value.code == 'can_interface_missing' and r.sdk.opened == []


def test_options_of_one_server_stay_with_it(rig, monkeypatch):
    r = rig(DriverConfig(transport='socketcand', host='127.0.0.1', port=2000))
    monkeypatch.setattr(CanLink, '_probe', lambda self: None)
    r.link.open()
    options = r.sdk.opened[0][2]
    assert (options['host'], options['port'], options['mine']) == ('127.0.0.1', 2000, 1)
    assert r.can.rc == {'mine': 1}, 'another driver of the process finds its own'


def test_an_unreachable_server_is_refused_before_the_backend_waits_for_it(rig):
    r = rig(DriverConfig(transport='socketcand', port=1))
    with pytest.raises(ArmError) as found:
        r.link.open()
    assert found.value.code == 'can_unreachable' and r.sdk.opened == []


# ---- receiving --------------------------------------------------------------------------------


def receive(r, *messages):
    r.sdk.bus.incoming += messages
    return r.sdk.bus.recv_bus._recv_internal(1.0)


def test_feedback_is_read_here_and_answers_go_on_to_the_sdk(rig):
    r = rig()
    r.link.open()
    found, _ = receive(r, message(0x2A1, bytes([1, 0, 1, 0, 0, 0, 0, 0])), message(0x473))
    assert found.arbitration_id == 0x473 and r.book.view().status.control_mode == 1
    r.sdk.bus.callback_function(message(0x473, bytes([1, 5, 220, 250, 36, 11, 184, 0])))
    assert len(r.sdk.bus.to_sdk) == 1 and 1 in r.book.view().angle_limits
    r.sdk.bus.callback_function(message(0x2A1))
    assert len(r.sdk.bus.to_sdk) == 1, 'its getters are not used'


@pytest.mark.parametrize('length', range(8))
def test_a_frame_that_is_cut_short_is_counted_and_changes_nothing(rig, length):
    r = rig()
    r.link.open()
    ids = (0x2A1, 0x2A5, 0x2A8, 0x251, 0x261)
    before = [getattr(r.book.view(), name) for name in ('status', 'joints_ns', 'gripper')]
    receive(r, *[message(can_id, bytes(length)) for can_id in ids])
    view = r.book.view()
    assert [view.status, view.joints_ns, view.gripper] == before
    assert view.decode_errors == len(ids) and r.link.is_open


def test_error_frames_are_counted_and_not_decoded(rig):
    r = rig()
    r.link.open()
    receive(r, message(0x2A1, bytes([6] * 8), is_error=True))
    r.sdk.bus.callback_function(message(0x004, bytes(8), is_error=True))
    assert r.link.error_frames == 2 and r.book.view().status is None


def test_a_closed_connection_is_found_by_reads_that_return_at_once(rig):
    r = rig()
    r.link.open()
    for _ in range(link_module._EMPTY_READS + 1):
        receive(r)
    assert not r.link.is_open and 'closed the connection' in r.link.lost_reason


def test_a_silent_bus_or_a_frame_in_pieces_is_no_closed_connection_can_fail(rig):
    r = rig()
    r.link.open()
    r.sdk.bus.read_ns = 50 * MS  # each read waits its time
    for _ in range(10 * link_module._EMPTY_READS):
        receive(r)
    assert r.link.is_open
    r.sdk.bus.read_ns = 0
    for _ in range(5):
        for _ in range(60):  # a message of socketcand has less than 60 characters
            receive(r)
        receive(r, message(0x473))
    assert r.link.is_open


def test_a_backend_that_fails_is_named_paused_for_and_not_read_after_closing(rig):
    r = rig()
    r.link.open()
    before_ns = r.clock.mono_ns()
    with pytest.raises(BackendError):
        receive(r, BackendError('Network is down\nwith a traceback'))
    assert r.link.lost_reason == 'BackendError: Network is down'
    assert r.clock.mono_ns() - before_ns >= 10 * MS, 'the reader of the SDK would spin'
    hooked, reads = r.sdk.bus.recv_bus._recv_internal, r.sdk.bus.incoming
    r.link.close()
    reads.append(message(0x2A1))
    with pytest.raises(BackendError, match='closed by the driver'):
        hooked(1.0)
    assert len(reads) == 1 and r.sdk.connected == 0


# ---- frames that waited -----------------------------------------------------------------------

CYCLE = (*range(0x2A1, 0x2A9), *range(0x251, 0x257), *range(0x261, 0x267))
POWERED = {**dict.fromkeys(range(0x261, 0x267), bytes([0, 240, 0, 30, 30, 0x40, 0, 0])),
           0x2A1: bytes([1, 0, 1, 0, 0, 0, 0, 0]), 0x2A8: bytes([0, 0, 0, 0, 0, 0, 0xC0, 0])}


def cycles(r, number, *, end_ns):
    """Return the frames of some cycles of 5 ms, the last of them at a time, steady ns."""
    return [message(can_id, POWERED.get(can_id, bytes(8)), stamp_s=(end_ns - n * 5 * MS) / S)
            for n in reversed(range(number)) for can_id in CYCLE]


def running(r):
    """Open a link and let it run; return when its newest frames came."""
    r.link.open()
    for _ in range(40):
        r.clock.advance(5 * MS)
        receive(r, *cycles(r, 1, end_ns=r.clock.mono_ns()))
    at_ns = r.clock.mono_ns()
    assert found(r) == () and r.book.view().joints_ns == at_ns
    return at_ns


def stopped(r, ns=800 * MS):
    """Stop a running link's process; return when, with its socket full since."""
    at_ns = running(r)
    r.clock.advance(ns)
    r.sdk.bus.incoming += cycles(r, 60, end_ns=at_ns + 300 * MS)  # the kernel keeps so many
    return at_ns


def found(r):
    health = Health(r.config, link=r.link, gate=r.gate)
    return health.faults(r.book.view(), r.clock.mono_ns(), has_control=False)


def read_on(r, times=1):
    """Read what waits, then cycles as they come; return the faults after each."""
    every = []
    for n in range(times + 1):
        r.clock.advance(5 * MS * (n > 0))
        receive(r, *(cycles(r, 1, end_ns=r.clock.mono_ns()) if n else ()))
        every.append(found(r))
    return every


def test_what_waited_while_the_process_was_stopped_is_no_fresh_state(rig):
    r = rig()
    at_ns = stopped(r)
    assert found(r) == ('feedback_lost',)
    every = read_on(r, 30)
    view = r.book.view()
    assert every[0] == ('feedback_lost',) and every[-1] == ()
    assert view.joints_ns == r.clock.mono_ns() and view.frames > 60 * len(CYCLE)
    assert every.count(('feedback_lost',)) in range(10, 15), 'until the stamps kept pace for 50 ms'
    assert at_ns < view.status_ns


def test_what_waited_can_fail(rig, monkeypatch):
    monkeypatch.setattr(Arrivals, 'stamp', lambda self, now_ns, bus_s: now_ns)
    r = rig()
    stopped(r)
    assert read_on(r)[0] == ()


def test_a_pause_of_30_ms_of_the_reader_is_no_loss(rig):
    r = rig()
    stopped(r, 30 * MS)
    assert read_on(r, 1) == [(), ()]
    assert r.book.view().joints_ns == r.clock.mono_ns()


def seen_after(r, ns):
    """Stop a running link, then let it read on, 60 us a frame; return all faults seen."""
    faults, last_ns = set(), running(r)
    bus = r.sdk.bus

    def refill():
        nonlocal last_ns
        faults.update(found(r))
        while last_ns + 5 * MS <= r.clock.mono_ns():
            last_ns += 5 * MS
            bus.incoming += cycles(r, 1, end_ns=last_ns)

    r.clock.advance(ns)
    bus.read_ns, bus.refill = 60_000, refill
    for _ in range(100):
        r.clock.advance(MS)
        receive(r)
    assert r.clock.mono_ns() - r.book.view().joints_ns < 10 * MS
    return faults


@pytest.mark.parametrize('stop_ms', [50, 90, 96])
def test_a_stop_of_less_than_the_timeout_is_no_loss_though_reading_takes_time(rig, stop_ms):
    assert seen_after(rig(), stop_ms * MS) == set()


def test_a_stop_of_more_than_the_timeout_is_a_loss(rig):
    assert seen_after(rig(), 101 * MS) == {'feedback_lost'}


def test_a_stop_of_less_than_the_timeout_can_fail(rig, monkeypatch):
    monkeypatch.setattr(Arrivals, '_told_by_bus', lambda self, now_ns, bus_ns, *, is_now: 0)
    assert seen_after(rig(), 90 * MS) == {'feedback_lost'}


def slowly_opened(r):
    """Open a bus for 60 ms, while frames come; return how long before the end they are said."""
    r.sdk.takes_ns = 60 * MS
    r.link.open()
    r.sdk.bus.read_ns = 0
    receive(r, *cycles(r, 12, end_ns=r.clock.mono_ns()))
    return r.clock.mono_ns() - r.book.view().joints_ns


def test_what_waited_while_the_bus_was_opened_is_as_old_as_it_may_be(rig):
    assert slowly_opened(rig()) == 60 * MS


def test_what_waited_while_the_bus_was_opened_can_fail(rig, monkeypatch):
    monkeypatch.setattr(CanLink, '_hook', opened_before(CanLink._hook))
    assert slowly_opened(rig()) == 0


def opened_before(hook):
    """Return a hook that takes the end of the opening for its begin."""
    def planted(self, can_bus):
        self._arrivals = Arrivals(self._mono_ns())
        hook(self, can_bus)
    return planted


def own_command_back(r):
    """Stop for five seconds after a command; return how often its echo counts as another's."""
    r.link.open()
    receive(r)
    assert power(r)
    r.clock.advance(5 * S)
    receive(r, message(*wire.power_frame(1, wire.POWER_ON)))
    r.sdk.bus.callback_function(message(*wire.power_frame(1, wire.POWER_ON)))
    return r.book.view().foreign_frames


def test_an_own_command_that_comes_back_after_a_stop_is_no_other_commander(rig):
    assert own_command_back(rig()) == 0


def test_an_own_command_that_comes_back_can_fail(rig, monkeypatch):
    monkeypatch.setattr(Arrivals, 'stamp', lambda self, now_ns, bus_s: now_ns)
    assert own_command_back(rig()) == 1


# ---- sending, reopening -----------------------------------------------------------------------


def test_frames_that_the_bus_does_not_take_are_counted_until_it_takes_one(rig):
    r = rig()
    r.link.open()
    assert power(r) and r.gate.counts.failed_in_a_row == 0
    r.sdk.bus.answer = FAILED
    assert [power(r) for _ in range(5)] == [False] * 5
    assert (r.gate.counts.failed, r.gate.counts.failed_in_a_row) == (5, 5)
    r.sdk.bus.answer = SUCCESS
    assert power(r)
    assert (r.gate.counts.failed, r.gate.counts.failed_in_a_row) == (5, 0)


def test_a_reopened_bus_starts_with_a_clean_count_and_a_gate_of_its_own(rig):
    r = rig()
    r.link.open()
    first = r.sdk.bus
    first.answer = FAILED
    assert not power(r)
    receive(r)
    r.link._lose('cable pulled')
    r.link.close()
    assert not r.link.is_open
    with pytest.raises(ArmError):
        r.link.sdk.EnableArm(1, 2)
    r.link.open()
    assert r.link.is_open and r.link.lost_reason == '' and r.sdk.connected == 1
    assert r.sdk.bus is not first and power(r)
    assert r.gate.counts.failed_in_a_row == 0 and len(first.sent) == 1
    before = len(r.sdk.bus.sent)
    r.sdk.bus.SendCanMessage(*wire.reset_frame())
    assert len(r.sdk.bus.sent) == before, 'nothing leaves around the gate'


def test_closing_twice_does_nothing(rig):
    r = rig()
    r.link.open()
    r.link.close()
    r.link.close()
    assert r.sdk.connected == 0
