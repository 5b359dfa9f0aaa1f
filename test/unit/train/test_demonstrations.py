"""What the simulated world writes down is what the samples assume."""

from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.core.errors import ConfigError
from reflex_ros.sim.cameras import CameraRig
from reflex_ros.sim.experts import follow
from reflex_ros.train import demonstrations
from reflex_ros.train.dataset import FRAME_TICKS, Demonstrations
from reflex_ros.train.demonstrations import generate, record_file


@pytest.fixture(scope='module', name='short')
def short_fixture(tmp_path_factory):
    """Two episodes of 1.6 s."""
    file = tmp_path_factory.mktemp('demos') / 'demo.npz'
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demonstrations, 'EPISODE_S', 1.6)
        try:
            record_file(11, 2, file)
        except ConfigError as error:
            pytest.skip(f'no off-screen rendering here: {error}')
    return Demonstrations.load([file])


def test_every_episode_has_a_frame_each_forty_milliseconds(short):
    assert list(np.unique(short.episode, return_counts=True)[1]) == [40, 40]
    same = np.diff(short.episode) == 0
    inside = same & (np.diff(short.segment) == 0)
    np.testing.assert_allclose(np.diff(short.tick)[inside], FRAME_TICKS)


def test_the_reference_path_leads_through_the_recorded_target(short):
    at = np.rint(short.tick).astype(int)
    whole = np.abs(short.tick - at) < 1e-6
    rows = np.flatnonzero(whole)
    assert len(rows) > 20
    expected = follow.reference(short.target[rows].astype(float))
    np.testing.assert_allclose(short.paths[short.segment[rows], at[rows]], expected, atol=1e-3)


def test_the_expert_closes_in_on_its_reference_despite_the_disturbance(short):
    below = np.floor(short.tick).astype(int)
    error = np.abs(short.command - short.paths[short.segment, below]).max(1)
    late = short.tick > 40
    assert np.median(error[late]) < 0.06


def test_frames_differ_even_where_nothing_moves(short):
    assert (short.images[1:] != short.images[:-1]).any((1, 2, 3)).all()


def test_a_seed_gives_the_same_episode_again(short, tmp_path, monkeypatch):
    monkeypatch.setattr(demonstrations, 'EPISODE_S', 1.6)
    record_file(11, 1, tmp_path / 'again.npz')
    again = Demonstrations.load([tmp_path / 'again.npz'])
    for name in ('command', 'measured', 'target'):
        np.testing.assert_array_equal(getattr(again, name), getattr(short, name)[:40])


def test_files_that_exist_are_not_made_again(tmp_path, monkeypatch):
    for first in (0, 50):
        (tmp_path / f'demo_{first:07d}.npz').write_bytes(b'kept')
    monkeypatch.setattr(demonstrations, 'get_context', None)
    files = generate(tmp_path, episodes=60, seed=0, workers=2)
    assert [file.read_bytes() for file in files] == [b'kept', b'kept']


def test_a_rig_is_used_for_all_episodes_of_a_file(tmp_path, monkeypatch):
    made = []

    def count(*args, **kwargs):
        made.append(CameraRig(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(demonstrations, 'EPISODE_S', 0.1)
    monkeypatch.setattr(demonstrations, 'CameraRig', count)
    try:
        record_file(3, 3, tmp_path / 'x.npz')
    except ConfigError as error:
        pytest.skip(f'no off-screen rendering here: {error}')
    assert len(made) == 1
