"""The table of topics agrees with the documentation and gives the profiles it promises."""

from __future__ import annotations

import re

import pytest

pytest.importorskip('reflex_msgs.msg._plan', reason='reflex_msgs is not built: run make setup')
from rclpy.qos import (
    QoSCompatibility,
    QoSDurabilityPolicy,
    QoSReliabilityPolicy,
    qos_check_compatible,
)

from reflex_ros.ros import qos
from reflex_ros.ros.qos import TOPICS, Profile

pytestmark = pytest.mark.ros


def rows_of(root, heading):
    """Return the cells of the first table under a heading of the document."""
    text = (root / 'docs' / 'messages.md').read_text(encoding='utf-8')
    section = text.split(f'## {heading}\n')[1]
    lines = [line for line in section.splitlines() if line.startswith('| `')]
    return [[cell.strip(' `') for cell in line.strip('|').split('|')] for line in lines]


def test_the_document_lists_every_topic(root):
    listed = [row for row in rows_of(root, 'Topics') if 'camera/' not in row[0]]
    listed = [row for row in listed if row[0] not in qos.SERVICES]
    expected = [[t.name, t.type, t.profile.value, ', '.join(t.publishers)] for t in TOPICS]
    assert listed == expected


def test_the_document_lists_every_service(root):
    listed = {row[0]: row[1] for row in rows_of(root, 'Services of the bridge')}
    assert listed == qos.SERVICES


def test_the_document_tells_each_profile(root):
    text = (root / 'docs' / 'messages.md').read_text(encoding='utf-8')
    for profile in Profile:
        made = qos.qos_profile(profile)
        reliability = made.reliability.name.lower().replace('_', ' ')
        durability = made.durability.name.lower().replace('_', ' ')
        row = rf'\| {profile.value} \| {reliability} \| {durability} \| {made.depth} \|'
        assert re.search(row, text), row


@pytest.mark.parametrize('entry', TOPICS, ids=lambda entry: entry.name)
def test_every_topic_has_a_type_and_agrees_with_itself(entry):
    assert entry.message().__class__.__name__ == entry.type.rsplit('/', 1)[1]
    level, _ = qos_check_compatible(entry.qos, entry.qos)
    assert level == QoSCompatibility.OK


def test_only_plan_and_task_reach_late_joiners():
    latched = {
        entry.name
        for entry in TOPICS
        if entry.qos.durability == QoSDurabilityPolicy.TRANSIENT_LOCAL
    }
    assert latched == {'plan', 'task'}


def test_nothing_that_is_counted_may_be_lost():
    for name in ('control_tick', 'chunk_trace', 'stall_event', 'stage_status'):
        made = qos.topic(name).qos
        assert (made.reliability, made.depth) == (QoSReliabilityPolicy.RELIABLE, 100)


def test_topics_are_relative_but_for_the_two_shared_ones():
    absolute = [entry.name for entry in TOPICS if entry.name.startswith('/')]
    assert absolute == ['/diagnostics', '/clock']


def test_an_image_topic_has_the_type_of_its_name():
    assert qos.image_topic('camera/main/image_raw').type == 'sensor_msgs/msg/Image'
    compressed = qos.image_topic('camera/main/image_raw/compressed')
    assert compressed.type == 'sensor_msgs/msg/CompressedImage'
    assert compressed.qos.reliability == QoSReliabilityPolicy.BEST_EFFORT


def test_an_unknown_topic_is_an_error():
    with pytest.raises(KeyError):
        qos.topic('plans')
