from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.core.errors import ConfigError
from reflex_ros.sim.experts import follow
from reflex_ros.train.dataset import Demonstrations, Sampler
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
    assert np.array_equal(batch.state[:, :6], demonstrations.measured[newest])
    assert (batch.ages[:, -1] == 0).all()


def test_a_measured_label_is_the_law_rolled_from_the_command(demonstrations, rng):
    batch = Sampler(demonstrations, horizon=10).at(np.array([4]), rng, delay=0.0)
    references = demonstrations.paths[[0], 8:19]
    expected = follow.roll(demonstrations.command[[4]], references)
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


def test_the_share_of_predicted_samples_is_kept(demonstrations, rng):
    batch = Sampler(demonstrations, predicted_share=0.4).draw(2000, rng)
    assert abs((batch.ages[:, -1] > 0).mean() - 0.4) < 0.05


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
