from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import pytest

from reflex_ros.bag.encode import write_run
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.summary import summarise
from reflex_ros.report.run_data import Run, load_run, read_settings
from reflex_ros.report.summary import KEYS, summarise_run, write_summary

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope='module')
def summary(run):
    return summarise_run(run)


def test_a_summary_has_exactly_its_keys(folder):
    written = write_summary(folder)
    assert tuple(written) == KEYS
    assert json.loads((folder / 'summary.json').read_text()) == written


def test_figures_are_those_of_the_core(summary, episode):
    figures = episode.summary
    assert summary['ticks'] == figures.ticks == figures.expected_ticks
    assert summary['verdicts'] == figures.verdicts
    assert summary['causes'] == figures.causes
    assert summary['stall_ratio'] == pytest.approx(figures.stall_ratio, abs=1e-4)
    assert summary['stalled_chunks'] == figures.stalled_chunks == 1.0
    assert summary['uncovered_share'] == pytest.approx(figures.uncovered_share, abs=1e-4)
    assert summary['reaction_ms']['p50'] == figures.reaction_ms['p50']
    assert summary['reaction_ms']['kind'] == figures.reaction_name
    assert summary['stage_ms']['denoise']['p95'] == figures.stage_ms['denoise']['p95']


def test_the_sum_of_the_verdicts_is_every_tick(summary):
    assert sum(summary['verdicts'].values()) == summary['ticks']
    assert sum(summary['causes'].values()) == summary['ticks']


def test_settings_come_from_the_parameter_file(summary):
    names = ('mode', 'policy', 'delay_ms', 'execute_steps', 'seed')
    assert [summary[name] for name in names] == ['sync', 'oracle', 200.0, 25, 7]
    assert summary['duration_s'] == pytest.approx(4.0, abs=0.1)


def test_the_machine_is_described_without_its_name(summary):
    assert set(summary['machine']) == {'cpu', 'cores', 'memory_gib'}
    text = json.dumps(summary)
    assert socket.gethostname() not in text
    assert '/' not in text


def test_the_bag_alone_gives_the_same_figures(folder, tmp_path, summary):
    shutil.copytree(folder / 'bag', tmp_path / 'bag')
    alone = summarise_run(load_run(tmp_path))
    for key in ('ticks', 'verdicts', 'causes', 'stall_ratio', 'stalled_chunks', 'reaction_ms'):
        assert alone[key] == summary[key]
    assert (alone['mode'], alone['policy'], alone['delay_ms']) == (None, None, None)


def test_the_ledger_alone_gives_no_invented_figure(folder, tmp_path, summary):
    shutil.copy(folder / 'ledger.bin', tmp_path / 'ledger.bin')
    alone = write_summary(tmp_path)
    assert alone['stall_ratio'] == summary['stall_ratio']
    assert alone['uncovered_share'] is None
    assert alone['reaction_ms'] == {
        'p50': None, 'p95': None, 'p99': None, 'n': 0, 'kind': 'observation_to_command'
    }
    assert alone['stage_ms'] == {}
    assert 'NaN' not in (tmp_path / 'summary.json').read_text()


def test_a_bag_of_a_killed_recorder_is_repaired(folder, tmp_path, summary):
    shutil.copy(folder / 'ledger.bin', tmp_path / 'ledger.bin')
    shutil.copytree(folder / 'bag', tmp_path / 'bag')
    (tmp_path / 'bag' / 'metadata.yaml').unlink()
    assert write_summary(tmp_path)['reaction_ms'] == summary['reaction_ms']
    assert (tmp_path / 'bag.damaged').is_dir()


def test_bags_of_a_restarted_recorder_count_together(episode, tmp_path, run):
    log = episode.log
    for name, part in (('bag', slice(0, 90)), ('bag_2', slice(90, None))):
        write_run(tmp_path / name, [*log.ticks[part], *log.truths[part]], shares=(ROOT,))
    found = load_run(tmp_path)
    assert (len(found.records), len(found.truths)) == (len(log.ticks), len(run.truths))


def test_a_folder_with_a_bag_twice_has_no_summary(folder, tmp_path):
    """The report says so too: of two runs no figure is true."""
    for name in ('bag', 'bag_2'):
        shutil.copytree(folder / 'bag', tmp_path / name)
    with pytest.raises(ConfigError, match='two runs'):
        write_summary(tmp_path)


def test_a_folder_without_ticks_is_refused(tmp_path):
    with pytest.raises(ConfigError, match='has no ticks'):
        write_summary(tmp_path)


def test_a_run_without_records_has_no_figures(run):
    empty = summarise_run(Run(run.records[:0], run.period_ns))
    assert (empty['ticks'], empty['duration_s'], empty['stall_ratio']) == (0, 0.0, None)


def test_a_lost_tick_changes_the_figures(run, summary):
    figures = summarise(run.records[:-1], run.traces, period_ns=run.period_ns)
    assert figures.ticks != summary['ticks']


def test_a_missing_parameter_file_is_no_error(tmp_path):
    assert read_settings(tmp_path / 'run.yaml') == {}
