from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.core.errors import ConfigError
from reflex_ros.sim.kinematics import LOWER, UPPER
from reflex_ros.train.dataset import Demonstrations
from reflex_ros.train.stills import stills


@pytest.fixture(name='shown')
def shown_fixture(tmp_path, demonstrations, write_demonstrations):
    source = write_demonstrations(demonstrations, tmp_path / 'demo.npz')
    job, = stills(tmp_path, 40, cameras=('main', 'wrist'), seed=3, poses=(source,), colours=True)
    try:
        assert job.record() == 0
    except ConfigError as error:
        pytest.skip(f'no off-screen rendering here: {error}')
    return Demonstrations.load([job.file])


def test_stills_show_objects_in_new_places_and_are_for_the_towers_alone(shown):
    assert shown.images.shape == (40, 2, 64, 64, 3)
    assert not shown.usable.any()
    assert len(np.unique(shown.scene[:, 3])) == 40
    assert (shown.measured[:, :6] >= np.float32(LOWER)).all()
    assert (shown.measured[:, :6] <= np.float32(UPPER)).all()
    is_shown = shown.scene[:, 2] > 0
    assert 8 < is_shown.sum() < 32
    assert (shown.scene[~is_shown, 2] < -0.4).all()


def test_files_are_split_and_numbered(tmp_path):
    jobs = stills(tmp_path, 4500, cameras=('main',), seed=10, poses=(), colours=False)
    assert [job.count for job in jobs] == [2000, 2000, 500]
    assert len({job.file for job in jobs}) == 3
