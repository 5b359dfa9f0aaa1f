"""A text file is written, or one line says why not."""

from __future__ import annotations

import pytest

from reflex_ros.core.errors import ConfigError
from reflex_ros.core.files import write_text


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
