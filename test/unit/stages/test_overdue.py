"""A computer that stands still between the clock and the bus lets no old command out."""

from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.core.clock import MS
from reflex_ros.core.limits import piper_limits
from reflex_ros.core.types import Cause, Verdict
from reflex_ros.stages.sender import Sender
from reflex_ros.study.fault_judge import judge


@pytest.fixture
def frozen(rig, move):
    """Return a rig whose joint1 sweeps at 1.9 rad/s, its wire, and how to freeze its next tick."""
    r = rig(max_age_ns=900 * MS)
    r.run_up()
    times, commands, send, feedback = [], [], r.arm.send, r.arm.feedback

    def sent(position):
        times.append(r.now.mono_ns / 1e9)
        commands.append(np.array(position))
        return send(position)

    def freeze(for_ms):
        """Stop the clock of the loop once, after it was read and before anything is sent."""
        def late():
            r.arm.feedback = feedback
            r.clock.advance(for_ms * MS)
            return feedback()
        r.arm.feedback = late

    r.arm.send = sent
    r.offer(r.chunk(to=move(1.9), rows=50))
    r.tick(24)
    return r, times, commands, freeze


@pytest.mark.parametrize('for_ms', [11, 30, 400])
def test_nothing_is_sent_after_a_freeze_within_a_tick(frozen, for_ms):
    r, times, commands, freeze = frozen
    before = len(commands)
    freeze(for_ms)
    tick = r.tick()[-1]
    assert len(commands) == before and not tick.is_sent
    assert (tick.verdict, tick.cause) == (Verdict.HELD, Cause.TICK_LATE)
    assert tick.late_ns == for_ms * MS
    r.index += for_ms // 20
    r.tick(20)
    assert judge(np.array(times), np.array(commands), limits=piper_limits(),
                 period_s=0.02).violations == ()


def test_a_short_delay_within_a_tick_costs_nothing(frozen):
    r, _, commands, freeze = frozen
    before = len(commands)
    freeze(9)
    assert r.tick()[-1].is_sent and len(commands) == before + 1


def test_the_tick_after_goes_on_from_what_was_sent(frozen):
    """One lost tick does not end the motion, and the chunk did not count the one that was lost."""
    r, _, commands, freeze = frozen
    ticks = r.bridge.follower.active.ticks
    freeze(15)
    r.tick()
    assert r.bridge.follower.active.ticks == ticks
    r.tick()
    assert commands[-1][0] - commands[-2][0] < 0.06 * 1.1


@pytest.mark.parametrize('for_ms', [30, 400])
def test_nothing_is_sent_after_a_freeze_can_fail(frozen, monkeypatch, for_ms):
    """With the clock read at the start of the tick alone the old command goes out."""
    monkeypatch.setattr(Sender, '_is_late', lambda self, due_ns: False)
    r, times, commands, freeze = frozen
    before = len(commands)
    freeze(for_ms)
    r.tick()
    assert len(commands) == before + 1 and times[-1] - times[-2] > 0.03
