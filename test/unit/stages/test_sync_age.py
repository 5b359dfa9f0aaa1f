"""In ``sync`` the age limit follows from L, also where L is longer than it was thought to be."""

from __future__ import annotations

import pytest

from reflex_ros.core.types import Fate
from reflex_ros.study.episode import EpisodeSpec, run_episode


@pytest.fixture(scope='module')
def traces():
    """Return what became of the chunks of a policy four times as slow as L at first."""
    spec = EpisodeSpec(mode='sync', denoise_ms=420.0, duration_s=4.0, seed=3)
    return run_episode(spec).log.traces


def test_a_slow_policy_is_refused_once_and_then_heard(traces):
    rejected = [t.chunk_id for t in traces if t.fate is Fate.REJECTED]
    assert rejected in ([], [1])
    assert sum(t.fate is Fate.EXECUTED for t in traces) >= 5


def test_every_chunk_of_it_is_executed_to_its_end(traces):
    whole = [t.ticks for t in traces if t.fate is Fate.EXECUTED][:-1]  # the last one is stopped
    assert set(whole) == {5}
