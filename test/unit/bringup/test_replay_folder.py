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


@pytest.mark.parametrize('place', ['run/bag/x', 'run/bag/a/b', 'run/bag_2', 'run/bag_17'])
def test_an_output_in_a_bag_or_as_one_is_refused_and_the_run_untouched(tmp_path, place):
    (tmp_path / 'run' / 'bag').mkdir(parents=True)
    (tmp_path / 'run' / 'bag' / 'metadata.yaml').write_text('')
    before = sorted(tmp_path.rglob('*'))
    with pytest.raises(ConfigError, match=r'got (a place in the bag|the name of a bag)'):
        fill(tmp_path / place)
    assert sorted(tmp_path.rglob('*')) == before


def test_the_refusal_of_a_place_in_a_bag_can_fail(tmp_path):
    (tmp_path / 'run' / 'bag').mkdir(parents=True)
    for place in ('run/bag/x', 'run/again', 'bag', 'bag_2'):
        fill(tmp_path / place)
