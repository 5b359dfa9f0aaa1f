"""Every policy of a publisher is in the bag, and one that cannot be heard is refused."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip('reflex_msgs.msg._plan', reason='reflex_msgs is not built: run make setup')
import yaml
from rclpy.duration import Duration
from rclpy.qos import (
    QoSDurabilityPolicy,
    QoSHistoryPolicy,
    QoSLivelinessPolicy,
    QoSProfile,
    QoSReliabilityPolicy,
)

from reflex_ros.bag.files import BagFiles
from reflex_ros.bag.metadata import METADATA, ROOT, BagTopic
from reflex_ros.bag.read import BagReader
from reflex_ros.bag.schema import find_schema
from reflex_ros.core.errors import ConfigError
from reflex_ros.ros.qos import TOPICS, Profile, image_topic
from reflex_ros.ros.recording_qos import (
    check_compatible,
    check_publishers,
    offered_now,
    profile_of,
    reader_qos,
)

pytestmark = pytest.mark.ros

INFINITE = {'sec': 9_223_372_036, 'nsec': 854_775_807}
USUAL = {
    'history': 1, 'depth': 5, 'reliability': 1, 'durability': 2, 'deadline': INFINITE,
    'lifespan': INFINITE, 'liveliness': 1, 'liveliness_lease_duration': INFINITE,
    'avoid_ros_namespace_conventions': False,
}
"""What rosbag2 stores of ``QoSProfile(depth=5)``, as numbers of rmw."""
POLICIES = {
    'history': ({'history': QoSHistoryPolicy.KEEP_ALL}, {'history': 2}),
    'depth': ({'depth': 7}, {'depth': 7}),
    'reliability': ({'reliability': QoSReliabilityPolicy.BEST_EFFORT}, {'reliability': 2}),
    'durability': ({'durability': QoSDurabilityPolicy.TRANSIENT_LOCAL}, {'durability': 1}),
    'deadline': ({'deadline': Duration(nanoseconds=40_000_000)},
                 {'deadline': {'sec': 0, 'nsec': 40_000_000}}),
    'lifespan': ({'lifespan': Duration(seconds=3, nanoseconds=5)},
                 {'lifespan': {'sec': 3, 'nsec': 5}}),
    'liveliness': ({'liveliness': QoSLivelinessPolicy.MANUAL_BY_TOPIC}, {'liveliness': 3}),
    'lease': ({'liveliness_lease_duration': Duration(seconds=2)},
              {'liveliness_lease_duration': {'sec': 2, 'nsec': 0}}),
    'names': ({'avoid_ros_namespace_conventions': True},
              {'avoid_ros_namespace_conventions': True}),
}


@pytest.mark.parametrize('storage', ['mcap', 'sqlite3'])
@pytest.mark.parametrize('policy', POLICIES)
def test_each_policy_of_a_publisher_is_stored_and_restored(tmp_path, policy, storage):
    given, expected = POLICIES[policy]
    profile = profile_of(QoSProfile(**{'depth': 5, **given}), QoSProfile(depth=9))
    topic = BagTopic('/header', find_schema('std_msgs/msg/Header'), (profile,))
    files = BagFiles(tmp_path / 'bag', [topic], storage=storage)
    files.open()
    files.close()
    loaded = yaml.safe_load((tmp_path / 'bag' / METADATA).read_text())[ROOT]
    (entry,) = loaded['topics_with_message_count']
    text = entry['topic_metadata']['offered_qos_profiles']
    assert isinstance(text, str)  # Humble reads no other form
    assert yaml.safe_load(text) == [{**USUAL, **expected}]
    with BagReader(tmp_path / 'bag') as bag:
        assert bag.topics['/header'].qos == (profile,)


def test_what_discovery_does_not_tell_is_the_tables():
    told = QoSProfile(depth=0, history=QoSHistoryPolicy.KEEP_LAST)
    untold = SimpleNamespace(**{name: getattr(told, name) for name in (
        'reliability', 'durability', 'deadline', 'lifespan', 'liveliness',
        'liveliness_lease_duration', 'avoid_ros_namespace_conventions')},
        history=QoSHistoryPolicy.UNKNOWN, depth=0)
    assert profile_of(untold, QoSProfile(depth=9)).depth == 9


def test_what_two_publishers_offer_is_seen_on_the_wire(ros):
    node = ros.create_node('seer')
    camera = image_topic('camera/main/image_raw')
    slow = QoSProfile(depth=2, reliability=QoSReliabilityPolicy.RELIABLE,
                      deadline=Duration(seconds=1), lifespan=Duration(seconds=2))
    publishers = [node.create_publisher(camera.message, camera.name, profile)
                  for profile in (camera.qos, slow, slow)]
    found = offered_now(node, [camera], {camera.name: ('/a', '/b')})
    assert len(publishers) == 3
    assert set(found) == {'/a', '/b'}
    assert {(q.reliability.name, q.deadline.sec, q.lifespan.sec) for q in found['/a']} == {
        ('BEST_EFFORT', 9_223_372_036, 9_223_372_036), ('RELIABLE', 1, 2)}


# ---- before the start --------------------------------------------------------------------------

ALL = [*TOPICS, image_topic('camera/main/image_raw'),
       image_topic('camera/main/image_raw/compressed')]


@pytest.mark.parametrize('entry', ALL, ids=lambda entry: entry.name)
def test_a_weaker_publisher_of_any_topic_is_an_error_and_the_usual_one_is_not(ros, entry):
    """Best effort where the recorder asks for reliable, volatile where it asks for latched."""
    asked = reader_qos(entry)
    check_compatible(entry, entry.qos, asked, 'usual')
    weaker = entry.qos
    weaker.reliability = QoSReliabilityPolicy.BEST_EFFORT
    if entry.profile is Profile.SENSOR:
        check_compatible(entry, weaker, asked, 'driver')  # it asks for no more
        asked.reliability = QoSReliabilityPolicy.RELIABLE
    with pytest.raises(ConfigError, match='got a best-effort.*expected reliable'):
        check_compatible(entry, weaker, asked, 'driver')
    volatile = entry.qos
    volatile.durability = QoSDurabilityPolicy.VOLATILE
    if entry.profile is Profile.LATCHED:
        with pytest.raises(ConfigError, match='expected reliable, latched'):
            check_compatible(entry, volatile, asked, 'driver')
    else:
        check_compatible(entry, volatile, reader_qos(entry), 'driver')
        asked.durability = QoSDurabilityPolicy.TRANSIENT_LOCAL
        with pytest.raises(ConfigError, match='latched'):
            check_compatible(entry, volatile, asked, 'driver')


@pytest.mark.parametrize('entry', [e for e in ALL if e.profile is not Profile.SENSOR],
                         ids=lambda entry: entry.name)
def test_a_publisher_in_the_graph_that_cannot_be_heard_is_found(ros, entry):
    node = ros.create_node('careless')
    weaker = entry.qos
    weaker.reliability = QoSReliabilityPolicy.BEST_EFFORT
    good = node.create_publisher(entry.message, entry.name, entry.qos)
    check_publishers(node, [entry])
    bad = node.create_publisher(entry.message, entry.name, weaker)
    with pytest.raises(ConfigError, match=rf'{entry.name} cannot be recorded.*\(careless\)'):
        check_publishers(node, [entry])
    node.destroy_publisher(bad)
    check_publishers(node, [entry])
    node.destroy_publisher(good)
