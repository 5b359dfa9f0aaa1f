"""Long runs of the ring stress with blocks of real size."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STRESS = ROOT / 'test' / 'soak' / 'ring_stress.py'

pytestmark = [pytest.mark.soak, pytest.mark.realtime, pytest.mark.timeout(1800)]


def stress(*arguments):
    done = subprocess.run([sys.executable, str(STRESS), *arguments], text=True, check=False,
                          env={**os.environ, 'PYTHONPATH': str(ROOT)}, capture_output=True)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_no_torn_block_is_accepted_across_100_kills_in_mid_write():
    found = stress('kill', '--kills', '100', '--kib', '8192')
    assert found['bad'] == 0
    assert found['torn_slots'] == found['repaired'] >= 100
    assert found['is_monotonic']


def test_no_torn_block_among_100000_is_accepted():
    found = stress('bulk', '--writes', '100000', '--kib', '1024', '--readers', '2')
    assert (found['bad'], found['writer']['steals']) == (0, 0)


def test_sixty_killed_readers_cost_the_writer_no_steal():
    found = stress('killreader', '--kills', '60', '--kib', '1024')
    assert (found['steals'], found['swept']) == (0, 60)
