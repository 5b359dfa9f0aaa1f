from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.sim.kinematics import LOWER, UPPER, Kinematics
from reflex_ros.train.evaluate import open_loop, tip_positions


def test_tool_points_equal_the_scene_s():
    joints = np.random.default_rng(0).uniform(LOWER, UPPER, (50, 6))
    kinematics = Kinematics()
    expected = [kinematics.tip(row)[0] for row in joints]
    np.testing.assert_allclose(tip_positions(joints), expected, atol=1e-6)


def test_a_perfect_chunk_has_no_error_and_a_shifted_one_its_shift():
    rng = np.random.default_rng(1)
    chunk = rng.uniform(-0.3, 0.3, (20, 50, 7)).astype(np.float32)
    assert open_loop(chunk.astype(float), chunk, 0.0).tip_mm == pytest.approx((0, 0, 0), abs=1e-3)
    shifted = chunk.astype(float)
    shifted[:, 49, 0] += 0.1
    result = open_loop(shifted, chunk, 0.0)
    assert result.tip_mm[0] == pytest.approx(0, abs=1e-3)
    assert result.tip_mm[2] > 1.0
