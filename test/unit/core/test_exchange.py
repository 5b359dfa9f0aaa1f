"""The other machine's clock and the link to it, from requests and answers."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from reflex_ros.core.cause import (
    LINK_SILENT_NS,
    ChunkFacts,
    LinkFacts,
    NodeFacts,
    TickFacts,
    decide,
)
from reflex_ros.core.clock import MS, ManualClock, S
from reflex_ros.core.exchange import LOST_NS, PERIOD_NS, Exchange
from reflex_ros.core.types import ArmState, Cause, StageStatus


@dataclass
class Far:
    """Another machine behind a link.

    Attributes:
        ahead_ns: Its ROS time minus ours. ``there_ns``, ``back_ns``: what the two ways take.
    """

    ahead_ns: int = 0
    there_ns: int = 1 * MS
    back_ns: int = 1 * MS
    clock: ManualClock = field(default_factory=lambda: ManualClock(mono_ns=1000 * S))
    exchange: Exchange = field(default_factory=Exchange)

    def ask(self, *, is_lost=False, step_ns=0):
        """Make one exchange, then wait for the next."""
        asked = self.clock.now()
        self.exchange.request(asked)
        self.clock.advance(self.there_ns)
        theirs_ns = self.clock.stamp_ns() + self.ahead_ns
        self.clock.advance(self.back_ns)
        self.clock.step_stamp(step_ns)
        if not is_lost:
            assert self.exchange.answer(asked.stamp_ns, theirs_ns, self.clock.now())
        self.clock.advance(PERIOD_NS - self.there_ns - self.back_ns)


@pytest.mark.parametrize(('there_ms', 'back_ms'), [(1, 1), (0, 20), (35, 5)])
@pytest.mark.parametrize('ahead_ms', [-400, -3, 0, 7, 5000])
def test_the_true_offset_lies_within_the_bound(ahead_ms, there_ms, back_ms):
    far = Far(ahead_ms * MS, there_ms * MS, back_ms * MS)
    far.ask()
    known = far.exchange.ahead
    assert abs(known.ahead_ns - ahead_ms * MS) <= known.bound_ns
    assert known.bound_ns == (there_ms + back_ms) * MS // 2


def test_the_bound_can_fail():
    far = Far(7 * MS)
    far.ask()
    known = far.exchange.ahead
    assert abs(known.ahead_ns - 9 * MS) > known.bound_ns, 'a wrong offset is out of the bound'


def test_the_quickest_exchange_counts():
    far = Far(7 * MS, there_ns=30 * MS)
    far.ask()
    far.there_ns = 1 * MS
    far.ask()
    far.there_ns = 30 * MS
    far.ask()
    assert far.exchange.ahead.bound_ns == 1 * MS


def test_an_exchange_across_a_step_of_our_clock_says_nothing():
    far = Far()
    far.ask(step_ns=80 * MS)
    assert far.exchange.ahead is None
    assert far.exchange.facts(far.clock.mono_ns()) is not None, 'the link answers nevertheless'


def test_an_answer_that_nobody_asked_for_is_no_answer():
    far = Far()
    assert not far.exchange.answer(1, 2, far.clock.now())
    assert far.exchange.facts(far.clock.mono_ns()) is None


def test_an_answer_counts_once():
    far = Far()
    asked = far.clock.now()
    far.exchange.request(asked)
    assert far.exchange.answer(asked.stamp_ns, asked.stamp_ns, far.clock.now())
    assert not far.exchange.answer(asked.stamp_ns, asked.stamp_ns, far.clock.now())


@pytest.mark.parametrize(('each', 'is_lossy'), [(20, False), (6, False), (5, True), (2, True)])
def test_a_link_that_loses_one_in_five_is_lossy(each, is_lossy):
    far = Far()
    for number in range(80):
        far.ask(is_lost=number % each == each - 1)
    assert far.exchange.facts(far.clock.mono_ns()).is_lossy is is_lossy


def test_a_link_is_clean_again_some_seconds_later():
    far = Far()
    for _ in range(40):
        far.ask(is_lost=True)
    far.ask()
    for _ in range(60):
        far.ask()
    assert not far.exchange.facts(far.clock.mono_ns()).is_lossy


def test_without_any_answer_ever_there_is_no_link_to_judge():
    far = Far()
    for _ in range(80):
        far.ask(is_lost=True)
    assert far.exchange.facts(far.clock.mono_ns()) is None
    assert far.exchange.loss == 0.0


def test_the_return_of_a_silent_link_is_noted_once():
    far = Far()
    far.ask()
    assert far.exchange.facts(far.clock.mono_ns()).back_ns == 0
    for _ in range(10):
        far.ask(is_lost=True)
    far.ask()
    back_ns = far.exchange.facts(far.clock.mono_ns()).back_ns
    assert back_ns == far.clock.mono_ns() - PERIOD_NS + far.there_ns + far.back_ns
    far.ask()
    assert far.exchange.facts(far.clock.mono_ns()).back_ns == back_ns


def test_an_answer_after_its_time_is_lost():
    far = Far()
    far.ask()
    asked = far.clock.now()
    far.exchange.request(asked)
    far.clock.advance(LOST_NS + 1)
    assert not far.exchange.answer(asked.stamp_ns, asked.stamp_ns, far.clock.now())
    assert far.exchange.loss == 0.5


# ---- what a tick makes of it --------------------------------------------------------------------

NOW = 1000 * S


def held_tick(link, *, silent_ms=500, is_live=False):
    """Return what a held tick is called when both nodes have been silent."""
    heard_ns = NOW - silent_ms * MS

    def node(name):
        return NodeFacts(StageStatus(
            1, 1, name, 'active', last_input_ns=heard_ns, last_output_ns=heard_ns,
            busy_since_ns=0, sent_ns=heard_ns), heard_ns)

    chunk = ChunkFacts(1, 3.0, 50, 100 * MS) if is_live else None
    return decide(TickFacts(
        NOW, ArmState.HOLDING, NOW, epoch=1, chunk=chunk, latency_ns=100 * MS, delta_ns=150 * MS,
        last_chunk_ns=heard_ns, encoder=node('vision_encoder'), policy=node('policy'),
        link=link))[1]


SILENT = LinkFacts(NOW - LINK_SILENT_NS - 1)
HEARD = LinkFacts(NOW - 40 * MS)


def test_silence_behind_a_silent_link_is_the_link():
    assert held_tick(SILENT) is Cause.TRANSPORT
    assert held_tick(SILENT, silent_ms=160) is Cause.TRANSPORT, 'before a node counts as dead'


def test_silence_behind_a_link_that_answers_is_the_node():
    assert held_tick(HEARD) is Cause.NODE_DEAD


def test_without_another_machine_silence_is_the_node_can_fail():
    assert held_tick(None) is Cause.NODE_DEAD


def test_a_lossy_link_explains_what_is_missing():
    lossy = LinkFacts(NOW - 40 * MS, is_lossy=True)
    assert held_tick(lossy, silent_ms=160) is Cause.TRANSPORT
    assert held_tick(lossy, silent_ms=900) is Cause.TRANSPORT
    assert held_tick(lossy, silent_ms=2100) is Cause.NODE_DEAD, 'but not for ever'
    assert held_tick(HEARD, silent_ms=160) is Cause.PLAN_END


def test_a_link_that_just_came_back_explains_what_is_missing():
    back = LinkFacts(NOW - 10 * MS, back_ns=NOW - 300 * MS)
    assert held_tick(back, silent_ms=300) is Cause.TRANSPORT
    long_back = LinkFacts(NOW - 10 * MS, back_ns=NOW - 2 * S)
    assert held_tick(long_back, silent_ms=300) is Cause.PLAN_END


def test_a_live_chunk_needs_no_link():
    assert held_tick(SILENT, silent_ms=160, is_live=True) is not Cause.TRANSPORT
