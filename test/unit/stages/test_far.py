"""Signs of life from a machine whose steady clock counts from another instant."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reflex_ros.core.clock import MS, Instant, S
from reflex_ros.core.types import CameraStatus, StageStatus
from reflex_ros.stages.far import MARGIN_NS, REBOOT_NS, FarClocks, shifted

OURS = Instant(5_000 * S, 1_700_000_000 * S)
BASE_NS = 98_000 * S
"""How much further the other steady clock has counted."""


def status(age_ms=0, *, base_ns=BASE_NS, clock_ms=0, node='policy'):
    """Return a sign of life sent ``age_ms`` ago by a machine whose ROS time is off."""
    sent_ns = OURS.mono_ns - age_ms * MS + base_ns
    return StageStatus(
        1, OURS.stamp_ns - age_ms * MS + clock_ms * MS, node, 'active',
        last_input_ns=sent_ns - 50 * MS, last_output_ns=sent_ns - 30 * MS,
        busy_since_ns=sent_ns - 20 * MS, sent_ns=sent_ns,
        cameras=(CameraStatus('main', OURS.stamp_ns, sent_ns - 60 * MS, sent_ns - 60 * MS, 1),))


def ours(told, *, clocks=None, later_ms=0):
    now = Instant(OURS.mono_ns + later_ms * MS, OURS.stamp_ns + later_ms * MS)
    return (clocks or FarClocks()).ours(told, now)


def test_a_sign_of_life_of_this_machine_is_left_alone():
    told = status(2, base_ns=0)
    assert ours(told) is told


@pytest.mark.parametrize('clock_ms', [-900, 0, 12])
@pytest.mark.parametrize('base_ns', [-4_000 * S, BASE_NS])
def test_instants_of_another_machine_come_onto_our_clock_however_its_ros_time_is_set(
        base_ns, clock_ms):
    found = ours(status(8, base_ns=base_ns, clock_ms=clock_ms))
    true = status(8, base_ns=0)
    for name in ('last_input_ns', 'last_output_ns', 'busy_since_ns', 'sent_ns'):
        error_ns = getattr(found, name) - getattr(true, name)
        assert -MARGIN_NS <= error_ns <= 8 * MS, name
    assert abs(found.cameras[0].last_received_ns - true.cameras[0].last_received_ns) <= 8 * MS
    assert abs(found.cameras[0].content_since_ns - true.cameras[0].content_since_ns) <= 8 * MS


def test_instants_left_alone_can_fail():
    true = status(8, base_ns=0)
    assert abs(status(8).sent_ns - true.sent_ns) > 8 * MS, 'unshifted they are nonsense here'


def test_nothing_seems_to_have_been_sent_after_it_came():
    clocks = FarClocks()
    for delay_ms in (20, 35, 21, 60):
        found = ours(status(delay_ms), clocks=clocks)
        assert found.sent_ns <= OURS.mono_ns


def test_a_late_sign_of_life_is_told_from_a_far_one():
    clocks = FarClocks()
    ours(status(8), clocks=clocks)
    late = ours(status(408), clocks=clocks)
    assert OURS.mono_ns - late.sent_ns == pytest.approx(400 * MS, abs=2 * MARGIN_NS)


def test_a_machine_that_was_started_anew_counts_from_anew():
    clocks = FarClocks()
    ours(status(8), clocks=clocks)
    found = ours(status(8, base_ns=BASE_NS - 2 * REBOOT_NS), clocks=clocks)
    assert abs(found.sent_ns - OURS.mono_ns) <= 13 * MS
    found = ours(status(8, base_ns=BASE_NS), clocks=clocks)
    assert abs(found.sent_ns - OURS.mono_ns) <= 13 * MS


def test_each_node_has_its_own_machine():
    clocks = FarClocks()
    ours(status(8), clocks=clocks)
    found = ours(status(8, base_ns=-4_000 * S, node='vision_encoder'), clocks=clocks)
    assert abs(found.sent_ns - OURS.mono_ns) <= 13 * MS


def lives_far(*told):
    clocks = FarClocks()
    for one in told:
        ours(one, clocks=clocks)
    return clocks.is_far('policy')


def test_where_a_node_lives_is_told_by_its_newest_signs_of_life():
    here, there = status(2, base_ns=0), status(8)
    assert not lives_far()
    assert not lives_far(here)
    assert lives_far(there)
    assert lives_far(here, there, there)
    assert not lives_far(there, there, here)


def test_a_sign_of_life_that_crossed_a_step_of_our_clock_moves_nobody():
    here, crossed = status(2, base_ns=0), status(2, base_ns=0, clock_ms=80)
    assert not lives_far(here, crossed)
    assert not lives_far(here, crossed, here)


def test_two_that_differ_can_fail():
    crossed = status(2, base_ns=0, clock_ms=80)
    assert lives_far(crossed, crossed), 'so one alone is what the tests above ask about'


def test_each_node_lives_somewhere():
    clocks = FarClocks()
    ours(status(8), clocks=clocks)
    ours(status(2, base_ns=0, node='vision_encoder'), clocks=clocks)
    assert clocks.is_far('policy')
    assert not clocks.is_far('vision_encoder')


def test_never_stays_never():
    moved = shifted(replace(status(), busy_since_ns=0, last_output_ns=0), -BASE_NS)
    assert (moved.busy_since_ns, moved.last_output_ns) == (0, 0)


def test_simulated_time_says_nothing_of_a_machine():
    told = replace(status(8, base_ns=0), stamp_ns=123)
    clocks = FarClocks(uses_sim_time=True)
    assert clocks.ours(told, OURS) is told
    assert not clocks.is_far('policy')
