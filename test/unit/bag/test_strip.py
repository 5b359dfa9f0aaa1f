from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from reflex_ros.bag.strip import Strip
from reflex_ros.core.clock import MS, S


def film(folder, seconds, **options):
    strip = Strip(folder, **options)
    for stamp_ns in range(0, seconds * S, 40 * MS):
        if strip.wants(stamp_ns):
            strip.add(stamp_ns, np.full((4, 6, 3), stamp_ns // S % 256, np.uint8))
    return sorted(int(path.stem) for path in folder.glob('*.png'))


def test_a_short_run_has_a_frame_a_second(tmp_path):
    assert film(tmp_path, 8) == [i * S for i in range(8)]


def test_a_long_run_has_few_frames_over_its_whole_length(tmp_path):
    stamps = film(tmp_path, 200)
    assert 6 <= len(stamps) <= 12
    assert stamps[0] == 0
    assert stamps[-1] > 160 * S
    assert len(set(np.diff(stamps))) == 1


def test_frames_keep_their_pixels(tmp_path):
    film(tmp_path, 3)
    with Image.open(tmp_path / f'{2 * S}.png') as image:
        assert np.asarray(image).tolist() == np.full((4, 6, 3), 2).tolist()


def test_a_frame_that_finds_no_room_leaves_no_file_and_is_not_tried_at_once(tmp_path, monkeypatch):
    def full(self, path):
        path.write_bytes(b'half')
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(Image.Image, 'save', full)
    strip = Strip(tmp_path)
    with pytest.raises(OSError, match='No space'):
        strip.add(S, np.zeros((4, 6, 3), np.uint8))
    assert not list(tmp_path.iterdir())
    assert not strip.wants(S + 40 * MS) and strip.wants(2 * S)
