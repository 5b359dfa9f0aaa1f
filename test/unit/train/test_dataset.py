from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.core.errors import ConfigError
from reflex_ros.sim.experts import follow
from reflex_ros.train.dataset import Demonstrations, Sampler, View
from reflex_ros.train.labels import references_at


@pytest.fixture(name='rng')
def rng_fixture():
    return np.random.default_rng(5)


def test_a_window_never_reaches_into_another_episode(demonstrations, rng):
    batch = Sampler(demonstrations).draw(500, rng)
    newest = demonstrations.episode[batch.frames[:, -1]]
    same = demonstrations.episode[batch.frames] == newest[:, None]
    assert same[batch.present].all()


def test_the_newest_frame_is_always_present_and_windows_of_every_size_occur(demonstrations, rng):
    batch = Sampler(demonstrations).draw(500, rng)
    assert batch.present[:, -1].all()
    assert set(batch.present.sum(1)) == {1, 2, 3, 4}


def test_ages_count_from_row_zero_in_control_steps(demonstrations, rng):
    batch = Sampler(demonstrations).draw(300, rng, delay=3.5)
    expected = 2 * (batch.frames[:, -1:] - batch.frames) + 3.5
    assert np.array_equal(batch.ages, expected)


def test_a_measured_sample_has_the_measured_state_and_age_zero(demonstrations, rng):
    newest = np.arange(20)
    batch = Sampler(demonstrations).at(newest, rng, delay=0.0)
    assert np.array_equal(batch.state, demonstrations.measured[newest])
    assert (batch.ages[:, -1] == 0).all()


def test_a_measured_label_is_the_law_rolled_from_the_command(demonstrations, rng):
    batch = Sampler(demonstrations, horizon=10).at(np.array([4]), rng, delay=0.0)
    references = demonstrations.paths[[0], 8:19, :6]
    expected = follow.roll(demonstrations.command[[4], :6], references)
    np.testing.assert_allclose(batch.actions[:, :, :6], expected, atol=1e-6)


def test_a_predicted_label_starts_at_the_predicted_state(demonstrations, rng):
    batch = Sampler(demonstrations).draw(50, rng, delay=6.25)
    np.testing.assert_array_equal(batch.actions[:, 0], batch.state)


def test_a_predicted_label_continues_the_plan_it_was_predicted_from(demonstrations, monkeypatch):
    class Quiet:
        """Draws no disturbance."""

        def __init__(self):
            self._rng = np.random.default_rng(0)

        def normal(self, mean, std, shape):
            return np.zeros(shape)

        def __getattr__(self, name):
            return getattr(self._rng, name)

    sampler = Sampler(demonstrations, horizon=10)
    measured = sampler.at(np.array([2]), Quiet(), delay=0.0)
    predicted = sampler.at(np.array([2]), Quiet(), delay=3.0)
    np.testing.assert_allclose(predicted.actions[:, :7], measured.actions[:, 3:], atol=1e-6)


@pytest.mark.parametrize(('delay', 'issued'), [(0.0, 21), (4.0, 24)])
def test_the_opening_is_the_path_s_and_never_between_two_ticks(
    demonstrations, rng, delay, issued
):
    batch = Sampler(demonstrations).at(np.array([10]), rng, delay=delay)
    expected = demonstrations.paths[0, issued : issued + 50, 6]
    assert np.array_equal(batch.actions[0, :, 6], expected)
    assert set(expected) == {np.float32(0.07), np.float32(0.0)}


def test_a_predicted_state_has_the_opening_that_was_commanded(demonstrations, rng):
    batch = Sampler(demonstrations).at(np.array([10, 13]), rng, delay=4.0)
    assert np.array_equal(batch.state[:, 6], np.float32([0.07, 0.0]))


def test_a_frame_that_is_not_usable_is_never_the_newest(demonstrations, rng):
    batch = Sampler(demonstrations).draw(2000, rng)
    assert 7 not in batch.frames[:, -1]
    assert 7 in batch.frames[batch.present]


def test_samples_are_shared_out_among_the_intents(demonstrations, rng):
    batch = Sampler(demonstrations, shares=(0.5, 0.3, 0.2)).draw(100, rng)
    counts = np.bincount(demonstrations.intent[batch.frames[:, -1]])
    assert list(counts) == [50, 30, 20]


def test_samples_of_one_intent_can_be_drawn_alone(demonstrations, rng):
    batch = Sampler(demonstrations, shares=(0.5, 0.3, 0.2)).draw(40, rng, intent=1)
    assert set(demonstrations.intent[batch.frames[:, -1]]) == {1}


def test_an_intent_without_frames_is_refused(demonstrations, rng):
    with pytest.raises(ConfigError, match='usable frames'):
        Sampler(demonstrations, shares=(0.4, 0.3, 0.2, 0.1)).draw(10, rng)


def test_the_images_of_one_camera_are_thinned_out_across_files(
    make_demonstrations, write_demonstrations, tmp_path
):
    data = make_demonstrations(cameras=2, frames=7)
    files = [write_demonstrations(data, tmp_path / f'{n}.npz') for n in 'ab']
    view = View.load(files, 1, every=4)
    assert list(view.rows) == list(range(0, 42, 4))
    both = np.concatenate((data.images, data.images))
    assert np.array_equal(view.images, both[view.rows, 1])


def test_the_share_of_predicted_samples_is_kept(demonstrations, rng):
    batch = Sampler(demonstrations, predicted_share=0.4).draw(2000, rng)
    assert abs((batch.ages[:, -1] > 0).mean() - 0.4) < 0.05


def test_taken_frames_keep_their_paths(demonstrations):
    part = demonstrations.take(np.array([3, 25]))
    assert list(part.segment) == [0, 1]
    assert part.paths is demonstrations.paths


def test_references_between_ticks_are_linear_and_held_after_the_end():
    paths = np.arange(5, dtype=np.float32)[None, :, None].repeat(6, 2)
    got = references_at(paths, np.array([2.5]), rows=4)[0, :, 0]
    np.testing.assert_allclose(got, [2.5, 3.5, 4.0, 4.0])


def test_files_are_joined_with_their_own_segments(demonstrations, write_demonstrations, tmp_path):
    files = [write_demonstrations(demonstrations, tmp_path / f'{n}.npz') for n in 'ab']
    both = Demonstrations.load(files)
    half = len(demonstrations.segment)
    assert np.array_equal(both.segment[half:], demonstrations.segment + 3)
    assert np.array_equal(both.paths[both.segment[half]], demonstrations.paths[0])
    assert Demonstrations.load(files, with_images=False).images.size == 0


def test_no_files_are_refused():
    with pytest.raises(ConfigError, match='got no file'):
        Demonstrations.load([])
