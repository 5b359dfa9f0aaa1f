from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reflex_ros.bag.encode import write_run
from reflex_ros.bag.strip import Strip
from reflex_ros.core.clock import Instant, S
from reflex_ros.core.ledger import LedgerWriter
from reflex_ros.report.run_data import load_run
from reflex_ros.study.episode import EpisodeSpec, run_episode

ROOT = Path(__file__).parents[3]
PARAMS = """
/run/controller_bridge:
  ros__parameters:
    chunk: {mode: sync, execute_steps: 25}
    delay: {injected_s: 0.2}
/run/policy:
  ros__parameters:
    policy: {name: oracle, seed: 3}
/run/simulator:
  ros__parameters:
    simulator: {seed: 7}
"""


@pytest.fixture(scope='session')
def episode():
    """Return four seconds of sync at 200 ms: it stalls at every chunk change."""
    return run_episode(
        EpisodeSpec(mode='sync', execute_steps=25, delay_ms=200.0, seed=7, duration_s=4.0)
    )


def write_ledger(path, ticks):
    start = Instant(ticks[0].due_ns, ticks[0].stamp_ns)
    with LedgerWriter.create(path, period_ns=20_000_000, start=start) as ledger:
        for tick in ticks:
            ledger.append(tick)


@pytest.fixture(scope='session')
def folder(episode, tmp_path_factory):
    """Return the folder of a run as the nodes leave it."""
    path = tmp_path_factory.mktemp('runs') / '20260101T000000Z-sync'
    (path / 'params').mkdir(parents=True)
    (path / 'params' / 'run.yaml').write_text(PARAMS)
    log = episode.log
    write_ledger(path / 'ledger.bin', log.ticks)
    values = [*log.ticks, *log.traces, *log.stalls, *log.truths]
    write_run(path / 'bag', values, shares=(ROOT,))
    strip = Strip(path / 'strip')
    for second in range(4):
        strip.add(log.ticks[0].stamp_ns + second * S, np.full((32, 48, 3), 60 * second, np.uint8))
    return path


@pytest.fixture(scope='session')
def run(folder):
    return load_run(folder)
