"""Ctrl-C at any instant of a replay: its output is whole or not there, nothing is left beside."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reflex_ros.bag.content import content_hash
from reflex_ros.core.errors import EXIT_DONE, EXIT_INTERRUPTED

pytestmark = [pytest.mark.faults, pytest.mark.realtime, pytest.mark.timeout(600)]

RUN = Path(__file__).parents[1] / 'data' / 'replay'
MAIN = ('import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); '
        'from reflex_ros.cli.main import main; sys.exit(main())')
INSTANTS = 20
LONGEST_S = 60.0


def start(output: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, '-c', MAIN, 'replay', str(RUN), '--virtual', '--output', str(output),
         '--policy', 'oracle'],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def is_writing(folder: Path) -> bool:
    """Return whether the bag of a replay has begun."""
    return any(folder.glob('.out.*.part/bag/*'))


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
    """Return the content of an undisturbed replay, and how long it took to write."""
    folder = tmp_path_factory.mktemp('whole')
    process = start(folder / 'out')
    while not is_writing(folder) and process.poll() is None:
        time.sleep(0.002)
    began = time.monotonic()
    _, errors = process.communicate(timeout=LONGEST_S)
    assert process.returncode == EXIT_DONE, errors
    return content_of(folder / 'out'), time.monotonic() - began


def content_of(output: Path) -> str:
    assert json.loads((output / 'replay.json').read_text(encoding='utf-8'))
    return content_hash(output / 'bag')


def interrupted(folder: Path, after_s: float) -> tuple[int, str]:
    """Interrupt a replay some time after it began to write; return exit code and errors."""
    process = start(folder / 'out')
    while not is_writing(folder) and process.poll() is None:
        time.sleep(0.002)
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=LONGEST_S)
    return process.returncode, errors


@pytest.mark.parametrize('number', range(INSTANTS))
def test_the_output_is_whole_or_not_there(tmp_path, whole, number):
    content, took_s = whole
    code, errors = interrupted(tmp_path, took_s * number / INSTANTS)
    assert 'Traceback' not in errors
    left = sorted(path.name for path in tmp_path.iterdir())
    if code == EXIT_INTERRUPTED:
        assert 'interrupted' in errors and left in ([], ['out'])
    else:  # done; the signal may end Python on its way out
        assert code in (EXIT_DONE, -signal.SIGINT), errors
        assert left == ['out']
    if left:
        assert content_of(tmp_path / 'out') == content


def test_a_killed_replay_leaves_its_hidden_folder_can_fail(tmp_path):
    """Without a chance to clean up something is left: what is looked for above can be there."""
    process = start(tmp_path / 'out')
    while not is_writing(tmp_path):
        assert process.poll() is None
        time.sleep(0.002)
    process.kill()
    process.communicate(timeout=LONGEST_S)
    left = list(tmp_path.iterdir())
    assert [path.suffix for path in left] == ['.part'] and not (tmp_path / 'out').exists()
