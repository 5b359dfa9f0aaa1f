"""A stop is given the time that the limits in force need, and no fixed one."""

from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.core.clock import MS, S
from reflex_ros.core.limits import JointLimits, piper_limits
from reflex_ros.stages.bridge import STOP_MARGIN_NS

TICK = 20 * MS
PIPER = piper_limits()


def softer(scale: float) -> JointLimits:
    return JointLimits(PIPER.lower, PIPER.upper, PIPER.velocity, PIPER.acceleration * scale,
                       PIPER.jerk)


@pytest.fixture
def sweeping(rig, move):
    """Return rigs whose joint1 sweeps at 0.75 rad/s, with a share of the acceleration."""
    def make(scale):
        r = rig(activate=False, max_age_ns=20 * S)
        r.arm._limits = softer(scale)
        r.bridge.connect()
        r.bridge.activate()
        r.run_up()
        r.offer(r.chunk(to=move(2.4), rows=160))
        r.tick(150)
        return r

    return make


def stop_ns(r) -> int:
    """Request a stop and return how long the arm took to come to rest."""
    r.bridge.request_stop(r.now)
    start_ns = r.next_due_ns
    while not r.bridge.is_at_rest:
        r.tick()
        assert r.next_due_ns - start_ns < 60 * S
    return r.next_due_ns - start_ns


@pytest.mark.parametrize('scale', [1.0, 0.1, 0.06])
def test_the_arm_rests_within_the_time_that_deactivate_waits(sweeping, scale):
    r = sweeping(scale)
    longest_ns = r.bridge.longest_stop_ns
    assert stop_ns(r) <= longest_ns - STOP_MARGIN_NS


def test_two_seconds_are_not_enough_for_a_soft_stop_can_fail(sweeping):
    r = sweeping(0.06)
    assert stop_ns(r) > 2 * S


def test_an_arm_that_gives_way_is_waited_for_as_well(sweeping):
    r = sweeping(0.06)
    last = r.arm.feedback().position
    r.bridge._mover.disarm()
    r.bridge._mover.give_way(last - np.array([0.3, 0, 0, 0, 0, 0, 0]), np.arange(7) == 0)
    longest_ns = r.bridge.longest_stop_ns
    assert stop_ns(r) <= longest_ns - STOP_MARGIN_NS


def test_what_the_arm_reports_counts_and_not_what_was_asked_for(sweeping):
    r = sweeping(1.0)
    before_ns = r.bridge.longest_stop_ns
    r.arm._limits = softer(0.1)
    assert r.bridge.longest_stop_ns > 4 * before_ns
