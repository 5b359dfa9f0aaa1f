"""A recorded run through the real nodes, in recorded time, without launch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip('reflex_msgs.msg._plan', reason='reflex_msgs is not built: run make setup')

from reflex_ros.bag.read import BagReader
from reflex_ros.core.ledger import LedgerReader

pytestmark = [pytest.mark.ros, pytest.mark.realtime, pytest.mark.slow]

RUN = Path(__file__).parents[1] / 'data' / 'replay'


@pytest.mark.timeout(180)
def test_the_nodes_execute_chunks_on_recorded_frames(tmp_path, ros_env):
    output = tmp_path / 'out'
    done = subprocess.run(
        [str(Path(sys.executable).with_name('reflex-ros')), 'replay', str(RUN), '--output',
         str(output)],
        capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert 'the recording is over' in done.stdout
    records = LedgerReader(output / 'ledger.bin').records()
    assert (records['chunk_id'] > 0).sum() > 100
    with BagReader(RUN / 'bag') as before, BagReader(output / 'bag') as after:
        name = '/camera/main/image_raw'
        frames = after.topics[name].messages
        assert 100 < frames <= before.topics[name].messages
        first = next(after.values(name))[2]
        known = {bytes(value.data) for _, _, value in before.values(name)}
        assert bytes(first.data) in known
