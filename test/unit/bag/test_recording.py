from __future__ import annotations

import json

from reflex_ros.bag.read import BagReader
from reflex_ros.bag.recording import Recording
from reflex_ros.bag.run_folder import RECORDER_REPORT
from reflex_ros.bag.write import BagWriter


def recording(folder, topic, *, latched=()):
    writer = BagWriter(folder, [topic])
    made = Recording(writer, folder, {topic.name: topic.schema.type}, latched=latched)
    made.start()
    return made


def stamps(folder):
    with BagReader(folder) as bag:
        return [message.stamp_ns for message in bag.messages()]


def test_only_what_came_while_it_was_on_is_recorded(tmp_path, topic, ticks):
    made = recording(tmp_path / 'bag', topic)
    made.take(topic.name, *ticks[0])
    made.begin()
    made.take(topic.name, *ticks[1])
    made.is_on = False
    made.take(topic.name, *ticks[2])
    made.close()
    assert stamps(tmp_path / 'bag') == [ticks[1][0]]


def test_the_last_latched_message_before_the_start_is_recorded(tmp_path, topic, ticks):
    made = recording(tmp_path / 'bag', topic, latched=[topic.name])
    made.take(topic.name, *ticks[0])
    made.take(topic.name, *ticks[1])
    made.begin()
    made.take(topic.name, *ticks[2])
    made.close()
    assert stamps(tmp_path / 'bag') == [ticks[1][0], ticks[2][0]]


def test_the_report_counts_what_is_missing(tmp_path, topic, ticks):
    made = recording(tmp_path / 'bag', topic)
    made.begin()
    for index in (0, 1, 5, 6):
        made.take(topic.name, *ticks[index])
    made.close()
    report = json.loads((tmp_path / 'bag' / 'recorder.json').read_text())
    entry = report['topics']['/control_tick']
    assert (entry['received'], entry['written'], entry['dropped']) == (4, 4, 0)
    assert (entry['publishers']['']['missing'], entry['publishers']['']['gaps']) == (3, 1)
    assert report['error'] == ''


def test_closing_again_changes_nothing(tmp_path, topic, ticks):
    made = recording(tmp_path / 'bag', topic)
    made.begin()
    made.take(topic.name, *ticks[0])
    assert made.close() == made.close()


def test_a_report_that_cannot_be_written_is_an_error_and_no_crash(tmp_path, topic):
    made = recording(tmp_path / 'bag', topic)
    (tmp_path / 'bag' / RECORDER_REPORT).symlink_to('/dev/full')
    assert 'No space left' in made.close().error
