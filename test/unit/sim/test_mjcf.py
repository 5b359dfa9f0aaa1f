from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from reflex_ros.core.errors import ConfigError
from reflex_ros.sim.kinematics import LOWER, UPPER, Kinematics
from reflex_ros.sim.mjcf import dh_table, scene_xml

piper_sdk = pytest.importorskip('piper_sdk')

VARIANTS = {'new': 1, 'old': 0}


def worst_link_error_mm(dh: str, sdk_flag: int, poses: int = 1000) -> float:
    """Largest distance of the six link origins from those of the SDK's own table."""
    sys.path.insert(0, str(Path(piper_sdk.__file__).parent / 'kinematics'))
    from piper_fk import C_PiperForwardKinematics

    sdk, ours = C_PiperForwardKinematics(sdk_flag), Kinematics(dh)
    rng = np.random.default_rng(0)
    worst = 0.0
    for joints in rng.uniform(LOWER, UPPER, (poses, 6)):
        theirs = np.array(sdk.CalFK(joints.tolist()))[:, :3]
        worst = max(worst, float(np.abs(ours.links(joints)[0] * 1000 - theirs).max()))
    return worst


@pytest.mark.parametrize('dh', VARIANTS)
def test_links_are_where_the_sdk_table_puts_them(dh):
    assert worst_link_error_mm(dh, VARIANTS[dh]) < 0.01


def test_links_are_where_the_sdk_table_puts_them_can_fail():
    assert worst_link_error_mm('new', VARIANTS['old'], poses=10) > 1.0


@pytest.mark.parametrize(('dh', 'flange_mm'), [('new', (56.128, 0, 213.266)),
                                               ('old', (54.953, 0, 203.387))])
def test_flange_at_zero_pose_is_that_of_the_variant(dh, flange_mm):
    origins, _ = Kinematics(dh).links(np.zeros(6))
    np.testing.assert_allclose(origins[5] * 1000, flange_mm, atol=0.001)


def test_scene_text_is_a_function_of_its_arguments():
    assert scene_xml('old') == scene_xml('old')
    assert scene_xml('old') != scene_xml('new')
    assert 'cube' not in scene_xml('new', props=False)


def test_unknown_variant_is_refused_by_name():
    with pytest.raises(ConfigError, match="DH variant: got 'newer'"):
        dh_table('newer')
