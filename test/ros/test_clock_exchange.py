"""What the bridge says of another machine, and the exchange over real topics."""

from __future__ import annotations

import time

import pytest

from reflex_ros.core.cause import LINK_SILENT_NS, LinkFacts
from reflex_ros.core.clock import MS, S
from reflex_ros.core.exchange import Ahead

pytestmark = [pytest.mark.ros, pytest.mark.realtime]

NOW = 1000 * S


def told(ahead_ms=0.0, bound_ms=0.5, *, silent_ms=20, loss=0.0):
    """Return level and message of what is known of the other machine."""
    from reflex_ros.ros.clock_exchange import link_diagnosis

    found = link_diagnosis(
        LinkFacts(NOW - silent_ms * MS), Ahead(round(ahead_ms * MS), round(bound_ms * MS)),
        loss=loss, now_ns=NOW)
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
    assert told(silent_ms=LINK_SILENT_NS // MS + 1)[0] == 'ERROR'
    level, text, _ = told(loss=0.3)
    assert (level, '30 %' in text) == ('WARN', True)


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
