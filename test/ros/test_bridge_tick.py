"""A tick that waits for the lock of the node is late: its time is read once it has the lock."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip('reflex_msgs.msg._plan', reason='reflex_msgs is not built: run make setup')

from reflex_ros.core.clock import MS, ManualClock, S
from reflex_ros.core.types import JOINT_NAMES, ArmFeedback
from reflex_ros.nodes.bridge_topics import BridgeTopics
from reflex_ros.nodes.controller_bridge import BridgeNode
from reflex_ros.stages.inproc import InprocRun

pytestmark = pytest.mark.ros


class Busy:
    """A lock that somebody else holds for a while."""

    def __init__(self, clock, wait_ns):
        self._clock, self._wait_ns = clock, wait_ns

    def __enter__(self):
        self._clock.advance(self._wait_ns)

    def __exit__(self, *_):
        pass


def lateness(owner, wait_ns):
    """Return how late the bridge thinks that a tick is which waited for the lock, ns."""
    clock, seen = ManualClock(mono_ns=S), []

    def step(now, due_ns, index):
        seen.append(now.mono_ns - due_ns)
        return ()

    bridge = SimpleNamespace(step=step, reading=None)
    node = SimpleNamespace(
        _lock=Busy(clock, wait_ns), _bridge=bridge, bridge=bridge, _clock=clock, steady=clock,
        _arm=SimpleNamespace(names=()), _world=SimpleNamespace(advance=lambda mono_ns: None),
        _publish=lambda outputs: None, _topics=SimpleNamespace(
            publish=lambda outputs: None, publish_joint_state=lambda *args, **kwargs: None))
    began = () if owner is BridgeNode else (clock.now(),)
    owner._tick(node, *began, clock.mono_ns(), 0)
    return seen[0]


@pytest.mark.parametrize('owner', [BridgeNode, InprocRun])
@pytest.mark.parametrize('wait_ns', [0, 300 * MS])
def test_a_tick_that_waited_for_the_lock_is_as_late_as_it_waited(owner, wait_ns):
    assert lateness(owner, wait_ns) == wait_ns


def test_a_time_from_before_the_lock_is_seen_can_fail():
    class Before:
        def _tick(self, began, due_ns, index):
            with self._lock:
                self._bridge.step(began, due_ns, index)

    assert lateness(Before, 300 * MS) == 0


def stamp_of_a_reading(age_ns):
    """Return stamp and time of the publication of a reading that was received before, ns."""
    clock, sent = ManualClock(mono_ns=S, stamp_ns=700 * S), []
    node = SimpleNamespace(advertise=lambda topic: SimpleNamespace(publish=sent.append))
    topics = BridgeTopics(node, failed=sent.append)
    zero = np.zeros(7)
    reading = ArmFeedback(clock.mono_ns() - age_ns, zero, zero, zero, (True,) * 7, 1, 0)
    topics.publish_joint_state(reading, JOINT_NAMES, now=clock.now())
    assert topics.close()
    stamp = sent[0].header.stamp
    return stamp.sec * S + stamp.nanosec, clock.stamp_ns()


@pytest.mark.parametrize('age_ns', [0, 30 * MS])
def test_a_joint_state_has_the_time_at_which_the_arm_said_it(age_ns):
    """Not that of its publication: a reader would take old angles for new ones."""
    stamp_ns, now_ns = stamp_of_a_reading(age_ns)
    assert now_ns - stamp_ns == age_ns
