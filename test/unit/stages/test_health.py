"""Signs of life and the two clocks."""

from __future__ import annotations

import pytest

from reflex_ros.core.clock import MS, S
from reflex_ros.core.types import StageStatus
from reflex_ros.stages.health import ClockWatch, NodeWatch


@pytest.fixture
def chunk(rig):
    r = rig(activate=False)

    def make(instant, skew_ns=0):
        return r.chunk(inference_start_ns=instant.mono_ns,
                       inference_start_stamp_ns=instant.stamp_ns + skew_ns)

    return make


def status(node):
    return StageStatus(number=1, stamp_ns=0, node=node, state='active', last_input_ns=0,
                       last_output_ns=0, busy_since_ns=0, sent_ns=0)


def test_only_encoder_and_policy_are_watched():
    nodes = NodeWatch()
    nodes.status(status('intruder'), 5)
    nodes.status(status('policy'), 6)
    assert nodes.facts('intruder') is None and nodes.facts('vision_encoder') is None
    assert nodes.facts('policy').received_ns == 6


def test_a_node_that_exited_is_known_until_its_next_sign_of_life():
    nodes = NodeWatch()
    nodes.exited('policy')
    nodes.status(status('policy'), 6)
    nodes.exited('policy')
    assert nodes.facts('policy').has_exited
    nodes.status(status('policy'), 7)
    assert not nodes.facts('policy').has_exited


def test_silence_counts_from_a_restart_and_an_exit_is_not_forgotten():
    nodes = NodeWatch()
    nodes.status(status('policy'), 6)
    nodes.status(status('vision_encoder'), 90)
    nodes.exited('policy')
    nodes.restart(50)
    assert nodes.facts('policy').received_ns == 50 and nodes.facts('policy').has_exited
    assert nodes.facts('vision_encoder').received_ns == 90


def test_drift_is_followed_without_distrust(instant):
    watch = ClockWatch(instant(S, 100 * S))
    for i in range(1, 50):
        watch.watch(instant(S + i * 20 * MS, 100 * S + i * 4 * MS))
    assert watch.is_trusted and watch.offset.offset_ns == 100 * S + 49 * 4 * MS


@pytest.mark.parametrize('step_ms', [6, -6, 3600_000, -3600_000])
def test_a_jump_is_distrusted_until_three_chunks_agree(instant, chunk, step_ms):
    watch = ClockWatch(instant(S, 10_000 * S))
    watch.chunk(chunk(instant(S, 10_000 * S)))
    after = 10_000 * S + step_ms * MS
    watch.watch(instant(2 * S, after))
    assert not watch.is_trusted
    watch.chunk(chunk(instant(S, 10_000 * S)))  # began before the jump
    for expected in (False, False, True):
        watch.chunk(chunk(instant(2 * S, after)))
        assert watch.is_trusted is expected


def test_chunks_that_disagree_never_restore_trust(instant, chunk):
    watch = ClockWatch(instant(S, 100 * S))
    watch.watch(instant(2 * S, 101 * S))
    for i in range(20):
        watch.chunk(chunk(instant(2 * S, 101 * S), skew_ns=(1 + i) * S))
    assert not watch.is_trusted


def test_another_jump_begins_the_count_again(instant, chunk):
    watch = ClockWatch(instant(S, 100 * S))
    watch.watch(instant(2 * S, 101 * S))
    for _ in range(2):
        watch.chunk(chunk(instant(2 * S, 101 * S)))
    watch.watch(instant(3 * S, 102 * S))
    watch.chunk(chunk(instant(3 * S, 102 * S)))
    assert not watch.is_trusted


def test_simulated_time_may_run_at_its_own_pace_but_not_back(instant):
    watch = ClockWatch(instant(S, 0), uses_sim_time=True)
    assert not watch.watch(instant(2 * S, -S // 2)) and watch.is_trusted
    assert watch.watch(instant(3 * S, -3 * S)) and watch.is_trusted


def test_inference_start_is_ours_on_this_machine_and_by_stamp_on_another(instant, chunk):
    watch = ClockWatch(instant(S, 100 * S))
    assert watch.inference_start_ns(chunk(instant(S, 100 * S))) == S
    assert watch.inference_start_ns(chunk(instant(55 * S, 46 * S))) == S
    assert watch.inference_start_ns(chunk(instant(0, 0))) == 0
