"""Files are written, or one line says why not, before the work if asked."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from reflex_ros.core.errors import ConfigError
from reflex_ros.core.files import check_file, make_folder, write_file, write_text


def test_a_text_arrives_as_it_was_given(tmp_path):
    write_text(tmp_path / 'a.json', 'Δ 5 ms\n')
    assert (tmp_path / 'a.json').read_bytes() == 'Δ 5 ms\n'.encode()


@pytest.mark.parametrize(('name', 'why'), [
    ('no/such/folder/a.json', 'No such file or directory'), ('.', 'Is a directory'),
])
def test_a_file_that_cannot_be_written_is_one_line_with_its_name(tmp_path, name, why):
    with pytest.raises(ConfigError) as caught:
        write_text(tmp_path / name, '')
    text = str(caught.value)
    assert '\n' not in text
    assert text.startswith(f'file {tmp_path / name} cannot be written: got {why}, expected')


@pytest.mark.parametrize('name', ['bag_0.mcap', 'bag_0.db3', 'metadata.yaml', 'ledger.bin'])
def test_no_text_takes_the_place_of_a_recording(tmp_path, name):
    (tmp_path / name).write_bytes(b'recorded')
    with pytest.raises(ConfigError, match='so that no recording is overwritten'):
        write_text(tmp_path / name, 'a report')
    assert (tmp_path / name).read_bytes() == b'recorded'
    write_text(tmp_path / f'{name}.html', 'a report')


def test_what_can_be_written_is_let_through_and_a_check_leaves_nothing(tmp_path):
    make_folder(tmp_path / 'a' / 'b')
    make_folder(tmp_path / 'a' / 'b')
    check_file(tmp_path / 'a' / 'b' / 'c.png')
    assert [p.name for p in tmp_path.rglob('*')] == ['a', 'b']


@pytest.mark.parametrize('name', ['missing/c.png', '.', 'file/c.png'])
def test_a_file_that_could_not_be_written_is_refused_before_the_work(tmp_path, name):
    (tmp_path / 'file').write_text('')
    with pytest.raises(ConfigError, match='cannot be written: got') as caught:
        check_file(tmp_path / name)
    assert '\n' not in str(caught.value)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / 'file').write_text('')
    for name in ('file', 'file/below'):
        with pytest.raises(ConfigError, match=f'folder .*{name} cannot be written'):
            make_folder(tmp_path / name)


def test_a_failed_write_keeps_what_was_there_and_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / 'page.html'
    write_text(path, 'whole')
    path.chmod(0o640)

    def fill(file):
        file.write(b'ha')
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(ConfigError, match='got No space left on device'):
        write_file(path, fill)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [('page.html', 'whole')]
    write_text(path, 'new')
    assert path.read_text() == 'new' and path.stat().st_mode & 0o777 == 0o640


def test_an_interrupted_write_leaves_nothing(tmp_path):
    def fill(file):
        file.write(b'ha')
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / 'a.json', fill)
    assert not [*tmp_path.iterdir()]


def test_a_device_is_written_to_and_a_link_stays_one(tmp_path):
    write_text(Path(os.devnull), 'x')
    with pytest.raises(ConfigError, match='No space left'):
        write_text(Path('/dev/full'), 'x')
    (tmp_path / 'link').symlink_to(tmp_path / 'file')
    write_text(tmp_path / 'link', 'x')
    assert (tmp_path / 'link').is_symlink() and (tmp_path / 'file').read_text() == 'x'
