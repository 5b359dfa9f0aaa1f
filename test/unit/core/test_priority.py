import os
import threading

import pytest

from reflex_ros.core.priority import realtime


def test_level_zero_changes_nothing():
    before = os.sched_getscheduler(0)
    with realtime(0) as is_allowed:
        assert not is_allowed
        assert os.sched_getscheduler(0) == before


def test_threads_started_inside_keep_the_priority_and_the_caller_gets_its_own_back():
    before, seen = os.sched_getscheduler(0), []
    with realtime(5) as is_allowed:
        if not is_allowed:
            pytest.skip('this system does not allow real-time priority')
        thread = threading.Thread(target=lambda: seen.append(os.sched_getscheduler(0)))
        thread.start()
    thread.join()
    assert seen == [os.SCHED_FIFO]
    assert os.sched_getscheduler(0) == before
