"""Only requested frames reach the bus, whatever the SDK makes of them."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from reflex_ros.arm import wire
from reflex_ros.arm.gate import CommandGate
from reflex_ros.core.clock import ManualClock, S

ONE = wire.joint_frames([1000] * 6)
TWO = wire.joint_frames([-2000] * 6)


class RacySdk:
    """Fills one shared message, lets other threads run, then encodes it: as the SDK does."""

    def __init__(self):
        self.on_bus = []
        self.status = SimpleNamespace(SEND_MESSAGE_SUCCESS=1, SEND_MESSAGE_FAILED=2)
        self.bus = SimpleNamespace(CAN_STATUS=self.status, SendCanMessage=self.put)
        self.answer = 1
        self.shared = (0, b'')
        self.interfere = lambda: None

    def put(self, arbitration_id, data, dlc=8, is_extended_id=False):
        if self.answer == 1:
            self.on_bus.append((arbitration_id, bytes(data)))
        return self.answer

    def send(self, *frames):
        for frame in frames:
            self.shared = frame
            self.interfere()
            self.bus.SendCanMessage(*self.shared)


@pytest.fixture
def sdk():
    return RacySdk()


def gated(sdk, *, send_frames=True, clock=None):
    gate = CommandGate(clock or ManualClock(), send_frames=send_frames)
    gate.install(sdk.bus)
    return gate


def disturb(sdk):
    """Let another caller overwrite the shared message once."""
    def once():
        sdk.interfere = lambda: None
        sdk.shared = (0x155, bytes(8))
    sdk.interfere = once


def test_requested_frames_pass_in_order(sdk):
    gate = gated(sdk)
    assert gate.command(ONE, lambda: sdk.send(*ONE))
    assert sdk.on_bus == list(ONE) and gate.counts.sent == 3


def test_frame_corrupted_by_a_race_never_reaches_the_bus(sdk):
    gate = gated(sdk)
    disturb(sdk)
    assert not gate.command(ONE, lambda: sdk.send(*ONE))
    assert (0x155, bytes(8)) not in sdk.on_bus
    assert gate.counts.blocked == 1


def test_frame_corrupted_by_a_race_never_reaches_the_bus_can_fail(sdk):
    disturb(sdk)
    sdk.send(*ONE)
    assert (0x155, bytes(8)) in sdk.on_bus


def test_concurrent_callers_put_no_wrong_frame_on_the_bus(sdk):
    gate = gated(sdk)
    barrier = threading.Barrier(2)

    def work(frames):
        barrier.wait()
        for _ in range(300):
            assert gate.command(frames, lambda: sdk.send(*frames))

    threads = [threading.Thread(target=work, args=(f,)) for f in (ONE, TWO)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(sdk.on_bus) == 1800 and set(sdk.on_bus) == {*ONE, *TWO}
    assert gate.counts.blocked == 0


def test_sdk_call_around_the_gate_is_stopped(sdk):
    gate = gated(sdk)
    sdk.send(*ONE)
    assert not sdk.on_bus and gate.counts.blocked == 3


def test_other_thread_cannot_slip_a_frame_in_while_a_command_runs(sdk):
    gate = gated(sdk)

    def call():
        intruder = threading.Thread(target=lambda: sdk.bus.SendCanMessage(*ONE[0]))
        intruder.start()
        intruder.join()
        sdk.send(*ONE)

    assert gate.command(ONE, call)
    assert sdk.on_bus == list(ONE) and gate.counts.blocked == 1


def test_forbidden_frame_is_stopped_even_if_requested(sdk):
    zero = wire.Frame(0x475, bytes([7, 0xAE, 0, 0x7F, 0xFF, 0, 0, 0]))
    assert not gated(sdk).command([zero], lambda: sdk.send(zero))
    assert not sdk.on_bus


def test_missing_frame_makes_the_command_fail(sdk):
    assert not gated(sdk).command(ONE, lambda: sdk.send(*ONE[:2]))


def test_frame_that_the_bus_does_not_take_is_counted(sdk):
    gate = gated(sdk)
    sdk.answer = 2
    assert not gate.command(ONE, lambda: sdk.send(*ONE))
    assert gate.counts.failed == gate.counts.failed_in_a_row == 3
    assert gate.counts.short_in_a_row == 1
    sdk.answer = 1
    assert gate.command(ONE, lambda: sdk.send(*ONE))
    assert gate.counts.failed == 3 and gate.counts.failed_in_a_row == 0
    assert gate.counts.short_in_a_row == 0


@pytest.mark.parametrize('lost', [0, 1, 2])
def test_it_tells_which_frame_the_bus_did_not_take(sdk, lost):
    gate, put = gated(sdk), sdk.put

    def flaky(arbitration_id, data, *rest):
        return 2 if arbitration_id == ONE[lost].can_id else put(arbitration_id, data, *rest)

    gate._raw_send = flaky
    taken = gate.each(ONE, lambda: sdk.send(*ONE))
    assert taken == tuple(n != lost for n in range(3)) and len(sdk.on_bus) == 2
    assert gate.counts.short_in_a_row == 1 and gate.counts.failed_in_a_row == (lost == 2)


def test_a_frame_that_is_blocked_did_not_leave(sdk):
    gate = gated(sdk)
    disturb(sdk)
    assert gate.each(ONE, lambda: sdk.send(*ONE)) == (False, True, True)


def test_a_socket_that_raises_takes_no_frame(sdk):
    gate = gated(sdk)

    def broken(*_):
        raise BrokenPipeError(32, 'Broken pipe')

    gate._raw_send = broken
    assert gate.each(ONE, lambda: sdk.send(*ONE)) == (False,) * 3
    assert gate.counts.failed == 3


def test_shadow_mode_sends_queries_only(sdk):
    gate = gated(sdk, send_frames=False)
    query = wire.firmware_query_frame()
    assert gate.query(query, lambda: sdk.send(query))
    assert not gate.command(ONE, lambda: sdk.send(*ONE))
    assert sdk.on_bus == [query] and gate.counts.blocked == 0


def test_nothing_passes_after_removal(sdk):
    gate = gated(sdk)
    gate.remove()
    assert not gate.command(ONE, lambda: sdk.send(*ONE)) and not sdk.on_bus


def test_error_inside_the_sdk_leaves_the_gate_shut(sdk):
    gate = gated(sdk)

    def call():
        raise TypeError('float')

    with pytest.raises(TypeError):
        gate.command(ONE, call)
    sdk.send(*ONE)
    assert not sdk.on_bus


def test_own_frames_are_known_for_a_second(sdk):
    clock = ManualClock(5 * S)
    gate = gated(sdk, clock=clock)
    gate.command(ONE, lambda: sdk.send(*ONE))
    assert gate.is_own(ONE[0], clock.mono_ns())
    assert not gate.is_own(TWO[0], clock.mono_ns())
    assert not gate.is_own(ONE[0], clock.mono_ns() + 2 * S)
