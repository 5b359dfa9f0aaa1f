"""A replay's run folder is whole under its name, or not there."""

from __future__ import annotations

import errno
import os

import pytest

from reflex_ros.bringup.replay_folder import new_output
from reflex_ros.core.errors import ConfigError


def fill(folder, error=None):
    with new_output(folder) as output:
        (output.path / 'bag').mkdir()
        assert not folder.exists()
        if error is not None:
            raise error


def test_what_is_done_stands_under_its_name_alone(tmp_path):
    fill(tmp_path / 'a' / 'b' / 'again')
    assert [p.name for p in (tmp_path / 'a' / 'b').iterdir()] == ['again']
    assert [p.name for p in (tmp_path / 'a' / 'b' / 'again').iterdir()] == ['bag']
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / 'a' / 'b' / 'again').stat().st_mode & 0o777 == 0o777 & ~mask


@pytest.mark.parametrize(('error', 'seen'), [
    (OSError(errno.ENOSPC, 'No space left on device'), ConfigError),
    (KeyboardInterrupt(), KeyboardInterrupt), (ConfigError('of the bag'), ConfigError),
    (OSError(errno.ENOENT, 'gone', '/elsewhere'), FileNotFoundError),
])
def test_what_ends_early_leaves_nothing_and_may_be_tried_again(tmp_path, error, seen):
    with pytest.raises(seen) as caught:
        fill(tmp_path / 'a' / 'again', error)
    assert not [*tmp_path.iterdir()], 'not even the folders that were made for it'
    if error.args and error.args[0] == errno.ENOSPC:
        assert 'cannot be written: got No space left on device' in str(caught.value)
    fill(tmp_path / 'a' / 'again')


def test_a_folder_that_exists_is_refused_and_untouched(tmp_path):
    (tmp_path / 'mine').write_text('x')
    with pytest.raises(ConfigError, match='got File exists'):
        fill(tmp_path / 'mine')
    assert (tmp_path / 'mine').read_text() == 'x'
    with pytest.raises(ConfigError, match='cannot be made'):
        fill(tmp_path / 'mine' / 'below')
