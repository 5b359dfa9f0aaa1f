"""Numbers that no message of the suite has: the message is left out, counted and named."""

from __future__ import annotations

import json
import math
import re
import shutil
from dataclasses import replace

import pytest
import yaml

from reflex_ros.analysis.figures import analyse
from reflex_ros.bag import values
from reflex_ros.bag.encode import Encoder
from reflex_ros.bag.read import BagReader
from reflex_ros.bag.schema import typestore_of
from reflex_ros.cli.main import main
from reflex_ros.core.errors import ConfigError, LayoutError
from reflex_ros.report.page import page
from reflex_ros.report.run_data import load_run
from reflex_ros.report.summary import write_summary
from reflex_ros.stages.replay_source import read_recorded
from reflex_ros.study.cause_scene import write_messages

DAMAGED = 2
CASES = (
    ('/control_tick', {'chunk_id': 2**63 + 5}),
    ('/control_tick', {'epoch': 2**64 - 1}),
    ('/control_tick', {'index': 2**40}),
    ('/control_tick', {'due_ns': -(2**63)}),
    ('/control_tick', {'observation_age_ns': 2**63 - 1}),
    ('/chunk_trace', {'seam_position': math.nan}),
    ('/chunk_trace', {'seam_velocity': math.inf}),
    ('/chunk_trace', {'covered_ns': -(10**15)}),
    ('/chunk_trace', {'chunk_id': 2**63}),
    ('/chunk_trace', {'accepted_ns': -(2**63)}),
)
NAMES = [f'{topic[1:]}.{next(iter(change))}' for topic, change in CASES]


@pytest.fixture(scope='module')
def made(stalled):
    return stalled, Encoder(), stalled.messages(images=False, is_brief=True)


def damaged(made, folder, topic, change, *, first=1, count=DAMAGED):
    """Write a run whose messages of a topic have impossible numbers from ``first`` on."""
    scene, encoder, (types, rows) = made
    log = scene.run.log.ticks if topic == '/control_tick' else scene.run.log.traces
    at = [i for i, row in enumerate(rows) if row[0] == topic]
    rows = list(rows)
    for number in range(first, first + count):
        where = rows[at[number]]
        rows[at[number]] = (topic, where[1], encoder.encode(replace(log[number], **change)))
    write_messages(folder / 'bag', types, rows)
    return folder


@pytest.mark.parametrize(('topic', 'change'), CASES, ids=NAMES)
def test_it_is_refused_by_name(made, topic, change):
    scene, encoder, (types, _) = made
    kind, decode, first = {
        '/control_tick': (types['/control_tick'], values.control_tick, scene.run.log.ticks[50]),
        '/chunk_trace': (types['/chunk_trace'], values.chunk_trace, scene.run.log.traces[1]),
    }[topic]
    store = typestore_of([(kind.type, kind.text)])
    whole = decode(store.deserialize_cdr(encoder.encode(first), kind.type))
    assert whole.chunk_id == first.chunk_id
    torn = store.deserialize_cdr(encoder.encode(replace(first, **change)), kind.type)
    with pytest.raises(LayoutError, match=f'got {next(iter(change))} '):
        decode(torn)


@pytest.mark.parametrize(('topic', 'change'), [
    CASES[0], pytest.param(*CASES[2], marks=pytest.mark.soak), CASES[5]],
    ids=[NAMES[0], NAMES[2], NAMES[5]])
def test_it_is_left_out_of_report_page_summary_and_replay(made, tmp_path, topic, change):
    folder = damaged(made, tmp_path / 'run', topic, change)
    name = next(iter(change))
    require_named(folder, topic, name)


def require_named(folder, topic, name):
    found = analyse(folder)
    said = [note for note in found.notes if note.startswith(topic)]
    assert any(re.search(f'got {name} ', note) for note in said), found.notes
    assert any(f'{DAMAGED} of ' in note for note in said), found.notes
    text = page(found)
    report = re.search(r'id="report"[^>]*>(.*?)</script>', text, re.DOTALL)
    assert f'got {name} ' in text
    if report:
        json.loads(report[1])
    for left_out in (load_run(folder).left_out, write_summary(folder)['left_out'],
                     read_recorded(folder / 'bag').notes):
        assert any(f'{topic}: {DAMAGED} messages are left out' in text and f'got {name} ' in text
                   for text in left_out), left_out


def test_what_is_left_out_can_fail(made, tmp_path, monkeypatch):
    folder = damaged(made, tmp_path / 'run', '/control_tick', {'chunk_id': 2**63 + 5})
    with monkeypatch.context() as broken:
        broken.setattr(values, '_require', lambda *_: None)
        with pytest.raises(OverflowError):
            require_named(folder, '/control_tick', 'chunk_id')
    whole = damaged(made, tmp_path / 'whole', '/control_tick', {})
    assert load_run(whole).left_out == ()
    assert not any('left out' in n or 'decoded' in n for n in analyse(whole).notes)
    with pytest.raises(AssertionError):
        require_named(whole, '/control_tick', 'chunk_id')


def test_negative_coverage_does_not_raise_the_uncovered_share(made, tmp_path):
    at = {'first': 8, 'count': 8}
    whole = analyse(damaged(made, tmp_path / 'a', '/chunk_trace', {}, **at))
    torn = analyse(damaged(made, tmp_path / 'b', '/chunk_trace', {'covered_ns': -1}, **at))
    before, after = (a.figures['uncovered_share'].value for a in (whole, torn))
    assert after == pytest.approx(before, abs=0.05)
    assert torn.figures['uncovered_share'].n < whole.figures['uncovered_share'].n


def test_a_run_of_which_nothing_is_left_is_refused(made, tmp_path):
    count = len(made[0].run.log.ticks)
    folder = damaged(made, tmp_path / 'run', '/control_tick', {'index': 2**40}, first=0,
                     count=count)
    with pytest.raises(ConfigError, match='got index'):
        load_run(folder)
    assert main(['report', str(folder)]) == 2


def spoil_counts(bag, topics, count):
    path = bag / 'metadata.yaml'
    data = yaml.safe_load(path.read_text())
    entries = data['rosbag2_bagfile_information']['topics_with_message_count']
    for entry in entries:
        if re.search(topics, entry['topic_metadata']['name']):
            entry['message_count'] = count
    path.write_text(yaml.safe_dump(data))


@pytest.mark.parametrize('count', [-1, 0])
def test_counts_in_the_metadata_that_cannot_be_true_cost_nothing(stalled_bag, tmp_path, count):
    bag = shutil.copytree(stalled_bag, tmp_path / 'run' / 'bag')
    with BagReader(bag) as reader:
        before = {name: info.messages for name, info in reader.topics.items()}
    assert before['/camera/main/image_raw'] > 12
    spoil_counts(bag, '', count)
    with BagReader(bag) as reader:
        assert {name: info.messages for name, info in reader.topics.items()} == before
    assert 6 <= len(load_run(tmp_path / 'run').frames) <= 12
    assert len(read_recorded(bag).ticks) == before['/control_tick']


def test_counts_that_cannot_be_true_can_fail(stalled_bag, tmp_path, monkeypatch):
    bag = shutil.copytree(stalled_bag, tmp_path / 'run' / 'bag')
    spoil_counts(bag, '', 0)
    monkeypatch.setattr(BagReader, '_counts', lambda self: {
        c.topic: c.msgcount for c in self._reader.connections})
    with pytest.raises(ConfigError, match='no control_tick'):
        read_recorded(bag)
