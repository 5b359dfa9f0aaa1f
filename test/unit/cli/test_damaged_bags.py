"""Every command that reads bags, over damaged ones: a part and what it lacks, or a clear error."""

from __future__ import annotations

import json
import shutil
import struct

import numpy as np
import pytest

from reflex_ros.bag.encode import TOPICS, header_stamp_ns
from reflex_ros.bag.encode_flow import FLOW_TOPICS, FlowEncoder
from reflex_ros.bag.files import BagFiles, BagTopic
from reflex_ros.cli.main import main
from reflex_ros.core.errors import EXIT_BUDGET, EXIT_INPUT
from reflex_ros.study.episode import EpisodeSpec, run_episode

CASES = [('mcap', 0), ('sqlite3', 1), *(
    pytest.param(storage, seed, marks=pytest.mark.faults)
    for storage in ('mcap', 'sqlite3') for seed in range(2, 60))]
CHUNK = 6
NAMED = ('damaged', 'changed', 'cannot', 'could be read', 'missing')


@pytest.fixture(scope='module')
def bags(tmp_path_factory):
    """Return a run folder of either storage: one second of the oracle in a few chunks."""
    log = run_episode(EpisodeSpec(duration_s=1.0, seed=2)).log
    encoder, names = FlowEncoder(), dict((*TOPICS, *FLOW_TOPICS))
    topics = [BagTopic(name, encoder.schemas[kind.__name__]) for kind, name in names.items()]
    values = [*log.ticks, *log.traces, *log.stalls, *log.truths, *log.plans, *log.chunks]
    folders = {}
    for storage in ('mcap', 'sqlite3'):
        folders[storage] = tmp_path_factory.mktemp(storage) / 'run'
        files = BagFiles(folders[storage] / 'bag', topics, storage=storage)
        files.open()
        for number, value in enumerate(sorted(values, key=header_stamp_ns), 1):
            files.write(names[type(value)], header_stamp_ns(value), encoder.encode(value))
            if number % 40 == 0:
                files.flush()
        files.close()
    return folders


def flip(data, rng, start, stop, count):
    for at in rng.integers(start, stop, count):
        data[at] ^= 1 << rng.integers(8)


def without_checksums(data, rng):
    """Flip bytes of chunks as other writers leave them: nothing tells that they were changed."""
    at = 8
    while at + 9 < len(data):
        code, length = struct.unpack_from('<BQ', data, at)
        if code == CHUNK:
            data[at + 33:at + 37] = bytes(4)
            flip(data, rng, at + 60, at + 9 + length, 5)
        at += 9 + length
    return data


def damage(folder, seed):
    """Damage a bag in one of several ways; return which."""
    rng = np.random.default_rng(seed)
    kind = ('cut', 'flips', 'zeros', 'metadata', 'end', 'unchecked', 'empty')[seed % 7]
    path = folder / 'bag' / 'metadata.yaml' if kind == 'metadata' else next(
        path for path in (folder / 'bag').iterdir() if path.suffix in ('.mcap', '.db3'))
    data = bytearray(path.read_bytes())
    if kind == 'cut':
        data = data[:rng.integers(len(data))]
    elif kind == 'zeros':
        at = rng.integers(len(data))
        data[at:at + 3000] = bytes(len(data[at:at + 3000]))
    elif kind == 'unchecked' and path.suffix == '.mcap':
        data = without_checksums(data, rng)
    elif kind == 'end':
        flip(data, rng, max(0, len(data) - 3000), len(data), 8)
    elif kind == 'empty':
        data = data[:0]
    else:
        flip(data, rng, 0, len(data), int(rng.integers(1, 40)))
    path.write_bytes(data)
    return kind


def commands(run, out):
    bag = str(run / 'bag')
    yield 'report', [bag, '--json', str(out / 'report.json')]
    yield 'report', [str(run), '--html', str(out / 'page.html')]
    yield 'compare', [bag, bag]
    yield 'view', [bag, '--output', str(out / 'view.rrd')]
    yield 'replay', [bag, '--virtual', '--policy', 'oracle', '--output', str(out / 'again')]
    yield 'repair', [bag]
    yield 'report', [bag, '--json', str(out / 'repaired.json')]


@pytest.mark.parametrize(('storage', 'seed'), CASES)
def test_no_command_crashes_on_a_damaged_bag(bags, tmp_path, capsys, storage, seed):
    pytest.importorskip('rerun', reason='view needs rerun-sdk')
    run = shutil.copytree(bags[storage], tmp_path / 'run')
    out = tmp_path / 'out'
    out.mkdir()
    kind = damage(run, seed)
    for name, arguments in commands(run, out):
        code = main([name, *arguments])
        said = capsys.readouterr()
        # what is left of a bag may well miss its budgets
        assert code in (0, 2) or (name, code) == ('compare', EXIT_BUDGET), (name, kind, said.err)
        if code == EXIT_INPUT:
            text = said.err + said.out
            assert 'got' in text and 'expected' in text, (name, kind, text)
        elif storage == 'mcap' and name == 'report' and (out / 'report.json').is_file():
            found = json.loads((out / 'report.json').read_text())
            is_named = any(word in note for note in found['notes'] for word in NAMED)
            assert is_named or kind == 'unchecked', (kind, found['notes'])


def test_a_whole_bag_can_fail_the_last_test(bags, tmp_path, capsys):
    """Of a whole bag nothing is said to be damaged, and every command does its work."""
    run = shutil.copytree(bags['mcap'], tmp_path / 'run')
    assert main(['report', str(run / 'bag'), '--json', str(tmp_path / 'report.json')]) == 0
    notes = json.loads((tmp_path / 'report.json').read_text())['notes']
    assert not any('damaged' in note or 'could be read' in note for note in notes)
    assert main(['repair', str(run / 'bag')]) == 0
    assert 'nothing to repair' in capsys.readouterr().out
