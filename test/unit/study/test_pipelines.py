"""Encoder and policy in turns against beside each other, on the virtual clock: exact figures."""

from __future__ import annotations

import argparse
import json

import pytest

from reflex_ros.stages.pipeline import SERIAL, TWO_STREAM, Turn
from reflex_ros.study import pipelines
from reflex_ros.study.pipelines import BENCH, simulate

EVEN = (40.0, 40.0)
"""Block and chunk take as long as a frame of the camera."""


@pytest.fixture(scope='module')
def even():
    return {name: simulate('async_naive', EVEN, name, duration_s=3.0, seed=1)
            for name in (SERIAL, TWO_STREAM)}


def test_two_streams_raise_the_throughput_towards_the_slower_stage(even):
    serial, beside = even[SERIAL], even[TWO_STREAM]
    assert serial['chunks_per_s'] == pytest.approx(1000 / sum(EVEN), rel=0.1)
    assert beside['chunks_per_s'] == pytest.approx(1000 / max(EVEN), rel=0.1)


def test_commands_of_two_streams_are_no_younger(even):
    """Each frame still passes both stages one after the other."""
    ages = {name: row['observation_to_command_ms']['p50'] for name, row in even.items()}
    assert ages[TWO_STREAM] >= sum(EVEN)
    assert ages[SERIAL] >= sum(EVEN)


def test_serial_stages_never_overlap_and_others_do(even):
    assert even[SERIAL]['overlap_ms'] == 0
    assert even[TWO_STREAM]['overlap_ms'] > 500


def test_never_overlapping_can_fail(monkeypatch):
    """A wiring that forgets the switch is found out."""
    monkeypatch.setattr('reflex_ros.stages.virtual.turns', lambda _: (Turn(), Turn()))
    assert simulate('async_naive', EVEN, SERIAL, duration_s=2.0, seed=1)['overlap_ms'] > 0


def test_a_run_repeats_exactly(even):
    assert simulate('async_naive', EVEN, SERIAL, duration_s=3.0, seed=1) == even[SERIAL]


def test_rows_lines_and_picture(monkeypatch):
    monkeypatch.setattr(pipelines, 'TABLES', {'even': EVEN})
    monkeypatch.setattr(pipelines, 'MODES', ('async_naive',))
    options = argparse.Namespace(virtual=2.0, live=0.0, seed=0)
    ticks = []
    found = json.loads(json.dumps(BENCH.run(options, lambda: ticks.append(1))))
    assert len(ticks) == BENCH.total(options) == 2
    assert '| `async_naive` | even | 40 + 40 |' in '\n'.join(BENCH.lines(found))
    assert len(BENCH.draw(found).axes) == 2
