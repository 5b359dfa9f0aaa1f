"""The recorded run that tests and CI replay is whole, and its recorder lost nothing."""

from __future__ import annotations

import json
from pathlib import Path

from reflex_ros.bag.check import check_bag
from reflex_ros.bag.counts import NUMBERED, NumberLog, read_number
from reflex_ros.bag.read import BagReader

BAG = Path(__file__).parents[2] / 'data' / 'replay' / 'bag'


def test_no_message_of_the_shipped_bag_is_missing():
    assert check_bag(BAG).notes == []
    logs = {}
    with BagReader(BAG) as bag:
        for message in bag.messages(*(n for n, i in bag.topics.items()
                                      if i.type.startswith(NUMBERED))):
            publisher, number = read_number(message.type, message.data)
            logs.setdefault((message.topic, publisher), NumberLog()).add(number)
        assert all(info.qos for info in bag.topics.values())
    assert {key: log.missing for key, log in logs.items() if log.missing or log.restarts} == {}
    assert ('/stage_status', 'policy') in logs
    report = json.loads((BAG / 'recorder.json').read_text())
    assert report['error'] == ''
    for name, counts in report['topics'].items():
        assert counts['received'] == counts['written'] > 0, name
        assert counts['dropped'] == counts['unnumbered'] == 0, name
        assert all(log['missing'] == 0 for log in counts['publishers'].values()), name


def test_a_message_less_can_fail_the_last_test():
    log = NumberLog()
    for number in (4, 5, 7):
        log.add(number)
    assert log.missing == 1
