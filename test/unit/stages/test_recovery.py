"""A recovery takes seconds: the arm is nobody else's meanwhile, and everybody else goes on."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from reflex_ros.core.errors import ArmError
from reflex_ros.core.types import ArmState, Cause, Reply
from reflex_ros.stages import bridge_recovery

WAIT_S = 10.0


class Slow:
    """A rig whose arm takes as long to clear its faults as the test wants."""

    def __init__(self, rig):
        self.rig = rig()
        self.bridge, self.arm = self.rig.bridge, self.rig.arm
        self.entered, self.may_go_on = threading.Event(), threading.Event()
        self.calls, self.replies = [], []
        for name in ('check', 'enable', 'send', 'disconnect'):
            self._note(name)
        clear = self.arm.clear_faults

        def slowly(**kwargs):
            self.entered.set()
            assert self.may_go_on.wait(WAIT_S)
            reply = clear(**kwargs)
            self.calls.append(('cleared', threading.current_thread().name))
            return reply

        self.arm.clear_faults = slowly
        self.rig.run_up()
        self.arm.inject_faults(('arm_estop',))
        self.rig.tick(2)
        self.calls.clear()

    def _note(self, name):
        real = getattr(self.arm, name)

        def noted(*args, **kwargs):
            self.calls.append((name, threading.current_thread().name))
            return real(*args, **kwargs)

        setattr(self.arm, name, noted)

    def begin(self):
        """Start a recovery on a thread and return once the arm works on it."""
        self.thread = threading.Thread(name='recover', target=lambda: self.replies.append(
            self.bridge.recover(arm_supported=True)))
        self.thread.start()
        assert self.entered.wait(WAIT_S)

    def end(self):
        """Let it go on, and return its answer."""
        self.may_go_on.set()
        self.thread.join(WAIT_S)
        return self.replies[-1]


@pytest.fixture
def slow(rig):
    made = Slow(rig)
    yield made
    made.may_go_on.set()


def test_a_second_recovery_during_the_first_is_refused(slow):
    slow.begin()
    reply = slow.bridge.recover(arm_supported=True)
    assert not reply.accepted and 'A recovery is under way' in reply.reason
    assert slow.end().accepted
    assert [name for name, _ in slow.calls] == ['cleared', 'check', 'enable']


def test_ticks_go_on_during_a_recovery_and_send_nothing(slow):
    slow.begin()
    ticks = slow.rig.tick(10)
    assert not any(t.is_sent for t in ticks) and {t.cause for t in ticks} == {Cause.ARM_FAULT}
    assert not slow.calls
    assert slow.end().accepted
    assert {thread for _, thread in slow.calls} == {'recover'}
    ticks = slow.rig.tick(5)
    assert all(t.is_sent for t in ticks)
    assert ('send', 'recover') not in slow.calls, 'there is one sender'


def ended(slow, how):
    """Hold or stop during a recovery; return its answer and what the arm was asked for."""
    slow.begin()
    if how == 'hold':
        reply = slow.bridge.hold(slow.rig.now)[0]
        assert reply.accepted and 'a recovery is under way' in reply.reason
    else:
        slow.bridge.request_stop(slow.rig.now)
    assert not slow.bridge.resume(slow.rig.now)[0].accepted
    return slow.end(), [name for name, _ in slow.calls]


@pytest.mark.parametrize(('how', 'why'), [
    ('hold', 'a hold'), ('stop', 'a stop of the bridge')])
def test_a_hold_or_a_stop_during_a_recovery_ends_it_before_the_power(slow, how, why):
    reply, calls = ended(slow, how)
    assert not reply.accepted and reply.reason.startswith(f'Recovery: got {why}, expected none')
    assert calls == ['cleared'] and slow.bridge.states.state is ArmState.FAULTED


def test_a_hold_or_a_stop_during_a_recovery_ends_it_can_fail(slow, monkeypatch):
    monkeypatch.setattr(bridge_recovery.Recovery, '_go_on', lambda self: None)
    reply, calls = ended(slow, 'hold')
    assert reply.accepted and calls == ['cleared', 'check', 'enable']


class Resettable:
    """An arm whose fault only a reset clears; a hold may come while it tries the gentle way."""

    def __init__(self, slow, *, held_in_it):
        self.slow, self.held_in_it, self.asked, self.resets = slow, held_in_it, [], 0
        slow.arm.clear_faults = self.clear
        slow.may_go_on.set()

    def clear(self, *, arm_supported, go_on):
        self.asked.append(arm_supported)
        if self.held_in_it and len(self.asked) == 2:
            assert self.slow.bridge.hold(self.slow.rig.now)[0].accepted
        if not arm_supported:
            return Reply(False, 'A reset cuts the power and the arm falls.')
        go_on()
        self.resets += 1
        self.slow.arm.inject_faults(())
        return Reply(True, 'reset')


def test_a_hold_at_the_second_request_keeps_the_power_and_the_reset_is_offered_anew(slow):
    arm = Resettable(slow, held_in_it=True)
    recover = slow.bridge.recover
    assert 'the arm falls' in recover(arm_supported=True).reason
    held = recover(arm_supported=True)
    assert held.reason.startswith('Recovery: got a hold, expected none') and arm.resets == 0
    assert slow.bridge.states.state is ArmState.FAULTED
    assert 'the arm falls' in recover(arm_supported=True).reason, 'told first once more'
    assert recover(arm_supported=True).accepted
    assert arm.resets == 1 and arm.asked == [False, True, False, True]


def test_a_hold_at_the_second_request_can_fail(slow):
    arm = Resettable(slow, held_in_it=False)
    assert not slow.bridge.recover(arm_supported=True).accepted
    assert slow.bridge.recover(arm_supported=True).accepted and arm.resets == 1


@pytest.mark.parametrize('at', ['check', 'enable'])
def test_a_hold_during_the_check_or_the_enabling_ends_a_recovery_too(slow, at):
    real = getattr(slow.arm, at)

    def held_in_it(**kwargs):
        slow.bridge.hold(slow.rig.now)
        return real(**kwargs)

    setattr(slow.arm, at, held_in_it)
    slow.begin()
    powered = slow.rig.plant.command = Sent()
    reply = slow.end()
    assert not reply.accepted and reply.reason.startswith('Recovery: got a hold, expected none')
    assert slow.bridge.states.state is ArmState.FAULTED and not powered.commands
    assert not slow.bridge.hold(slow.rig.now)[0].accepted, 'nothing moves it'


class Sent:
    """Takes the commands of a plant and keeps them."""

    def __init__(self):
        self.commands = []

    def __call__(self, joints, gripper):
        self.commands.append([*joints, gripper])


def test_after_a_held_recovery_the_next_one_goes_on_and_nothing_moves_before_a_resume(slow):
    assert not ended(slow, 'hold')[0].accepted
    assert slow.bridge.recover(arm_supported=True).accepted, 'it knows of no hold any more'
    r = slow.rig
    r.offer(r.chunk())
    ticks = r.tick(20)
    assert np.ptp([t.command for t in ticks], axis=0).max() == 0.0
    assert {t.cause for t in ticks} == {Cause.OPERATOR}
    assert slow.bridge.resume(r.now)[0].accepted
    r.run_up()
    assert slow.bridge.states.state is ArmState.TRACKING


def test_a_hold_before_a_fault_does_not_end_the_recovery_from_it(rig):
    r = rig()
    r.run_up()
    r.bridge.hold(r.now)
    r.tick(2)
    r.arm.inject_faults(('arm_estop',))
    r.tick(2)
    assert r.bridge.recover(arm_supported=True).accepted


def test_a_hold_of_a_faulted_arm_that_nobody_recovers_is_refused(slow):
    reply = slow.bridge.hold(slow.rig.now)[0]
    assert not reply.accepted and 'faulted' in reply.reason


def closed_in_time(slow):
    """Close the bridge during a recovery, as a node does; return what the arm was asked for."""
    slow.begin()
    slow.bridge.request_stop(slow.rig.now)
    threading.Timer(0.05, slow.may_go_on.set).start()
    slow.bridge.close(slow.rig.now)
    slow.arm.disconnect()
    slow.thread.join(WAIT_S)
    return [name for name, _ in slow.calls]


def test_the_bus_is_not_closed_under_a_recovery(slow):
    assert closed_in_time(slow) == ['cleared', 'disconnect']


def test_the_bus_is_not_closed_under_a_recovery_can_fail(slow, monkeypatch):
    monkeypatch.setattr(bridge_recovery.Recovery, 'wait', lambda self: None)
    assert closed_in_time(slow)[0] == 'disconnect'


def test_a_stopping_bridge_begins_no_recovery(slow):
    slow.may_go_on.set()
    slow.bridge.request_stop(slow.rig.now)
    slow.bridge.close(slow.rig.now)
    assert slow.bridge.recover(arm_supported=True) == Reply(False, 'The bridge is stopping.')
    assert not slow.calls
    slow.arm.inject_faults(())
    slow.bridge.activate()
    assert [name for name, _ in slow.calls] == ['disconnect', 'check', 'enable']


def test_a_recovery_that_does_not_end_is_named(slow, monkeypatch):
    monkeypatch.setattr(bridge_recovery, 'recovery_ns', lambda joints: 10_000_000)
    slow.begin()
    with pytest.raises(ArmError, match='recovery: got one that does not end'):
        slow.bridge.close(slow.rig.now)


# ---- whatever goes wrong ------------------------------------------------------------------------


@pytest.mark.parametrize('at', ['clear_faults', 'check', 'enable'])
@pytest.mark.parametrize('error', [OSError(19, 'No such device'), ValueError('torn frame')])
def test_any_error_of_a_recovery_ends_in_a_faulted_arm_and_is_told(rig, at, error):
    r = rig()
    r.run_up()
    r.arm.inject_faults(('arm_estop',))
    r.tick(2)
    real = getattr(r.arm, at)

    def fail(**_):
        raise error

    setattr(r.arm, at, fail)
    reply = r.bridge.recover(arm_supported=True)
    assert not reply.accepted and type(error).__name__ in reply.reason
    assert 'recover again' in reply.reason
    assert r.bridge.states.state is ArmState.FAULTED
    assert not any(t.is_sent for t in r.tick(3))
    setattr(r.arm, at, real)
    assert r.bridge.recover(arm_supported=True).accepted


def test_an_interrupt_in_a_recovery_leaves_a_faulted_arm(rig):
    r = rig()
    r.run_up()
    r.arm.inject_faults(('arm_estop',))
    r.tick(2)

    def interrupted():
        raise KeyboardInterrupt

    r.arm.check = interrupted
    with pytest.raises(KeyboardInterrupt):
        r.bridge.recover(arm_supported=True)
    assert r.bridge.states.state is ArmState.FAULTED
