"""The transition table, whole."""

from __future__ import annotations

import pytest

from reflex_ros.arm.states import TRANSITIONS, ArmEvent, StateMachine, may_send
from reflex_ros.core.clock import ManualClock
from reflex_ros.core.errors import ArmError
from reflex_ros.core.types import ArmState

WALK = [
    ('connect', 'connected'), ('check', 'checked'), ('enable', 'enabled'), ('resume', 'ramp_in'),
    ('track', 'tracking'), ('hold', 'holding'), ('track', 'tracking'), ('hold', 'holding'),
    ('resume', 'ramp_in'), ('track', 'tracking'), ('fault', 'faulted'), ('recover', 'connected'),
    ('check', 'checked'), ('enable', 'enabled'), ('disconnect', 'disconnected'),
]


def test_whole_life_walks_the_table():
    clock = ManualClock(1)
    machine = StateMachine(clock)
    for event, state in WALK:
        clock.advance(1)
        assert machine.fire(ArmEvent(event)) is ArmState(state)
        assert machine.since_ns == clock.mono_ns()
    assert [t.event.value for t in machine.history] == [event for event, _ in WALK]


@pytest.mark.parametrize('state', ArmState)
@pytest.mark.parametrize('event', ArmEvent)
def test_unlisted_event_raises_and_changes_nothing(state, event):
    machine = StateMachine(ManualClock(), state=state)
    if (state, event) in TRANSITIONS:
        assert machine.allows(event)
        return
    with pytest.raises(ArmError) as caught:
        machine.fire(event)
    assert caught.value.code == 'arm_state' and machine.state is state


def test_motion_needs_a_resume_after_every_enable():
    to_motion = {state for (state, event), after in TRANSITIONS.items()
                 if after is ArmState.TRACKING}
    assert to_motion == {ArmState.RAMP_IN, ArmState.HOLDING}
    into_ramp = {event for (_, event), after in TRANSITIONS.items() if after is ArmState.RAMP_IN}
    assert into_ramp == {ArmEvent.RESUME}


def test_fault_and_disconnect_are_possible_from_every_live_state():
    for state in ArmState:
        assert (state, ArmEvent.DISCONNECT) in TRANSITIONS
        if state is not ArmState.DISCONNECTED:
            assert TRANSITIONS[state, ArmEvent.FAULT] is ArmState.FAULTED


def test_faulted_arm_leaves_only_by_recover_or_disconnect():
    after = {a for (s, e), a in TRANSITIONS.items() if s is ArmState.FAULTED}
    assert after == {ArmState.FAULTED, ArmState.CONNECTED, ArmState.DISCONNECTED}


def test_commands_leave_only_in_powered_states():
    sending = {state.value for state in ArmState if may_send(state)}
    assert sending == {'enabled', 'ramp_in', 'tracking', 'holding'}


def fired(root):
    """Return the events that the bridge fires."""
    texts = [path.read_text() for path in (root / 'reflex_ros' / 'stages').glob('*.py')]
    return {event for event in ArmEvent
            if any(f'fire(ArmEvent.{event.name}' in text for text in texts)}


def test_every_event_of_the_table_is_fired(root):
    assert fired(root) == set(ArmEvent)


def test_every_event_of_the_table_is_fired_can_fail(tmp_path):
    (tmp_path / 'reflex_ros' / 'stages').mkdir(parents=True)
    assert fired(tmp_path) == set()
