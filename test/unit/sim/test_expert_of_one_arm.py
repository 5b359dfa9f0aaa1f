"""Short cuts of the follow expert, for a lone arm and for points in reach, change no command."""

from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.sim.experts import follow
from reflex_ros.sim.kinematics import leaning_pose

SEEDS = range(20)


def _ways(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    references = rng.normal(size=(3, 12, 6)).cumsum(axis=1) * 0.1  # steps, jumps, full speed
    return rng.normal(size=(3, 6)), references


@pytest.mark.parametrize('seed', SEEDS)
def test_a_lone_arm_moves_to_the_last_bit_as_among_others(seed):
    commands, references = _ways(seed)
    together = follow.roll(commands, references, period_ns=33_333_333)
    for arm in range(len(commands)):
        alone = follow.roll(commands[arm:arm + 1], references[arm:arm + 1], period_ns=33_333_333)
        assert alone.tobytes() == together[arm].tobytes()


def test_a_reference_that_is_no_number_stays_with_its_joint():
    commands, references = _ways(0)
    references[0, 5, 2] = np.nan
    alone = follow.roll(commands[:1], references[:1])
    np.testing.assert_array_equal(alone[0], follow.roll(commands, references)[0])
    assert np.isnan(alone[0, 5:, 2]).all() and np.isfinite(alone[0, :, [0, 1, 3, 4, 5]]).all()


@pytest.mark.parametrize('seed', SEEDS)
def test_a_pose_does_not_depend_on_the_points_beside_it(seed):
    """Points whose wrist is at its limit take a second solution, the others none."""
    points = np.random.default_rng(seed).uniform((0.05, -0.4, -0.1), (0.6, 0.4, 0.5), (40, 3))
    together = leaning_pose(points)
    alone = np.array([leaning_pose(point) for point in points])
    np.testing.assert_allclose(alone, together, rtol=0, atol=1e-12)
