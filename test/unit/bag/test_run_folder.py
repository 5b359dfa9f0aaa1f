from __future__ import annotations

import pytest

from reflex_ros.bag.run_folder import RunFolder
from reflex_ros.core.clock import ManualClock, S
from reflex_ros.core.errors import ConfigError


def test_a_folder_is_named_after_its_start_and_mode(tmp_path):
    clock = ManualClock(stamp_ns=1_700_000_000 * S)
    made = [RunFolder.create(tmp_path / 'runs', 'sync', clock).path.name for _ in range(3)]
    assert made == ['20231114T221320Z-sync', '20231114T221320Z-sync-2', '20231114T221320Z-sync-3']


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / 'file').write_text('')
    with pytest.raises(ConfigError, match=r'run folder .*file.* cannot be made: got .*, expected'):
        RunFolder.create(tmp_path / 'file', 'sync', ManualClock(stamp_ns=S))


def test_a_bag_is_never_written_twice(tmp_path):
    run = RunFolder(tmp_path)
    assert (run.bags, run.next_bag) == ((), tmp_path / 'bag')
    run.next_bag.mkdir()
    run.next_bag.mkdir()
    assert run.bags == (tmp_path / 'bag', tmp_path / 'bag_2')
    assert run.next_bag == tmp_path / 'bag_3'
    assert not run.is_complete


def test_damaged_bags_are_not_counted(tmp_path):
    (tmp_path / 'bag.damaged').mkdir()
    assert RunFolder(tmp_path).bags == ()
    assert RunFolder(tmp_path).is_complete
