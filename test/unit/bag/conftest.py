from __future__ import annotations

from pathlib import Path

import pytest

from reflex_ros.bag.encode import Encoder
from reflex_ros.bag.files import BagTopic, offered_qos
from reflex_ros.study.episode import EpisodeSpec, run_episode

ROOT = Path(__file__).parents[3]
SHARES = (ROOT,)
"""Definitions of this checkout only, so that the tests do not depend on an installation."""


@pytest.fixture(scope='session')
def encoder():
    return Encoder(shares=SHARES)


@pytest.fixture(scope='session')
def log():
    """Return everything that two seconds of the loop published."""
    return run_episode(EpisodeSpec(duration_s=2.0, seed=1)).log


@pytest.fixture(scope='session')
def ticks(log, encoder):
    """Return (stamp, serialized tick) of the run."""
    return [(tick.stamp_ns, encoder.encode(tick)) for tick in log.ticks]


@pytest.fixture
def topic(encoder):
    qos = offered_qos(is_reliable=True, is_latched=False, depth=100)
    return BagTopic('/control_tick', encoder.schemas['ControlTick'], (qos,))
