import gc
import os
import threading

import pytest

from reflex_ros.core import priority
from reflex_ros.core.priority import (
    Urgency,
    freeze_garbage,
    frozen_garbage,
    pinned,
    realtime,
    scheduled,
    scheduling,
)


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


def test_threads_started_inside_stay_on_the_core_and_the_caller_is_free_again():
    before, seen = os.sched_getaffinity(0), []
    core = min(before)
    with pinned(core) as is_allowed:
        assert is_allowed
        thread = threading.Thread(target=lambda: seen.append(os.sched_getaffinity(0)))
        thread.start()
    thread.join()
    assert seen == [{core}] and os.sched_getaffinity(0) == before


def test_no_core_changes_nothing():
    before = os.sched_getaffinity(0)
    with pinned(-1) as is_allowed:
        assert not is_allowed and os.sched_getaffinity(0) == before


def test_a_block_runs_as_another_thread_ran(monkeypatch):
    before, core = scheduling(), min(os.sched_getaffinity(0))
    asked = []
    monkeypatch.setattr(priority, '_set', lambda *args: asked.append(
        (args[0], args[1].sched_priority)))
    with scheduled(before._replace(policy=os.SCHED_FIFO, level=7, cores=frozenset({core}))):
        assert os.sched_getaffinity(0) == {core}
    assert asked[0] == (os.SCHED_FIFO, 7) and os.sched_getaffinity(0) == set(before.cores)
    asked.clear()
    with scheduled(before):
        assert scheduling() == before
    assert not asked, 'nothing to change'


def test_a_refusal_says_what_to_do(monkeypatch):
    monkeypatch.setattr(priority, '_set', lambda *_: False)
    urgency = Urgency(20, 1000)
    with urgency.threads():
        pass
    assert 'rtprio limit of at least 20' in urgency.refusals[0]
    assert 'core 1000' in urgency.refusals[1] and '-1 for any' in urgency.refusals[1]
    assert all('got' in text and 'expected' in text for text in urgency.refusals)


def test_a_refusal_can_fail():
    urgency = Urgency(0, -1)
    with urgency.threads():
        pass
    assert urgency.refusals == ()


def test_frozen_objects_are_left_out_of_collections():
    loops = [[]]
    loops[0].append(loops)
    with frozen_garbage() as count:
        assert count > 1000
        assert not any(found is loops for found in gc.get_objects())
    assert gc.get_freeze_count() == 0
    freeze_garbage()
    gc.unfreeze()
