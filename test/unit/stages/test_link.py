"""A bridge whose encoder and policy are on another machine, on a manual clock."""

from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.core.clock import MS, S
from reflex_ros.core.exchange import PERIOD_NS, Exchange
from reflex_ros.core.types import Cause, StageStatus, Verdict
from reflex_ros.stages.far import FarClocks

TICK = 20 * MS
BASE_NS = 98_000 * S
"""How much further the other steady clock has counted."""


class Far:
    """The other machine: it tells its time, gives signs of life and makes chunks.

    Attributes:
        has_witness: Whether anything beside the nodes tells the time.
        ahead_ns: Its ROS time minus ours.
        base_ns: How much further its steady clock has counted; 0: encoder and policy run here.
    """

    def __init__(self, rig, *, has_witness=True, ahead_ns=0, base_ns=BASE_NS):
        self.rig, self.has_witness, self.ahead_ns = rig, has_witness, ahead_ns
        self.exchange, self.numbers, self.worked_ns = Exchange(), 0, 0
        self.base_ns, self.is_needed = base_ns, False

    def run(self, seconds, *, is_reached=True, lives=True, is_slow=False, answers=None):
        """Run ticks; return their records.

        Args:
            answers: Whether the other machine does, None for one that is reached.
        """
        ticks = []
        for _ in range(round(seconds * S / TICK)):
            now = self.rig.now
            self._ask(now, is_reached if answers is None else answers)
            if is_reached and lives:
                if self.rig.index % 5 == 0 and not is_slow:
                    self._work(now)
                self._live(now, is_slow)
            ticks += self.rig.tick()
        return ticks

    def _ask(self, now, is_reached):
        if not self.has_witness:
            return
        may_ask = self.exchange.may_ask(has_listener=is_reached, is_needed=self.is_needed)
        if may_ask and self.rig.index * TICK % PERIOD_NS < TICK:
            self.exchange.request(now)
            if is_reached:
                self.exchange.answer(now.stamp_ns, now.stamp_ns + self.ahead_ns, now)
        known = self.exchange.ahead
        self.is_needed = self.rig.bridge.link(
            self.exchange.facts, now, ahead_ns=known.ahead_ns if known else 0)

    def _work(self, now):
        self.worked_ns = now.mono_ns + self.base_ns - 2 * MS
        start = self.rig.bridge.reading.position if self.rig.bridge.reading else None
        to = None
        if start is not None:
            to = start.copy()
            to[0] += 0.3
        self.rig.offer(self.rig.chunk(
            start=start, to=to, inference_start_ns=now.mono_ns + self.base_ns - 20 * MS,
            inference_start_stamp_ns=now.stamp_ns + self.ahead_ns - 20 * MS))

    def _live(self, now, is_slow):
        self.numbers += 1
        sent_ns = now.mono_ns + self.base_ns
        since_ns = self.worked_ns + 20 * MS if is_slow else 0
        for node in ('vision_encoder', 'policy'):
            self.rig.bridge.status(StageStatus(
                self.numbers, now.stamp_ns + self.ahead_ns, node, 'active',
                last_input_ns=self.worked_ns, last_output_ns=self.worked_ns,
                busy_since_ns=since_ns if node == 'policy' else 0, sent_ns=sent_ns), now)


@pytest.fixture
def far(rig):
    """Make a bridge and its other machine, in motion."""
    def make(**settings):
        made = Far(rig(), **settings)
        made.run(1.0)
        assert made.run(0.2)[-1].verdict in (Verdict.FRESH, Verdict.LIMITED)
        return made

    return make


def causes(ticks):
    return {t.cause for t in ticks if t.verdict is Verdict.HELD}


def assert_at_rest(ticks):
    last = np.array([t.command for t in ticks[-10:]])
    assert np.ptp(last, axis=0).max() < 1e-9


@pytest.mark.parametrize('ahead_ms', [-400, 0, 400])
def test_a_cut_is_called_transport_from_the_first_held_tick_on(far, ahead_ms):
    machine = far(ahead_ns=ahead_ms * MS)
    ticks = machine.run(3.0, is_reached=False)
    assert causes(ticks) == {Cause.TRANSPORT}
    assert_at_rest(ticks)


def test_after_a_cut_the_arm_goes_on_by_itself(far):
    machine = far()
    machine.run(3.0, is_reached=False)
    ticks = machine.run(2.0)
    assert causes(ticks) <= {Cause.TRANSPORT}, 'until the first chunk'
    assert ticks[-1].verdict in (Verdict.FRESH, Verdict.LIMITED)


