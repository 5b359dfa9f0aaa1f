"""The shipped policy for several tasks: small, whole, and it does what it is told."""

from __future__ import annotations

from pathlib import Path

import pytest

import reflex_ros
from reflex_ros.core.errors import ConfigError
from reflex_ros.infer.families.tiny import TinyPolicy
from reflex_ros.sim.looks import Look
from reflex_ros.study.multi_table import AS_TRAINED, OTHERWISE, Trial, run_trial

FOLDER = Path(reflex_ros.__file__).parent / 'data' / 'tiny_multi'
SEED = 5000
"""From here on no seed was trained on."""


@pytest.fixture(scope='module', name='policy')
def policy_fixture():
    return TinyPolicy.load(FOLDER)


def told(policy, task, instruction, condition=AS_TRAINED):
    """Return whether an episode succeeds with an instruction."""
    try:
        row = run_trial(policy, Trial(task, condition, SEED, instruction, Look()))
    except ConfigError as error:
        pytest.skip(f'no off-screen rendering here: {error}')
    return all(row['success'])


def test_it_is_small_and_sees_both_cameras(policy):
    size = sum(path.stat().st_size for path in FOLDER.rglob('*') if path.is_file())
    assert size <= 8e6
    assert tuple(policy.spec.cameras) == ('main', 'wrist')


def test_told_to_put_the_cube_into_the_bin_it_does(policy):
    assert told(policy, 'pick_place', 'put the blue cube into the bin')


def test_told_to_open_the_drawer_it_does_though_the_scene_is_about_the_cube(policy):
    assert told(policy, 'pick_place', 'open the drawer', OTHERWISE)


def test_another_instruction_can_fail(policy):
    assert not told(policy, 'drawer', 'hold still')
