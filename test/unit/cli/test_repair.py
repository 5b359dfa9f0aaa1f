"""``reflex-ros repair`` touches what is damaged and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from reflex_ros.cli.main import main

RUN = Path(__file__).parents[2] / 'data' / 'replay'


@pytest.fixture
def run(tmp_path):
    return Path(shutil.copytree(RUN, tmp_path / 'runs' / 'run'))


def tree(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob('*'))


def test_a_run_whose_bag_is_complete_is_left_as_it_is(run, capsys):
    before = tree(run.parent)
    assert main(['repair', str(run)]) == 0
    assert 'complete, nothing to repair' in capsys.readouterr().out
    assert tree(run.parent) == before


def test_a_folder_of_runs_is_no_bag(run, capsys):
    shutil.copytree(run, run.with_name('other'))
    before = tree(run.parent)
    assert main(['repair', str(run.parent)]) == 2
    assert 'no .mcap or .db3 file' in capsys.readouterr().err
    assert tree(run.parent) == before


def test_only_the_damaged_bag_of_a_run_is_repaired(run, capsys):
    (run / 'bag' / 'metadata.yaml').unlink()
    shutil.copytree(RUN / 'bag', run / 'bag_2')
    assert main(['repair', str(run)]) == 0
    assert 'messages saved' in capsys.readouterr().out
    names = {path.name for path in run.iterdir()}
    assert {'bag', 'bag.damaged', 'bag_2'} <= names and 'bag_2.damaged' not in names
    assert (run / 'bag' / 'metadata.yaml').is_file() and run.is_dir()


@pytest.mark.parametrize('seed', range(12))
def test_changed_bytes_end_in_a_line_or_a_bag_and_lose_nothing(run, seed, capsys):
    (run / 'bag' / 'metadata.yaml').unlink()
    file = next((run / 'bag').glob('*.mcap'))
    data = bytearray(file.read_bytes())
    for step in range(8):
        data[(seed * 7919 + step * 104729) % (4096 if seed % 2 else len(data))] ^= 0xFF
    file.write_bytes(data)
    assert main(['repair', str(run)]) in (0, 1, 2, 3)
    assert 'Traceback' not in capsys.readouterr().err
    kept = next(p for p in (run / 'bag.damaged', run / 'bag') if p.is_dir())
    assert (kept / file.name).read_bytes() == bytes(data)