def test_a_cut_without_a_witness_can_fail(far):
    ticks = far(has_witness=False).run(3.0, is_reached=False)
    assert Cause.NODE_DEAD in causes(ticks)


def test_dead_nodes_on_a_machine_that_answers_are_dead(far):
    ticks = far().run(3.0, lives=False)
    assert ticks[-1].cause is Cause.NODE_DEAD
    assert Cause.TRANSPORT not in causes(ticks)
    assert_at_rest(ticks)


def test_nodes_that_stay_silent_after_the_link_is_back_are_dead(far):
    machine = far()
    machine.run(1.0, is_reached=False)
    ticks = machine.run(3.0, lives=False)
    assert causes(ticks[:15]) == {Cause.TRANSPORT}
    assert ticks[-1].cause is Cause.NODE_DEAD


def test_a_slow_policy_on_another_machine_is_named(far):
    assert causes(far().run(2.0, is_slow=True)) == {Cause.DENOISE_LATE}


def test_instants_of_another_machine_left_alone_can_fail(far, monkeypatch):
    monkeypatch.setattr(FarClocks, 'ours', lambda self, status, now: status)
    assert Cause.DENOISE_LATE not in causes(far().run(2.0, is_slow=True))


def test_a_cut_of_minutes_is_transport_to_its_end(far):
    machine = far()
    assert causes(machine.run(70.0, is_reached=False)) == {Cause.TRANSPORT}
    assert machine.exchange.facts is not None, 'though nobody has been in the graph for long'


# ---- encoder and policy run here, and another machine answers, or did ---------------------------

WRONG = [({'lives': False}, Cause.NODE_DEAD), ({'is_slow': True}, Cause.DENOISE_LATE)]


def here(far, wrong, answers):
    """Return what held the arm when what runs here fails; the other machine was asked before."""
    machine = far(base_ns=0)
    machine.run(2.0, answers=answers)
    return causes(machine.run(3.0, answers=answers, **wrong))


@pytest.mark.parametrize('answers', [True, False])
@pytest.mark.parametrize(('wrong', 'cause'), WRONG)
def test_what_runs_here_is_judged_here(far, wrong, cause, answers):
    found = here(far, wrong, answers)
    assert cause in found
    assert Cause.TRANSPORT not in found


@pytest.mark.parametrize(('wrong', 'cause'), WRONG)
def test_what_runs_here_taken_for_far_can_fail(far, monkeypatch, wrong, cause):
    monkeypatch.setattr(FarClocks, 'is_far', lambda self, node: True)
    assert here(far, wrong, answers=False) == {Cause.TRANSPORT}


def test_a_machine_that_left_is_forgotten_where_nothing_lives_there(far):
    machine = far(base_ns=0)
    assert machine.exchange.facts is not None
    machine.run(0.1, answers=False)
    assert machine.exchange.facts is None


def test_what_is_started_here_after_it_ran_there_is_judged_here(far):
    machine = far()
    machine.run(1.0, is_reached=False)
    machine.base_ns = 0
    ticks = machine.run(3.0, answers=False)
    assert ticks[-1].verdict in (Verdict.FRESH, Verdict.LIMITED)
    found = machine.run(3.0, answers=False, lives=False)
    assert Cause.NODE_DEAD in causes(found)
    assert Cause.TRANSPORT not in causes(found)


def test_a_link_that_comes_and_goes_keeps_no_dead_node_alive_here(far):
    machine, ticks = far(base_ns=0), []
    for _ in range(8):
        machine.exchange.may_ask = lambda **_: True  # it is not even forgotten
        ticks += machine.run(0.3, answers=False, lives=False)
        ticks += machine.run(0.06, answers=True, lives=False)
    assert machine.exchange.facts.back_ns
    assert {tick.cause for tick in ticks[-50:]} == {Cause.NODE_DEAD}


@pytest.mark.parametrize('ahead_ms', [-400, 0, 400])
def test_inference_time_is_right_however_the_clocks_are_set(far, ahead_ms):
    machine = far(ahead_ns=ahead_ms * MS)
    assert machine.rig.bridge.latency.samples
    assert machine.rig.bridge.latency.value_ns == pytest.approx(20 * MS, abs=1 * MS)


def test_inference_time_without_the_offset_can_fail(far):
    machine = far(ahead_ns=-400 * MS, has_witness=False)
    latency = machine.rig.bridge.latency
    assert not latency.samples or latency.value_ns > 300 * MS
