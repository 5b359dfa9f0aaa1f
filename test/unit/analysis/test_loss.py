"""Three per cent of the messages of a bag are taken out; exactly those are reported missing."""

from __future__ import annotations

import json

import numpy as np
import pytest

from reflex_ros.analysis.figures import analyse
from reflex_ros.bag.counts import NUMBERED, TopicCounts, read_number
from reflex_ros.bag.schema import find_schema


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


def test_lost_messages_without_a_number_are_counted_where_the_recorder_did(whole, write_rows,
                                                                          tmp_path):
    """Nothing in a diagnostic tells which one is gone, so only how many are is said."""
    types, rows = whole
    types = {**types, '/diagnostics': find_schema('diagnostic_msgs/msg/DiagnosticArray')}
    rows = [*rows, *(('/diagnostics', rows[-1][1] + i, bytes(20)) for i in range(10))]
    removed = {len(rows) - 1, len(rows) - 5, len(rows) - 6}
    analysis = thinned((types, rows), write_rows, tmp_path / 'bag', removed)
    assert '/diagnostics: 3 messages are missing' in analysis.notes
    (tmp_path / 'bag' / 'recorder.json').unlink()
    assert not any('/diagnostics' in note for note in analyse(tmp_path / 'bag').notes)


def test_what_was_lost_with_the_end_of_the_first_of_two_bags_is_counted_once(whole, write_rows,
                                                                             tmp_path):
    types, rows = whole
    ticks = [index for index, row in enumerate(rows) if row[0] == '/control_tick']
    middle, lost = ticks[50], set(ticks[45:50])
    run = tmp_path / 'run'
    for name, part in (('bag', range(middle)), ('bag_2', range(middle, len(rows)))):
        given = [rows[index] for index in part]
        write_rows(run / name, types, [rows[i] for i in part if i not in lost])
        (run / name / 'recorder.json').write_text(json.dumps(report_of(types, given)) + '\n')
    found = [entry for entry in analyse(run).lost if entry.topic == '/control_tick']
    assert [entry.missing for entry in found] == [5]


def test_a_publisher_that_cannot_be_heard_and_odd_images_are_in_the_report(whole, write_rows,
                                                                           tmp_path):
    folder = tmp_path / 'bag'
    thinned(whole, write_rows, folder, set())
    report = json.loads((folder / 'recorder.json').read_text())
    report['unheard'] = {'/plan': 'cannot be heard'}
    report['topics']['/depth'] = {'written': 4, 'publishers': {}, 'stored_as_it_came': '16UC1'}
    (folder / 'recorder.json').write_text(json.dumps(report))
    notes = analyse(folder).notes
    assert '/plan: cannot be heard' in notes
    assert '/depth: 4 images were stored as they came: 16UC1' in notes
