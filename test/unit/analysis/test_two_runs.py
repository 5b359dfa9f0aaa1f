"""A bag with more than one run is refused; one that lost too many ticks meets no budget."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reflex_ros.analysis import collect
from reflex_ros.analysis.figures import analyse
from reflex_ros.bag.encode import Encoder
from reflex_ros.cli.main import main
from reflex_ros.core.clock import S
from reflex_ros.core.errors import EXIT_BUDGET, EXIT_DONE, EXIT_INPUT, ConfigError
from reflex_ros.core.grid import several_runs
from reflex_ros.stages.replay_source import read_recorded

PERIOD_NS = 20_000_000
LATER_NS = 60 * S


@pytest.fixture(scope='module')
def made(stalled):
    return stalled.messages(images=False, is_brief=True), Encoder(), stalled.run.log.ticks


def joined(made, write_rows, folder, ticks, *, later_ns=LATER_NS):
    """Write a bag with the run, and ticks after it."""
    (types, rows), encoder, _ = made
    more = [('/control_tick', rows[-1][1] + later_ns + tick.index, encoder.encode(tick))
            for tick in ticks]
    write_rows(folder, types, [*rows, *more])
    return folder


def of_another_run(ticks):
    return [replace(t, due_ns=t.due_ns + LATER_NS, stamp_ns=t.stamp_ns + LATER_NS)
            for t in ticks]


def budgets(tmp_path):
    path = tmp_path / 'budgets.yaml'
    path.write_text('budgets: {unexplained_ticks: 0, tick_late_p99_ms: 1000}\n')
    return str(path)


@pytest.mark.parametrize('share', [pytest.param(1.0, marks=pytest.mark.soak), 0.05])
def test_a_second_run_is_refused_by_all(made, write_rows, tmp_path, share, capsys):
    ticks = made[2]
    bag = joined(made, write_rows, tmp_path / 'bag',
                 of_another_run(ticks[:round(share * len(ticks))]))
    for read in (analyse, read_recorded):
        with pytest.raises(ConfigError, match=r'two runs.* ticks of one run and \d+ of another'):
            read(bag)
    assert main(['compare', str(bag), '--budgets', budgets(tmp_path)]) == EXIT_INPUT
    assert 'two runs' in capsys.readouterr().err


def test_the_same_run_twice_is_refused_by_all(made, write_rows, tmp_path):
    bag = joined(made, write_rows, tmp_path / 'bag', made[2])
    for read in (analyse, read_recorded):
        with pytest.raises(ConfigError, match=r'two runs.*202 of 404 ticks a second time'):
            read(bag)


def test_the_refusal_of_two_runs_can_fail(made, write_rows, tmp_path, monkeypatch):
    monkeypatch.setattr(collect, 'several_runs', lambda *_: '')
    bag = joined(made, write_rows, tmp_path / 'bag', of_another_run(made[2]))
    assert analyse(bag).summary.ticks < 2 * len(made[2])


def test_a_few_ticks_that_came_twice_are_counted_once_and_said(made, write_rows, tmp_path):
    bag = joined(made, write_rows, tmp_path / 'bag', made[2][50:54])
    found = analyse(bag)
    assert found.summary.ticks == len(made[2])
    assert '4 ticks came twice: counted once' in found.notes


@pytest.mark.parametrize('extra', [
    [], 'few again', 'few of another', 'a bridge that counts on'])
def test_one_run_is_one(made, extra):
    ticks = [(t.index, t.due_ns) for t in made[2]]
    after = {'few again': ticks[50:55],
             'few of another': [(i, due + LATER_NS) for i, due in ticks[50:55]],
             'a bridge that counts on': [(i + 3000, due + 3000 * PERIOD_NS) for i, due in ticks],
             }.get(extra or '', [])
    assert several_runs(*zip(*ticks, *after, strict=True)) == ''


def test_no_ticks_are_no_runs():
    assert several_runs([], []) == several_runs([3], [7]) == ''
    assert several_runs([2**40] * 9, list(range(9))) == ''


@pytest.mark.parametrize(('share', 'code', 'change'), [
    (0.01, EXIT_DONE, {'due_ns': 5}), (0.03, EXIT_BUDGET, {'index': 2**40}),
    pytest.param(0.01, EXIT_DONE, {'index': 2**40}, marks=pytest.mark.soak),
    pytest.param(0.03, EXIT_BUDGET, {'due_ns': 5}, marks=pytest.mark.soak)])
def test_budgets_are_not_met_by_what_is_left_of_a_run(made, write_rows, tmp_path, capsys, share,
                                                      code, change):
    (types, rows), encoder, ticks = made
    rows = list(rows)
    at = [i for i, row in enumerate(rows) if row[0] == '/control_tick']
    for number in range(60, 60 + round(share * len(ticks))):
        rows[at[number]] = ('/control_tick', rows[at[number]][1],
                            encoder.encode(replace(ticks[number], **change)))
    write_rows(tmp_path / 'bag', types, rows)
    report = tmp_path / 'report.json'
    assert main(['report', str(tmp_path / 'bag'), '--json', str(report)]) == EXIT_DONE
    for run in (tmp_path / 'bag', report):
        capsys.readouterr()
        assert main(['compare', str(run), '--budgets', budgets(tmp_path)]) == code
        said = capsys.readouterr().out
        assert ('OVER unexplained_ticks: 3.0 % of the ticks are damaged' in said) == bool(code)
