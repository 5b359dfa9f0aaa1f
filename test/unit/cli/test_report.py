from __future__ import annotations

import json
import shutil

import pytest

from reflex_ros.cli.main import main


def test_a_bag_gives_table_json_and_page(stalled_bag, tmp_path, capsys):
    page, report = tmp_path / 'r.html', tmp_path / 'r.json'
    assert main(['report', str(stalled_bag), '--html', str(page), '--json', str(report)]) == 0
    out = capsys.readouterr().out
    assert 'stall_ratio' in out and 'Faults: denoise_late (1 time)' in out
    assert max(map(len, out.splitlines())) <= 80
    assert page.read_text().startswith('<!doctype html>')
    document = json.loads(report.read_text())
    assert document['kind'] == 'reflex_ros.report' and document['faults'] == {'denoise_late': 1}


def test_json_alone_goes_to_standard_output(stalled_bag, capsys):
    assert main(['report', str(stalled_bag), '--json', '-']) == 0
    document = json.loads(capsys.readouterr().out)
    assert sum(document['verdicts'].values()) == document['ticks'] == document['expected_ticks']
    assert document['stalls'][0]['sentence'].startswith('At ')


def test_a_damaged_bag_gives_a_part_and_what_it_lacks(stalled_bag, tmp_path, capsys):
    bag = shutil.copytree(stalled_bag, tmp_path / 'bag')
    data = next(bag.glob('*.mcap'))
    data.write_bytes(data.read_bytes()[: data.stat().st_size // 2])
    assert main(['report', str(bag)]) == 0
    assert 'as far as it is whole' in ' '.join(capsys.readouterr().out.split())


def test_what_is_no_bag_is_input_and_one_line(tmp_path, capsys):
    assert main(['report', str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.count('\n') == 1 and 'got a folder without bag data' in error


@pytest.mark.parametrize('option', ['--json', '--html'])
def test_a_file_that_cannot_be_written_is_input(stalled_bag, tmp_path, capsys, option):
    assert main(['report', str(stalled_bag), option, str(tmp_path / 'no' / 'x')]) == 2
    assert 'cannot be written' in capsys.readouterr().err


def test_one_page_is_of_one_bag(tmp_path, capsys):
    assert main(['report', 'a', 'b', '--html', str(tmp_path / 'x')]) == 2
    assert 'expected one' in capsys.readouterr().err


def test_table_and_page_do_not_take_the_same_file(stalled_bag, tmp_path, capsys):
    name = str(tmp_path / 'x.html')
    assert main(['report', str(stalled_bag), '--html', name, '--json', name]) == 2
    assert 'expected two files' in capsys.readouterr().err and not list(tmp_path.iterdir())
