"""Three per cent of the messages of a bag are taken out; exactly those are reported missing."""

from __future__ import annotations

import json

import numpy as np
import pytest

from reflex_ros.analysis.figures import analyse
from reflex_ros.bag.counts import NUMBERED, TopicCounts, read_number


@pytest.fixture(scope='module')
def whole(stalled):
    return stalled.messages()


def report_of(types, rows):
    """Return what the recorder writes beside a bag of these messages."""
    counts = {name: TopicCounts(schema.type) for name, schema in types.items()}
    for topic, _, data in rows:
        counts[topic].add(data)
    return {'error': '', 'topics': {
        name: {**log.report(), 'written': log.messages, 'dropped': 0}
        for name, log in counts.items()}}


def thinned(whole, write_rows, folder, removed):
    types, rows = whole
    kept = [row for index, row in enumerate(rows) if index not in removed]
    write_rows(folder, types, kept)
    (folder / 'recorder.json').write_text(json.dumps(report_of(types, rows)) + '\n')
    return analyse(folder)


def taken_out(whole, removed):
    """Return the removed messages: numbers by (topic, publisher), and counts of images."""
    types, rows = whole
    numbers, images = {}, {}
    for index in removed:
        topic, _, data = rows[index]
        if types[topic].type.startswith(NUMBERED):
            publisher, number = read_number(types[topic].type, data)
            numbers.setdefault((topic, publisher), set()).add(number)
        else:
            images[topic] = images.get(topic, 0) + 1
    return numbers, images


def reported(analysis):
    numbers = {(e.topic, e.publisher): {n for a, b in e.gaps for n in range(a, b + 1)}
               for e in analysis.lost if e.missing}
    return numbers, {c.name: c.missing for c in analysis.cameras if c.missing}


@pytest.mark.parametrize('seed', [0, *(pytest.param(s, marks=pytest.mark.soak)
                                      for s in range(1, 20))])
def test_exactly_the_removed_messages_are_missing(whole, write_rows, tmp_path, seed):
    count = len(whole[1])
    removed = set(np.random.default_rng(seed).choice(count, round(0.03 * count), replace=False))
    analysis = thinned(whole, write_rows, tmp_path / 'bag', removed)
    assert reported(analysis) == taken_out(whole, removed)
    assert len(removed) > 20
    topics = {topic for topic, _ in reported(analysis)[0]}
    assert topics <= {note.split(':')[0].split(' ')[0] for note in analysis.notes}


def test_exactly_the_removed_messages_can_fail(whole, write_rows, tmp_path):
    """Nothing removed, nothing reported; and the first and last message count too."""
    assert reported(thinned(whole, write_rows, tmp_path / 'whole', set())) == ({}, {})
    ends = {0, len(whole[1]) - 1}
    found = reported(thinned(whole, write_rows, tmp_path / 'ends', ends))
    assert found == taken_out(whole, ends)
    assert found != ({}, {})


def test_lost_ticks_are_said_and_ratios_are_those_of_the_rest(whole, write_rows, tmp_path):
    rows = whole[1]
    ticks = [i for i, row in enumerate(rows) if row[0] == '/control_tick'][30:40]
    analysis = thinned(whole, write_rows, tmp_path / 'bag', set(ticks))
    assert analysis.figures['gap_ticks'].value == 10
    assert any('10 of' in note and 'due ticks' in note for note in analysis.notes)
    assert analysis.run.period_ns == 20_000_000
