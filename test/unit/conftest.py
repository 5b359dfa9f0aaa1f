"""Runs of the closed loop on the virtual clock, and their bags as a recorder would leave them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from reflex_ros.core.clock import MS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope='session')
def recorded_scene():
    """Return the maker of runs with pictures."""
    from reflex_ros.study.cause_scene import Scene

    return partial(Scene, shares=(ROOT,))


@pytest.fixture(scope='session')
def write_rows():
    """Return the function that writes serialized messages as a bag."""
    from reflex_ros.study.cause_scene import write_messages

    return write_messages


@pytest.fixture(scope='session')
def stalled(recorded_scene, slow_step):
    """Return a run in which one inference took 1.2 s."""
    scene = recorded_scene(seed=3, duration_s=4.0, cameras=('main', 'wrist'))
    scene.at(2.0, lambda s: slow_step(s.run.policy, 1200 * MS))
    return scene.finish()


@pytest.fixture(scope='session')
def stalled_bag(stalled, tmp_path_factory):
    """Return the bag of that run."""
    return stalled.write(tmp_path_factory.mktemp('stalled') / 'bag')


@pytest.fixture(scope='session')
def slow_step():
    """Return the function that makes the next step of a stage slow."""
    from reflex_ros.study.cause_scene import delay_once

    return delay_once
