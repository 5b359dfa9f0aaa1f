"""How long a recovery may take."""

from __future__ import annotations

from reflex_ros.arm import driver, enabling, feedback, preflight, protocol
from reflex_ros.arm.config import DriverConfig
from reflex_ros.core.clock import S

OPEN_NS = 10 * S
"""As ``CanLink.open`` says."""
QUESTIONS = 1 + 2 * 6 + 1
"""Firmware, range and acceleration of six joints, gripper."""


def longest_ns(config):
    """Return the time of a recovery in which every step takes as long as it may, ns."""
    clear = 2 * (OPEN_NS + config.connect_timeout_ns) + 6 * driver.CLEAR_NS
    ask = QUESTIONS * preflight.QUERY_ATTEMPTS * preflight.ANSWER_NS
    check = 3 * feedback.RATE_WINDOW_NS + preflight.COMPLETE_NS + ask
    enable = (driver.CLEAR_NS + 2 * (enabling.STILL_TIMEOUT_NS + enabling.STILL_NS)
              + config.enable_timeout_ns + enabling.HOLD_TIMEOUT_NS + enabling.HOLD_NS)
    return clear + check + enable


def test_a_recovery_that_takes_as_long_as_it_may_ends_within_the_bound():
    assert 0.9 * protocol.RECOVERY_NS < longest_ns(DriverConfig()) < protocol.RECOVERY_NS


def test_a_recovery_within_the_bound_can_fail():
    slow = DriverConfig(enable_timeout_ns=20 * S)
    assert longest_ns(slow) > protocol.RECOVERY_NS
