"""What the bridge says of another machine, and the exchange over real topics."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from reflex_ros.core.cause import LinkFacts
from reflex_ros.core.clock import MS, S
from reflex_ros.core.exchange import Ahead

pytestmark = [pytest.mark.ros, pytest.mark.realtime]

NOW = 1000 * S


def told(ahead_ms=0.0, bound_ms=0.5, *, silent_ms=20, loss=0.0, is_silent=False):
    """Return level and message of what is known of the other machine."""
    from reflex_ros.ros.clock_exchange import link_diagnosis

    found = link_diagnosis(
        LinkFacts(NOW - silent_ms * MS, is_silent=is_silent),
        Ahead(round(ahead_ms * MS), round(bound_ms * MS)), loss=loss, now_ns=NOW)
    return found.level.name, found.message, found.values


def test_one_machine_is_no_reason_to_warn():
    from reflex_ros.ros.clock_exchange import link_diagnosis

    found = link_diagnosis(None, None, loss=0.0, now_ns=NOW)
    assert (found.level.name, found.values) == ('OK', {})


@pytest.mark.parametrize(('ahead_ms', 'bound_ms', 'level'), [
    (0.3, 0.5, 'OK'), (-5.4, 0.5, 'OK'), (5.6, 0.5, 'WARN'), (-30.0, 1.0, 'WARN'),
    (30.0, 26.0, 'OK'), (51.0, 0.5, 'ERROR'), (-4000.0, 0.5, 'ERROR')])
def test_clocks_that_differ_for_certain_are_named_with_what_to_do(ahead_ms, bound_ms, level):
    found, text, values = told(ahead_ms, bound_ms)
    assert found == level
    assert f'{ahead_ms:+.1f} ms' in text
    assert f'{bound_ms:.1f} ms' in text
    assert ('chrony' in text) is (level != 'OK')
    assert values['ahead_ms'] == pytest.approx(ahead_ms)
    assert values['bound_ms'] == pytest.approx(bound_ms)


def test_a_silent_or_lossy_link_is_named():
    level, text, _ = told(silent_ms=2300, is_silent=True)
    assert (level, '2.3 s' in text) == ('ERROR', True)
    assert told(silent_ms=2300)[0] == 'OK', 'we paused: it was not asked'
    level, text, _ = told(loss=0.3)
    assert (level, '30 %' in text) == ('WARN', True)


def asker_whose_answerer_left(*, is_needed):
    """Return an asker, what it told, and how often it asked after the other end had left."""
    from sensor_msgs.msg import TimeReference

    from reflex_ros.core.clock import ManualClock
    from reflex_ros.ros.clock_exchange import ClockAsker, time_to_msg

    clock, sent, heard, calls = ManualClock(NOW), [], [], {}
    timer = SimpleNamespace(timer_period_ns=50 * MS)
    listeners = SimpleNamespace(msg_type=TimeReference, get_subscription_count=lambda: 1)
    node = SimpleNamespace(
        steady=clock, get_name=lambda: 'bridge', create_publisher=lambda *_, **__: listeners,
        listen=lambda _, take: calls.update(take=take),
        create_timer=lambda _, ask: calls.update(ask=ask) or timer,
        aside=SimpleNamespace(post=lambda _, msg: sent.append(msg)))

    def tell(link, now, ahead_ns):
        heard.append(link)
        return is_needed

    asker = ClockAsker(node, tell)
    calls['ask']()
    answer = TimeReference(time_ref=sent[-1].header.stamp)
    answer.header.stamp = time_to_msg(clock.stamp_ns())
    calls['take'](answer)
    listeners.get_subscription_count = lambda: 0
    for _ in range(10):
        clock.advance(50 * MS)
        calls['ask']()
    return asker, heard, len(sent) - 1, timer.timer_period_ns // MS


def test_who_left_and_is_not_needed_is_asked_no_more_and_the_bridge_is_told():
    asker, heard, asked, period_ms = asker_whose_answerer_left(is_needed=False)
    assert (asked, period_ms) == (0, 500)
    assert [link is None for link in heard] == [True, False, True]
    assert asker.diagnose().level.name == 'OK'


def test_who_left_but_is_needed_is_asked_on_can_fail():
    asker, heard, asked, period_ms = asker_whose_answerer_left(is_needed=True)
    assert (asked, period_ms) == (10, 50)
    assert heard[-1].is_silent
    assert asker.diagnose().level.name == 'ERROR'


@pytest.mark.parametrize('ahead_ms', [0, 250])
def test_a_bridge_hears_how_far_the_other_clock_is_ahead(ros, ahead_ms):
    """Both ends over real topics; the answering machine's clock is set wrong on purpose."""
    import rclpy
    from rclpy.node import Node

    from reflex_ros.core.clock import SystemClock
    from reflex_ros.ros.clock_exchange import ClockAnswerer, ClockAsker
    from reflex_ros.ros.lifecycle import ReflexNode
    from reflex_ros.ros.spin import Stop

    class Wrong(SystemClock):
        def stamp_ns(self):
            return super().stamp_ns() + ahead_ms * MS

    heard = []
    bridge, far = ReflexNode('controller_bridge', Stop()), Node('supervisor')
    try:
        asker = ClockAsker(bridge, lambda link, now, ahead_ns: heard.append((link, ahead_ns)))
        assert asker.diagnose().level.name == 'OK', 'nobody answers yet'
        ClockAnswerer(far, Wrong())
        end = time.monotonic() + 30
        while not (heard and heard[-1][0]) and time.monotonic() < end:
            rclpy.spin_once(bridge, timeout_sec=0.02)
            rclpy.spin_once(far, timeout_sec=0.02)
        found = asker.diagnose()
        bound_ms = found.values['bound_ms']
        assert abs(found.values['ahead_ms'] - ahead_ms) <= bound_ms + 1.0
        assert heard[-1][1] / MS == pytest.approx(found.values['ahead_ms'])
        assert bound_ms < 5000
    finally:
        far.destroy_node()
        bridge.destroy_node()


def test_a_bridge_looks_seldom_while_nobody_listens_and_asks_often_once_somebody_does(ros):
    import rclpy
    from rclpy.node import Node

    from reflex_ros.core.clock import SystemClock
    from reflex_ros.ros.clock_exchange import IDLE_NS, PERIOD_NS, ClockAnswerer, ClockAsker
    from reflex_ros.ros.lifecycle import ReflexNode
    from reflex_ros.ros.spin import Stop

    bridge, far = ReflexNode('controller_bridge', Stop()), Node('supervisor')
    try:
        ClockAsker(bridge, lambda link, now, ahead_ns: False)
        timer = next(iter(bridge.timers))

        def comes(period_ns):
            end = time.monotonic() + 30
            while timer.timer_period_ns != period_ns and time.monotonic() < end:
                rclpy.spin_once(bridge, timeout_sec=0.02)
                rclpy.spin_once(far, timeout_sec=0.02)
            return timer.timer_period_ns == period_ns

        assert comes(IDLE_NS)
        ClockAnswerer(far, SystemClock())
        assert comes(PERIOD_NS)
    finally:
        far.destroy_node()
        bridge.destroy_node()
