from __future__ import annotations

import pytest

from reflex_ros.bag.counts import NumberLog, TopicCounts, read_number

KIND = 'reflex_msgs/msg/ControlTick'


def log_of(*numbers):
    log = NumberLog()
    for number in numbers:
        log.add(number)
    return log


def test_numbers_are_read_from_the_bytes(log, encoder):
    assert [read_number(KIND, encoder.encode(t)) for t in log.ticks] == [
        ('', tick.number) for tick in log.ticks
    ]


@pytest.mark.parametrize('index', range(3))
def test_numbers_do_not_depend_on_the_frame_id(log, encoder, index):
    truth = log.truths[index]
    assert read_number('reflex_msgs/msg/SimTruth', encoder.encode(truth)) == ('', truth.number)


def test_a_status_names_its_publisher():
    header = bytes([0, 1, 0, 0]) + bytes(8) + (1).to_bytes(4, 'little') + bytes(4)
    name = b'policy\0'
    body = (77).to_bytes(8, 'little') + (1).to_bytes(2, 'little') + bytes(2)
    data = header + body + len(name).to_bytes(4, 'little') + name
    assert read_number('reflex_msgs/msg/StageStatus', data) == ('policy', 77)


def test_a_complete_count_has_no_gap():
    log = log_of(4, 5, 6)
    assert (log.first, log.last, log.messages, log.missing, log.gaps) == (4, 6, 3, 0, 0)


def test_skipped_numbers_are_missing():
    log = log_of(1, 2, 5, 6, 9)
    assert (log.missing, log.gaps, log.restarts) == (4, 2, 0)


def test_a_restarted_publisher_is_no_gap():
    log = log_of(7, 8, 1, 2)
    assert (log.missing, log.restarts, log.last) == (0, 1, 2)


def test_what_a_restarted_publisher_lost_is_missing():
    assert log_of(7, 8, 3).missing == 2


def test_types_without_a_counter_are_counted_only():
    counts = TopicCounts('sensor_msgs/msg/JointState')
    counts.add(b'')
    assert counts.report() == {
        'type': 'sensor_msgs/msg/JointState', 'received': 1, 'unnumbered': 0, 'publishers': {}
    }
