"""Blocks between two processes: every way hands every payload over, and a wrong copy is seen."""

from __future__ import annotations

import argparse
import json
import os

import numpy as np
import pytest

from reflex_ros.core.errors import StaleError
from reflex_ros.study import handoff
from reflex_ros.study.handoff import BENCH, is_wrong, latencies
from reflex_ros.study.handoff_writer import PIPE, RING, WAYS


@pytest.fixture(scope='module')
def found():
    options = argparse.Namespace(payloads={'few': 100, 'many': 300_000}, count=12, warmup=2)
    ticks = []
    rows = BENCH.run(options, lambda: ticks.append(1))
    assert len(ticks) == BENCH.total(options)
    return rows


def test_every_way_hands_every_payload_over(found):
    assert [(row['payload'], row['way']) for row in found['rows']] == [
        (payload, way) for payload in ('few', 'many') for way in WAYS]
    for row in found['rows']:
        assert row['wrong'] == 0 and row['us']['n'] == 12
        assert 0 < row['us']['p50'] <= row['us']['p99'] <= row['us']['max']


def test_a_wrong_copy_can_fail():
    payload = np.zeros(10, np.uint8)
    payload[0] = payload[-1] = 7
    assert not is_wrong(payload, 7) and not is_wrong(payload, 7 + 256)
    payload[-1] = 6
    assert is_wrong(payload, 7)


def test_a_reader_that_never_copies_is_found_out(monkeypatch):
    """The check looks at what was handed over, not at what should have been."""
    take = handoff.PipeReceiver.take
    monkeypatch.setattr(handoff.PipeReceiver, 'take',
                        lambda self, out: take(self, np.empty_like(out)))
    assert latencies(PIPE, 100, count=5, warmup=0)[1] == 5


def test_the_end_of_the_writer_is_told():
    with open(os.devnull, 'rb') as empty:
        receiver = handoff.PipeReceiver.__new__(handoff.PipeReceiver)
        receiver._handle, receiver._header = empty.fileno(), bytearray(8)
        with pytest.raises(StaleError, match='living writer'):
            receiver.take(np.zeros(100, np.uint8))


def test_lines_and_picture(found):
    stored = json.loads(json.dumps(found))
    text = '\n'.join(BENCH.lines(stored))
    assert f'| many | 0.3 | {RING} |' in text and 'times as long' in text
    assert len(BENCH.draw(stored).axes) == 2
