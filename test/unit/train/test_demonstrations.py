"""What the simulated world writes down is what the samples assume."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from reflex_ros.core.errors import ConfigError
from reflex_ros.sim.experts import follow
from reflex_ros.sim.looks import BALL_SHARES, CUBE_SHARES, UNSEEN_BALLS, UNSEEN_CUBES, Look
from reflex_ros.train import demonstrations
from reflex_ros.train.dataset import Demonstrations
from reflex_ros.train.demonstrations import generate, plan
from reflex_ros.train.disturbance import Disturbance
from reflex_ros.train.recording import FRAME_TICKS, PATH_TICKS, SURPRISE_TICKS, EpisodeRows, cut


def recorded(folder, task, *, seed, episodes, cameras=('main',), colours=False):
    batch, = plan(folder, task, cameras=cameras, episodes=episodes, seed=seed, colours=colours)
    try:
        batch.record()
    except ConfigError as error:
        pytest.skip(f'no off-screen rendering here: {error}')
    return Demonstrations.load([batch.file])


@pytest.fixture(scope='module', name='short')
def short_fixture(tmp_path_factory):
    """Two episodes of 1.6 s."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demonstrations, 'FOLLOW_S', 1.6)
        return recorded(tmp_path_factory.mktemp('demos'), 'jump', seed=11, episodes=2)


@pytest.fixture(scope='module', name='shoved')
def shoved_fixture(tmp_path_factory):
    """One episode of a cube that is shoved away, with both cameras."""
    folder = tmp_path_factory.mktemp('demos')
    return recorded(folder, 'recovery', seed=3, episodes=1, cameras=('main', 'wrist'),
                    colours=True)  # fmt: skip


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
    expected = follow.reference(short.scene[rows, :3].astype(float))
    path = short.paths[short.segment[rows], at[rows], :6]
    np.testing.assert_allclose(path, expected, atol=1e-3)


def test_the_expert_closes_in_on_its_reference_despite_the_disturbance(short):
    below = np.floor(short.tick).astype(int)
    error = np.abs(short.command - short.paths[short.segment, below]).max(1)
    early, late = short.tick < 3, short.tick > 40
    assert np.median(error[late]) < 0.3 * error[early].max()


def test_frames_differ_even_where_nothing_moves(short):
    assert (short.images[1:] != short.images[:-1]).any((1, 2, 3, 4)).all()


def test_a_seed_gives_the_same_episode_again(short, tmp_path, monkeypatch):
    monkeypatch.setattr(demonstrations, 'FOLLOW_S', 1.6)
    again = recorded(tmp_path, 'jump', seed=11, episodes=1)
    for name in ('command', 'measured', 'scene', 'images'):
        np.testing.assert_array_equal(getattr(again, name), getattr(short, name)[:40])


def test_the_cube_ends_in_the_bin_and_the_fingers_close_and_open_on_the_way(shoved):
    bin_at = np.array([0.28, -0.25])
    assert np.abs(shoved.scene[-1, 3:5] - bin_at).max() < 0.06
    assert set(np.unique(shoved.paths[0, :, 6])) == {np.float32(0.0), np.float32(0.07)}


def test_the_arm_ends_on_its_clean_path_although_it_was_disturbed(shoved):
    path = shoved.paths[shoved.segment, shoved.tick.astype(int)]
    off = np.abs(shoved.command - path)[:, :6].max(1)
    assert off.max() > 0.005
    assert off[-1] < 0.03


