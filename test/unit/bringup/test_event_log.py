"""Events reach people even where no disk takes them."""

from __future__ import annotations

import json
from pathlib import Path

from reflex_ros.bringup.event_log import EventLog
from reflex_ros.core.clock import ManualClock, S


def test_an_event_is_printed_and_on_the_disk_at_once(tmp_path):
    lines, path = [], tmp_path / 'events.jsonl'
    log = EventLog(path, ManualClock(S), printer=lines.append)
    log.event('died', 'policy', text='process 7 died', pid=7, exit_code=-9)
    read = json.loads(path.read_text())
    assert (read['event'], read['node'], read['exit_code']) == ('died', 'policy', -9)
    assert lines == ['[  0.00 s] policy: process 7 died']
    log.close()


def test_a_full_disk_silences_the_file_and_not_the_supervisor():
    lines = []
    log = EventLog(Path('/dev/full'), ManualClock(S), printer=lines.append)
    log.event('stop', text='stopping')
    log.close()
    assert lines == ['[  0.00 s] stopping']
