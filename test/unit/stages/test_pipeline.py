"""Stages that share a turn step one at a time, in order; with a turn each they overlap."""

from __future__ import annotations

import threading

import pytest

from reflex_ros.core.clock import SystemClock
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.types import StageStatus
from reflex_ros.stages.base import Output
from reflex_ros.stages.pipeline import SERIAL, TWO_STREAM, Turn, shared_turn, turns
from reflex_ros.stages.worker import StageWorker

WAIT_S = 5.0


def test_the_first_that_asks_steps_first_and_the_others_in_order():
    turn = Turn()
    assert turn.take('a') and not turn.take('b') and not turn.take('c')
    turn.give('a')
    assert not turn.take('c') and not turn.take('a') and turn.take('b')
    turn.give('b')
    assert not turn.take('a') and turn.take('c')


def test_who_leaves_the_queue_blocks_nobody():
    turn = Turn()
    turn.take('a')
    turn.take('b')
    turn.take('c')
    turn.leave('b')
    turn.give('a')
    assert turn.take('c')


def test_giving_what_one_does_not_have_does_nothing():
    turn = Turn()
    turn.take('a')
    turn.give('b')
    assert not turn.take('b')


def test_serial_in_processes_of_their_own_is_refused():
    turn = Turn()
    assert shared_turn({'policy.pipeline': TWO_STREAM}, None) is None
    assert shared_turn({'policy.pipeline': SERIAL}, turn) is turn
    with pytest.raises(ConfigError, match='one process'):
        shared_turn({'policy.pipeline': SERIAL}, None)


class Probe:
    ready_ns = 0


class Stage:
    """A stage whose step waits for ``release`` and says when it starts and ends."""

    def __init__(self, name, events):
        self.name, self.events, self.due = name, events, False
        self.started, self.ended, self.release = (threading.Event() for _ in range(3))

    def ask(self):
        self.due = True

    def begin(self, now):
        self.due = False

    def step(self, now):
        self.events.append(f'{self.name} starts')
        self.started.set()
        assert self.release.wait(WAIT_S)
        self.events.append(f'{self.name} ends')
        return (Output('result'),), Probe()

    def end(self, now, *, published):
        self.ended.set()

    def status(self, now):
        return StageStatus(number=1, stamp_ns=0, node='policy', state='active', last_input_ns=0,
                           last_output_ns=0, busy_since_ns=0, sent_ns=now.mono_ns)


@pytest.fixture
def pair():
    made = []

    def make(pipeline):
        events = []
        for name, turn in zip('ab', turns(pipeline), strict=True):
            stage = Stage(name, events)
            worker = StageWorker(
                stage, clock=SystemClock(),
                due=lambda now, stage=stage: now.mono_ns if stage.due else None,
                publish=lambda outputs: None, failed=lambda error: None, name=name, turn=turn)
            worker.start()
            made.append((worker, stage))
        return events, made[-2:]

    yield make
    for worker, stage in made:
        stage.release.set()
        worker.stop()


def test_serial_workers_step_one_after_the_other(pair):
    events, ((first, a), (second, b)) = pair(SERIAL)
    first.feed(a.ask)
    assert a.started.wait(WAIT_S)
    b.release.set()
    second.feed(b.ask)
    a.release.set()
    assert b.ended.wait(WAIT_S)
    assert events == ['a starts', 'a ends', 'b starts', 'b ends']


def test_steps_that_overlap_can_fail(pair):
    """With a thread and a turn each the second one starts while the first one works."""
    events, ((first, a), (second, b)) = pair(TWO_STREAM)
    first.feed(a.ask)
    assert a.started.wait(WAIT_S)
    second.feed(b.ask)
    assert b.started.wait(WAIT_S)
    assert events == ['a starts', 'b starts']


def test_a_stage_that_breaks_gives_its_turn_back(pair):
    events, ((first, a), (second, b)) = pair(SERIAL)
    a.step = lambda now: 1 / 0
    b.release.set()
    first.feed(a.ask)
    second.feed(b.ask)
    assert b.ended.wait(WAIT_S)