def test_frames_just_before_a_shove_are_not_usable(shoved):
    moved = np.linalg.norm(np.diff(shoved.scene[:, 3:5], axis=0), axis=1)
    shove = int(np.argmax(moved > 0.045))
    assert moved[shove] > 0.045
    before = shoved.usable[shove - SURPRISE_TICKS // FRAME_TICKS + 2 : shove]
    assert not before.any()
    assert shoved.usable[shove + 2 :].any()


def test_both_cameras_are_recorded(shoved):
    assert shoved.images.shape[1:] == (2, 64, 64, 3)
    assert (shoved.images[:, 0] != shoved.images[:, 1]).any()


def test_a_stream_is_cut_into_overlapping_paths_and_its_end_held():
    stream = [np.full(7, float(n)) for n in range(500)]
    first, second = cut(stream)
    assert first.shape == second.shape == (PATH_TICKS, 7)
    assert first[-1, 0] == PATH_TICKS - 1
    assert second[0, 0] == 320
    assert second[-1, 0] == 499


def test_a_surprise_takes_the_frames_before_it_and_none_after():
    recording = demonstrations.Recording()
    rows = EpisodeRows(recording, rig=None, cameras=(), seed=0, intent=0, look=Look())
    for k in range(0, 200, 2):
        row = tuple(np.float64(k) for _ in demonstrations.Recording().columns)
        rows.rows.append(row)
        rows.ticks.append(k)
    rows.finish([], [100])
    usable = np.array(recording.columns['usable'])
    assert list(2 * np.flatnonzero(~usable)) == list(range(60, 101, 2))


def test_nothing_disturbs_the_arm_while_fingers_and_object_touch():
    rng = np.random.default_rng(0)
    disturbance, clean = Disturbance(rng), np.zeros(7)
    for _ in range(40):
        disturbance.apply(clean, 'hover')
    sent = [disturbance.apply(clean, 'close')[0][:6] for _ in range(40)]
    assert np.abs(sent[0]).max() > 0
    assert np.abs(sent[-1]).max() < 1e-5


def test_colours_that_are_held_out_are_never_drawn():
    rng = np.random.default_rng(0)
    looks = [Look.draw(rng) for _ in range(300)]
    assert {look.cube for look in looks} == set(CUBE_SHARES)
    assert {look.ball for look in looks} == set(BALL_SHARES)
    assert not set(CUBE_SHARES) & set(UNSEEN_CUBES)
    assert not set(BALL_SHARES) & set(UNSEEN_BALLS)
    assert all(Look.of(look.number) == look for look in looks)


def test_files_that_exist_are_not_made_again(tmp_path, monkeypatch):
    batches = plan(tmp_path, 'jump', cameras=('main',), episodes=30, seed=0)
    for batch in batches:
        batch.file.write_bytes(b'kept')
    monkeypatch.setattr(demonstrations, 'get_context', None)
    files = generate(batches, workers=2)
    assert [file.read_bytes() for file in files] == [b'kept', b'kept']


def test_an_episode_in_which_the_expert_fails_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(demonstrations, 'LONGEST_S', {'drawer': 0.2})
    batch, = plan(tmp_path, 'drawer', cameras=(), episodes=1, seed=0)
    studio = demonstrations.Studio('drawer', ())
    recording = demonstrations.Recording()
    studio.rig = SimpleNamespace(paint=lambda *_: None)
    monkeypatch.setattr(EpisodeRows, 'add', lambda self, *args, **kwargs: None)
    assert not studio.record(batch.seed, recording)
    assert not recording.paths


class Holding:
    """A rollout that never leaves the first state."""

    def __init__(self):
        self.home = None

    def see(self, tick, images, state):
        assert set(images) == {'main'}
        self.home = state if self.home is None else self.home

    def command(self, tick):
        return self.home


@pytest.mark.parametrize('task', ['drawer', 'jump'])
def test_practice_is_labelled_with_what_the_expert_would_do_instead(task, monkeypatch):
    monkeypatch.setattr(demonstrations, 'FOLLOW_S', 0.4)
    monkeypatch.setattr(demonstrations, 'PRACTICE_S', {'drawer': 0.4})
    studio = demonstrations.Studio(task, ('main',))
    studio.world.reset(7)
    black = SimpleNamespace(render=lambda *_: np.zeros((64, 64, 3), np.uint8))
    recording = demonstrations.Recording()
    rows = EpisodeRows(recording, black, ('main',), seed=7, intent=0, look=Look())
    demonstrations.record_practice(studio, Holding(), rows)
    usable, command = np.array(recording.columns['usable']), recording.columns['command']
    assert usable.sum() == (10 if task == 'jump' else 5)
    for row in np.flatnonzero(usable):
        path = recording.paths[recording.columns['segment'][row]]
        tick = int(recording.columns['tick'][row])
        assert np.abs(path[tick + 50, :6] - command[row][:6]).max() > 0.1
        assert task == 'jump' or np.array_equal(path[0], command[row])
