"""The other machine's clock and the link to it, from requests and answers."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from reflex_ros.core.cause import ChunkFacts, LinkFacts, NodeFacts, TickFacts, decide
from reflex_ros.core.clock import MS, Instant, ManualClock, S
from reflex_ros.core.exchange import FORGOTTEN, LOST, PERIOD_NS, SILENT, Exchange, OurClock
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


def step_of_ours(step_ms):
    """Return by how much the offset is wrong within two requests after a step of our clock."""
    far = Far()
    for _ in range(50):
        far.ask()
    far.there_ns = 30 * MS  # so that those from before the step are the quickest
    far.ask(step_ns=step_ms * MS)
    far.ahead_ns -= step_ms * MS
    far.ask()
    return abs(far.exchange.ahead.ahead_ns - far.ahead_ns)


@pytest.mark.parametrize('step_ms', [-4000, -80, 3, 80])
def test_a_step_of_our_clock_makes_no_exchange_wrong(step_ms):
    assert step_of_ours(step_ms) == 0


def test_a_step_of_our_clock_that_is_not_seen_can_fail(monkeypatch):
    def see_once(self, now, see=OurClock.see):
        if self._seen_ns is None:
            see(self, now)

    monkeypatch.setattr(OurClock, 'see', see_once)
    assert step_of_ours(80) == 80 * MS


def test_a_pause_between_the_readings_of_our_clocks_is_no_step():
    ours = OurClock()
    ours.see(Instant(1 * S, 5 * S))
    ours.see(Instant(2 * S, 6 * S - 40 * MS))
    assert ours.offset_ns == 4 * S
    ours.see(Instant(3 * S, 7 * S))
    assert ours.offset_ns == 4 * S


def test_exchanges_from_before_a_step_of_their_clock_are_dropped():
    far = Far()
    for _ in range(50):
        far.ask()
    far.ahead_ns, far.there_ns = 80 * MS, 30 * MS
    far.ask()
    known = far.exchange.ahead
    assert abs(known.ahead_ns - 80 * MS) <= known.bound_ns
    assert known.bound_ns > 10 * MS, 'one from before was quicker'


def test_exchanges_that_agree_are_kept_can_fail():
    far = Far()
    far.ask()
    far.there_ns = 30 * MS
    far.ask()
    assert far.exchange.ahead.bound_ns == 1 * MS


def test_an_answer_that_nobody_asked_for_is_no_answer():
    far = Far()
    assert not far.exchange.answer(1, 2, far.clock.now())
    assert far.exchange.facts is None


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
    assert far.exchange.facts.is_lossy is is_lossy


def test_a_link_is_clean_again_some_seconds_later():
    far = Far()
    for _ in range(40):
        far.ask(is_lost=True)
    far.ask()
    for _ in range(60):
        far.ask()
    assert not far.exchange.facts.is_lossy


def test_without_any_answer_ever_there_is_no_link_to_judge():
    far = Far()
    for _ in range(80):
        far.ask(is_lost=True)
    assert far.exchange.facts is None
    assert far.exchange.loss == 0.0


def test_the_return_of_a_silent_link_is_noted_once():
    far = Far()
    far.ask()
    assert far.exchange.facts.back_ns == 0
    for _ in range(10):
        far.ask(is_lost=True)
    far.ask()
    back_ns = far.exchange.facts.back_ns
    assert back_ns == far.clock.mono_ns() - PERIOD_NS + far.there_ns + far.back_ns
    far.ask()
    assert far.exchange.facts.back_ns == back_ns


def test_an_answer_after_its_time_is_lost():
    far = Far()
    far.ask()
    asked = far.clock.now()
    far.exchange.request(asked)
    for _ in range(LOST):
        far.clock.advance(PERIOD_NS)
        far.exchange.request(far.clock.now())
    assert not far.exchange.answer(asked.stamp_ns, asked.stamp_ns, far.clock.now())
    assert far.exchange.loss == 0.5


@pytest.mark.parametrize('pause_ms', [160, 700, 5000])
def test_an_answer_that_we_were_late_to_read_was_not_late(pause_ms):
    """The answer waits while we stand still; the next request leaves before it is read."""
    far = Far()
    for _ in range(20):
        far.ask()
        asked = far.clock.now()
        far.exchange.request(asked)
        far.clock.advance(pause_ms * MS)
        assert not far.exchange.facts.is_silent
        far.exchange.request(far.clock.now())
        assert not far.exchange.facts.is_silent
        assert far.exchange.answer(asked.stamp_ns, asked.stamp_ns, far.clock.now())
        late = far.clock.now()
        far.clock.advance(1 * MS)
        assert far.exchange.answer(late.stamp_ns, late.stamp_ns, far.clock.now())
    assert far.exchange.facts.back_ns == 0, 'and nothing came back'
    assert far.exchange.loss == 0.0


def test_requests_that_stay_without_answer_are_silence_can_fail():
    far = Far()
    far.ask()
    for number in range(1, 10):
        far.ask(is_lost=True)
        assert far.exchange.facts.is_silent is (number >= SILENT)


# ---- when a link is none any more ---------------------------------------------------------------


def asked_for_a_minute(*, has_listener, is_needed):
    """Return an exchange whose other end answered once and then never again."""
    far = Far()
    far.ask()
    for _ in range(FORGOTTEN + 1):
        if far.exchange.may_ask(has_listener=has_listener, is_needed=is_needed):
            far.ask(is_lost=True)
    return far.exchange


@pytest.mark.parametrize('has_listener', [False, True])
def test_a_link_that_nobody_needs_is_forgotten(has_listener):
    exchange = asked_for_a_minute(has_listener=has_listener, is_needed=False)
    assert (exchange.facts, exchange.ahead, exchange.loss) == (None, None, 0.0)
    assert exchange.may_ask(has_listener=False, is_needed=False) is False
    assert exchange.may_ask(has_listener=True, is_needed=False), 'it may come back'


def test_who_left_the_graph_is_forgotten_at_once_and_who_is_silent_is_not():
    far = Far()
    far.ask()
    assert far.exchange.may_ask(has_listener=True, is_needed=False)
    assert far.exchange.facts is not None
    assert not far.exchange.may_ask(has_listener=False, is_needed=False)
    assert far.exchange.facts is None


@pytest.mark.parametrize('has_listener', [False, True])
def test_a_link_to_encoder_and_policy_is_never_forgotten(has_listener):
    assert asked_for_a_minute(has_listener=has_listener, is_needed=True).facts.is_silent


# ---- what a tick makes of it --------------------------------------------------------------------

NOW = 1000 * S


def held_tick(link, *, silent_ms=500, is_live=False, far=('vision_encoder', 'policy'),
              busy_ms=0, latest=''):
    """Return what a held tick is called when both nodes have been silent.

    Args:
        far: Nodes on the other machine. ``latest``: the one that was heard until now.
        busy_ms: How long the policy has been at work.
    """
    silent_since_ns = NOW - silent_ms * MS

    def node(name):
        heard_ns = NOW if name == latest else silent_since_ns
        busy_ns = NOW - busy_ms * MS if busy_ms and name == 'policy' else 0
        return NodeFacts(StageStatus(
            1, 1, name, 'active', last_input_ns=silent_since_ns, last_output_ns=silent_since_ns,
            busy_since_ns=busy_ns, sent_ns=heard_ns), heard_ns, is_far=name in far)

    chunk = ChunkFacts(1, 3.0, 50, 100 * MS) if is_live else None
    return decide(TickFacts(
        NOW, ArmState.HOLDING, NOW, epoch=1, chunk=chunk, latency_ns=100 * MS, delta_ns=150 * MS,
        last_chunk_ns=silent_since_ns, encoder=node('vision_encoder'), policy=node('policy'),
        link=link))[1]


MUTE = LinkFacts(NOW - 200 * MS, is_silent=True)
HEARD = LinkFacts(NOW - 40 * MS)
LOSSY_LINK = LinkFacts(NOW - 40 * MS, is_lossy=True)
BACK = LinkFacts(NOW - 10 * MS, back_ns=NOW - 300 * MS)


def test_silence_behind_a_silent_link_is_the_link():
    assert held_tick(MUTE) is Cause.TRANSPORT
    assert held_tick(MUTE, silent_ms=160) is Cause.TRANSPORT, 'before a node counts as dead'


def test_silence_behind_a_link_that_answers_is_the_node():
    assert held_tick(HEARD) is Cause.NODE_DEAD


def test_without_another_machine_silence_is_the_node_can_fail():
    assert held_tick(None) is Cause.NODE_DEAD


def test_a_lossy_link_explains_what_is_missing():
    lossy = LOSSY_LINK
    assert held_tick(lossy, silent_ms=160) is Cause.TRANSPORT
    assert held_tick(lossy, silent_ms=900) is Cause.TRANSPORT
    assert held_tick(lossy, silent_ms=2100) is Cause.NODE_DEAD, 'but not for ever'
    assert held_tick(HEARD, silent_ms=160) is Cause.PLAN_END


def test_a_link_that_just_came_back_explains_what_is_missing():
    assert held_tick(BACK, silent_ms=300) is Cause.TRANSPORT
    long_back = LinkFacts(NOW - 10 * MS, back_ns=NOW - 2 * S)
    assert held_tick(long_back, silent_ms=300) is Cause.PLAN_END


def test_a_live_chunk_needs_no_link():
    assert held_tick(MUTE, silent_ms=160, is_live=True) is not Cause.TRANSPORT


@pytest.mark.parametrize('told', [
    {'silent_ms': 500}, {'silent_ms': 900}, {'silent_ms': 300},
    {'silent_ms': 300, 'busy_ms': 250}])
@pytest.mark.parametrize('link', [MUTE, LOSSY_LINK, BACK, HEARD])
def test_what_lives_here_is_judged_as_if_there_were_no_link(link, told):
    assert held_tick(link, far=(), **told) is held_tick(None, far=(), **told)


@pytest.mark.parametrize('link', [MUTE, LOSSY_LINK, BACK])
@pytest.mark.parametrize('busy_ms', [0, 250])
def test_a_node_that_lives_there_is_excused_can_fail(link, busy_ms):
    told = {'silent_ms': 300, 'busy_ms': busy_ms}
    assert held_tick(link, **told) is Cause.TRANSPORT
    assert held_tick(None, **told) in (Cause.DENOISE_LATE, Cause.PLAN_END)


def test_they_live_where_the_newest_sign_of_life_was_sent():
    """The encoder that ran there for a moment does not excuse the one that died here."""
    assert held_tick(MUTE, far=('vision_encoder',), latest='policy') is Cause.NODE_DEAD
    assert held_tick(MUTE, far=('policy',)) is Cause.NODE_DEAD, 'of the one that lived here'
