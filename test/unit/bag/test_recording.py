from __future__ import annotations

import json

from reflex_ros.bag.metadata import offered_qos
from reflex_ros.bag.read import BagReader
from reflex_ros.bag.recording import Recording
from reflex_ros.bag.room import Room
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


def test_a_report_that_cannot_be_written_is_an_error_and_no_crash(tmp_path, topic, monkeypatch):
    made = recording(tmp_path / 'bag', topic)

    def refuse(room, text):
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr('reflex_ros.bag.recording.Room.fill', refuse)
    monkeypatch.setattr('reflex_ros.bag.files.Room', type('Other', (Room,), {'fill': Room.fill}))
    assert 'No space left' in made.close().error


def test_a_message_without_a_number_is_recorded_all_the_same(tmp_path, topic):
    made = recording(tmp_path / 'bag', topic)
    made.begin()
    for stamp_ns, data in enumerate((b'', b'\0', bytes(12), b'\0\1\0\0' + b'\xff' * 30), 1):
        made.take(topic.name, stamp_ns, data)
    made.close()
    entry = json.loads((tmp_path / 'bag' / 'recorder.json').read_text())['topics'][topic.name]
    assert (entry['received'], entry['written'], entry['unnumbered']) == (4, 4, 4)
    assert stamps(tmp_path / 'bag') == [1, 2, 3, 4]


def test_profiles_that_were_seen_at_the_start_are_those_of_the_bag(tmp_path, topic, ticks):
    made = recording(tmp_path / 'bag', topic)
    seen = offered_qos(is_reliable=False, is_latched=False, depth=3, deadline_ns=40_000_000)
    made.begin({topic.name: (seen,)})
    made.take(topic.name, *ticks[0])
    made.close()
    with BagReader(tmp_path / 'bag') as bag:
        assert bag.topics[topic.name].qos == (seen,)
        assert len(list(bag.messages())) == 1
