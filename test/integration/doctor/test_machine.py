"""The probes of the machine that the tests run on; nothing here judges its speed."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reflex_ros.core.errors import ModelError
from reflex_ros.core.param_table import NODES
from reflex_ros.core.params import defaults
from reflex_ros.doctor.probes import this_machine
from reflex_ros.doctor.software import open_checkpoint

ROOT = Path(__file__).parents[3]
TINY = ROOT / 'reflex_ros' / 'data' / 'tiny'
PARAMS = {name: value for node in NODES for name, value in defaults(node).items()}


def test_this_machine_can_be_measured(tmp_path):
    probes = this_machine()
    total, free = probes.disk(tmp_path)
    late, is_realtime = probes.lateness(0.1, 20_000_000, 0)
    assert 0 < free <= total and 1 <= len(late) <= 5 and not is_realtime
    assert probes.write_rate(tmp_path) > 0 and list(tmp_path.iterdir()) == []
    assert probes.fifo(1) in (True, False)
    assert probes.version('numpy') and probes.version('no-such-package') is None


@pytest.mark.ros
def test_the_messages_of_this_machine_load():
    assert this_machine().messages() >= 16


@pytest.mark.skipif(not TINY.is_dir(), reason='the weights of tiny are not in this checkout')
def test_a_checkpoint_is_opened_as_the_nodes_do(tmp_path):
    found = open_checkpoint(PARAMS, None)
    assert found['family'] == 'tiny' and found['manifest'] and len(found['model_id']) == 64
    copy = tmp_path / 'tiny'
    shutil.copytree(TINY, copy)
    assert open_checkpoint(PARAMS, copy)['model_id'] == found['model_id']
    weights = bytearray((copy / 'model.safetensors').read_bytes())
    weights[-1] ^= 1
    (copy / 'model.safetensors').write_bytes(weights)
    with pytest.raises(ModelError, match='damaged'):
        open_checkpoint(PARAMS, copy)


@pytest.mark.parametrize('family', ['pi0', 'pi05', 'smolvla'])
def test_a_pretrained_checkpoint_is_opened_completely(family):
    folder = ROOT / 'test' / 'data' / 'parity' / family / 'checkpoint'
    found = open_checkpoint(PARAMS, folder)
    assert found['family'] == family and found['files'] > 3


def test_ctrl_c_ends_a_visit_cleanly():
    # a shell that starts tests in the background lets them ignore the signal
    code = ('import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); '
            'from reflex_ros.cli.main import main; sys.exit(main(sys.argv[1:]))')
    process = subprocess.Popen(
        [sys.executable, '-uc', code, 'doctor', '--only', 'ros-environment',
         'clock-jitter', '--seconds', '100'],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    line = process.stdout.readline()  # what comes after it takes longer than the test may
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert 'ros-environment' in line
    assert process.returncode == 130
    assert 'Traceback' not in errors and 'interrupted' in errors
