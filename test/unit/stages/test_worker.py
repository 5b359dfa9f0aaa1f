"""Threads that run stages; real threads, but no sleeping."""

from __future__ import annotations

import threading

import pytest

from reflex_ros.core.clock import MS, ManualClock, S, SystemClock
from reflex_ros.core.types import StageStatus
from reflex_ros.stages.base import Output
from reflex_ros.stages.worker import StageWorker, TickLoop

WAIT_S = 5.0


class Probe:
    def __init__(self, ready_ns):
        self.ready_ns = ready_ns


class Stage:
    """A stage whose step waits for ``release``."""

    def __init__(self, clock, delay_ns=0):
        self.clock, self.delay_ns = clock, delay_ns
        self.started, self.release = threading.Event(), threading.Event()
        self.due = False
        self.seen, self.ended = [], []
        self.error = None

    def begin(self, now):
        self.due = False

    def step(self, now):
        self.started.set()
        assert self.release.wait(WAIT_S)
        if self.error:
            raise self.error
        return (Output('result', now.mono_ns + self.delay_ns),), Probe(now.mono_ns)

    def end(self, now, *, published):
        self.ended.append(published)
        self.sent_ns = now.mono_ns

    def status(self, now):
        return StageStatus(number=1, stamp_ns=0, node='policy', state='active', last_input_ns=0,
                           last_output_ns=0, busy_since_ns=0, sent_ns=now.mono_ns)

    def ask(self):
        self.due = True


@pytest.fixture
def build():
    workers = []

    def make(clock=None, delay_ns=0):
        clock = clock or SystemClock()
        stage, out, failed = Stage(clock, delay_ns), [], []
        done = threading.Event()

        def publish(outputs):
            worker.received_ns = clock.mono_ns()
            out.extend(outputs)
            done.set()

        worker = StageWorker(
            stage, clock=clock, due=lambda now: now.mono_ns if stage.due else None,
            publish=publish, failed=lambda e: (failed.append(e), done.set()), name='test')
        worker.out, worker.failures, worker.done = out, failed, done
        workers.append((worker, stage))
        return worker, stage

    yield make
    for worker, stage in workers:
        stage.release.set()
        worker.stop()


def test_what_was_published_was_sent_before_anybody_had_it(build):
    worker, stage = build()
    stage.release.set()
    stage.ask()
    worker.start()
    assert worker.done.wait(WAIT_S) and worker.stop()
    assert stage.ended == [1] and stage.sent_ns <= worker.received_ns


def test_looking_at_the_status_takes_no_number_of_a_message(build):
    worker, stage = build()
    calls = []
    status = stage.status
    stage.status = lambda now: (calls.append(now), status(now))[1]
    published = worker.status()
    assert worker.last_status() is published and worker.last_status() is published
    assert len(calls) == 1


def test_status_answers_while_a_step_blocks(build):
    clock = SystemClock()
    worker, stage = build(clock)
    worker.start()
    worker.feed(stage.ask)
    assert stage.started.wait(WAIT_S)
    start_ns = clock.mono_ns()
    assert worker.status().node == 'policy'
    assert clock.mono_ns() - start_ns < 200 * MS
    assert not worker.out


def test_inputs_wait_for_the_running_step(build):
    worker, stage = build()
    worker.start()
    worker.feed(stage.ask)
    assert stage.started.wait(WAIT_S)
    worker.feed(lambda: stage.seen.append('during'))
    assert stage.seen == []
    stage.release.set()
    worker.stop()
    assert stage.seen == ['during']


def test_waiting_inputs_of_one_name_replace_each_other(build):
    worker, stage = build()
    worker.start()
    worker.feed(stage.ask)
    assert stage.started.wait(WAIT_S)
    for i in range(1000):
        worker.feed(lambda i=i: stage.seen.append(('frame', i)), newest='front')
        if i % 500 == 0:
            worker.feed(lambda i=i: stage.seen.append(('task', i)))
    stage.release.set()
    worker.stop()
    assert sorted(stage.seen) == [('frame', 999), ('task', 0), ('task', 500)]


def test_a_worker_that_stopped_can_start_again(build):
    worker, stage = build()
    for _ in range(3):
        stage.release.set()
        worker.done.clear()
        worker.start()
        worker.feed(stage.ask)
        assert worker.done.wait(WAIT_S)
        assert worker.stop()
    assert len(worker.out) == 3


def test_a_worker_that_never_started_can_stop(build):
    worker, _ = build()
    assert worker.stop()


def test_stop_cuts_an_injected_delay_short_and_publishes_nothing(build):
    worker, stage = build(delay_ns=60 * S)
    stage.release.set()
    worker.start()
    worker.feed(stage.ask)
    assert stage.started.wait(WAIT_S)
    assert worker.stop()
    assert worker.out == [] and stage.ended in ([0], [])


def test_outputs_are_published_no_earlier_than_they_may(build):
    clock = ManualClock(mono_ns=S)
    worker, stage = build(clock, delay_ns=300 * MS)
    stage.release.set()
    worker.start()
    worker.feed(stage.ask)
    assert worker.done.wait(WAIT_S)
    assert clock.mono_ns() >= S + 300 * MS and stage.ended in ([1], [])


def test_an_exception_of_the_stage_ends_the_worker_and_is_told(build):
    worker, stage = build()
    stage.error = ValueError('broken')
    stage.release.set()
    worker.start()
    worker.feed(stage.ask)
    assert worker.done.wait(WAIT_S)
    assert worker.failures == [stage.error] and worker.out == []


def grid(clock, step, **changes):
    return TickLoop(step, period_ns=20 * MS, clock=clock, failed=pytest.fail, **changes)


def test_the_loop_runs_on_a_grid_of_absolute_deadlines():
    clock, seen = ManualClock(mono_ns=S), []

    def step(now, due_ns, index):
        seen.append((index, due_ns, now.mono_ns))
        clock.advance(3 * MS)
        if index == 4:
            loop._is_stopping.set()

    loop = grid(clock, step)
    loop.run()
    assert seen == [(i, S + i * 20 * MS, S + i * 20 * MS) for i in range(5)]


def test_an_overrun_skips_to_the_newest_due_instant_and_never_catches_up():
    clock, seen = ManualClock(mono_ns=S), []

    def step(now, due_ns, index):
        seen.append(index)
        clock.advance(70 * MS if index == 2 else MS)
        if len(seen) == 5:
            loop._is_stopping.set()

    loop = grid(clock, step)
    loop.run()
    assert seen == [0, 1, 2, 5, 6]


def test_a_continued_loop_keeps_the_grid_of_its_ledger():
    clock, seen = ManualClock(mono_ns=100 * S), []

    def step(now, due_ns, index):
        seen.append((index, due_ns))
        loop._is_stopping.set()

    loop = grid(clock, step, start_ns=S, first_index=4950)
    loop.run()
    assert seen == [(4950, 100 * S)]


def test_an_exception_of_a_tick_is_told():
    told = []
    loop = TickLoop(lambda *_: 1 / 0, period_ns=MS, clock=ManualClock(), failed=told.append)
    loop.start()
    assert loop.stop() and isinstance(told[0], ZeroDivisionError)
