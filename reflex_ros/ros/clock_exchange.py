"""Two machines tell each other their time, over the middleware that carries everything else.

The bridge asks twenty times a second, but only while somebody listens or encoder and policy are
known to live there, else it looks for a listener twice a second. The supervisor of encoder and
policy on another machine answers. It is a process of its own, so it answers when they are dead,
and is silent when the link is: that tells the two apart. Best effort, as images travel: a lost
answer is not sent again, so what the link loses can be counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sensor_msgs.msg import TimeReference

from reflex_ros.core.clock import MS, S
from reflex_ros.core.exchange import LOSSY, PERIOD_NS, Ahead, Exchange
from reflex_ros.ros.convert import time_from_msg, time_to_msg
from reflex_ros.ros.diagnostics import Diagnosis, Level
from reflex_ros.ros.publish import QUIET, Publisher
from reflex_ros.ros.qos import topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from reflex_ros.core.cause import LinkFacts
    from reflex_ros.core.clock import Clock, Instant
    from reflex_ros.ros.lifecycle import ReflexNode

IDLE_NS = 500 * MS
"""Time between two looks whether anybody listens, while nobody does."""
WARN_NS, ERROR_NS = 5 * MS, 50 * MS
"""A quarter of a control period, and two and a half of them."""
_SET = 'set both clocks by one source, e.g. chrony on both machines (docs/offboard.md)'


class ClockAnswerer:
    """Answers requests with the time of this machine.

    Args:
        node: rclpy node that is spun.
        clock: Its time.
    """

    def __init__(self, node: Any, clock: Clock) -> None:
        self._clock, self._name = clock, node.get_name()
        asked, answer = topic('clock_request'), topic('clock_answer')
        self._publisher = Publisher(node.create_publisher(answer.message, answer.name, answer.qos))
        node.create_subscription(asked.message, asked.name, self._answer, asked.qos)

    def _answer(self, msg: Any) -> None:
        out = TimeReference(time_ref=msg.header.stamp, source=self._name)
        out.header.stamp = time_to_msg(self._clock.stamp_ns())
        self._publisher.publish(out)


class ClockAsker:
    """Asks, and tells what the answers say. All calls come from the executor of the node.

    Args:
        node: The node of the bridge.
        tell: Gets what is known after each request and answer: facts, the present, and by how
            much the other clock is ahead, ns. Returns whether encoder and policy live there.
    """

    def __init__(self, node: ReflexNode,
                 tell: Callable[[LinkFacts | None, Instant, int], bool]) -> None:
        self._node, self._tell, self._is_needed = node, tell, False
        self._exchange = Exchange()
        request = topic('clock_request')
        self._requests = node.create_publisher(
            request.message, request.name, request.qos, event_callbacks=QUIET)
        self._writer = Publisher(self._requests)
        node.listen(topic('clock_answer'), self._take)
        self._timer = node.create_timer(PERIOD_NS / S, self._ask)

    def diagnose(self) -> Diagnosis:
        """Return how well the clocks agree and whether the link answers."""
        return link_diagnosis(self._exchange.facts, self._exchange.ahead,
                              loss=self._exchange.loss, now_ns=self._node.steady.mono_ns())

    def _ask(self) -> None:
        now = self._node.steady.now()
        was_known = self._exchange.facts is not None
        has_listener = self._requests.get_subscription_count() > 0
        may_ask = self._exchange.may_ask(has_listener=has_listener, is_needed=self._is_needed)
        period_ns = PERIOD_NS if may_ask else IDLE_NS
        if self._timer.timer_period_ns != period_ns:
            self._timer.timer_period_ns = period_ns
        if not may_ask:
            if was_known:
                self._say(now)
            return
        msg = TimeReference(source=self._node.get_name())
        msg.header.stamp = time_to_msg(now.stamp_ns)
        self._exchange.request(now)
        self._node.aside.post(self._writer, msg)
        self._say(now)

    def _take(self, msg: Any) -> None:
        now = self._node.steady.now()
        asked_ns, theirs_ns = time_from_msg(msg.time_ref), time_from_msg(msg.header.stamp)
        if self._exchange.answer(asked_ns, theirs_ns, now):
            self._say(now)

    def _say(self, now: Instant) -> None:
        known = self._exchange.ahead
        self._is_needed = self._tell(self._exchange.facts, now, known.ahead_ns if known else 0)


def link_diagnosis(link: LinkFacts | None, ahead: Ahead | None, *, loss: float,
                   now_ns: int) -> Diagnosis:
    """Return the state of the link to another machine and of the two clocks.

    Args:
        link: None while nobody has answered. ``ahead``: what is known of the other clock.
        loss: Share of the last requests without an answer.
        now_ns: The present, steady.
    """
    if link is None:
        return Diagnosis(Level.OK, 'no other machine answers: encoder and policy run here')
    values: dict[str, object] = {'lost_share': loss,
                                 'silent_ms': (now_ns - link.answered_ns) / MS}
    if ahead is not None:
        values |= {'ahead_ms': ahead.ahead_ns / MS, 'bound_ms': ahead.bound_ns / MS}
    level, text = _link_words(link, loss, now_ns)
    clock_level, clock_text = _clock_words(ahead)
    worst = max((level, clock_level), key=[Level.OK, Level.WARN, Level.ERROR].index)
    return Diagnosis(worst, '; '.join(filter(None, (text, clock_text))), values)


def _link_words(link: LinkFacts, loss: float, now_ns: int) -> tuple[Level, str]:
    if link.is_silent:
        silent_s = (now_ns - link.answered_ns) / S
        return Level.ERROR, (f'no answer of the other machine for {silent_s:.1f} s: look at '
                             'the network, and whether reflex-ros still runs there')
    if loss >= LOSSY:
        return Level.WARN, f'{100 * loss:.0f} % of the answers are lost: look at the network'
    return Level.OK, ''


def _clock_words(ahead: Ahead | None) -> tuple[Level, str]:
    if ahead is None:
        return Level.WARN, 'the other clock is not known yet'
    told = (f'the clock of the other machine is {ahead.ahead_ns / MS:+.1f} ms ahead, '
            f'known to {ahead.bound_ns / MS:.1f} ms')
    certain_ns = abs(ahead.ahead_ns) - ahead.bound_ns
    if certain_ns <= WARN_NS:
        return Level.OK, told
    return Level.ERROR if certain_ns > ERROR_NS else Level.WARN, f'{told}: {_SET}'
