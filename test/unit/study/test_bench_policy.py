"""The policy bench: variants agree, times are put together rightly, targets are judged."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import pytest
import torch

from reflex_ros.cli.main import main
from reflex_ros.core.errors import ConfigError
from reflex_ros.study import bench_report
from reflex_ros.study.bench_policy import (
    FULL,
    REFERENCE,
    REFLEX,
    VARIANTS,
    Cell,
    Rounds,
    Stopwatch,
    difference,
    make_cells,
    measure,
    parts_of_call,
)
from reflex_ros.study.bench_report import FULL_CALLS, Options, keep, run_bench, table, target_line
from reflex_ros.study.bench_subject import FAMILIES, random_subject
from reflex_ros.study.bench_targets import EQUAL, MIN_CALLS, judge, multiplies_bfloat16
from reflex_ros.study.results import Revision

ONCE = Rounds(calls=1, full=1, warmup=0)
TINY = Options(sizes=('tiny',), calls=2, warmup=1)


@pytest.fixture(scope='module')
def found():
    return run_bench(dataclasses.replace(TINY, families=('smolvla',)))


@pytest.mark.parametrize('family', FAMILIES)
def test_variants_give_equal_actions(family):
    subject = random_subject(family, 'tiny', seed=1)
    cells = make_cells(subject, ['float32'])
    measure(subject, cells, ONCE)
    assert [cell.variant for cell in cells] == list(VARIANTS)
    assert difference(cells, subject.noise, 'float32') <= EQUAL


@pytest.mark.parametrize('family', FAMILIES)
def test_equality_can_fail(family):
    """One camera black in one variant: the actions depend on what the prefix holds."""
    subject = random_subject(family, 'tiny', seed=1)
    cells = make_cells(subject, ['float32'])
    measure(subject, cells[:2], ONCE)
    name, image = next(iter(subject.images.items()))
    images = {**subject.images, name: torch.zeros_like(image)}
    measure(dataclasses.replace(subject, images=images), cells[2:], ONCE)
    assert difference(cells, subject.noise, 'float32') > 100 * EQUAL


def test_variants_take_turns_and_full_stops_early():
    subject = random_subject('pi0', 'tiny', seed=0)
    cells = make_cells(subject, ['float32'])
    order, rounds = [], itertools.count(1)

    def clock():
        return 0

    def tick():
        order.append((next(rounds), [cell.n for cell in cells]))

    measure(subject, cells, Rounds(calls=3, full=1, warmup=1), clocks={'cpu': clock}, tick=tick)
    assert order == [(1, [0, 0, 0]), (2, [1, 1, 1]), (3, [1, 2, 2]), (4, [1, 3, 3])]


def test_the_control_path_of_reflex_starts_at_a_finished_prefix():
    watch = Stopwatch({'cpu': lambda: 0})
    watch.spent_ns['cpu'] = {
        'vision a': 1_000_000, 'vision b': 2_000_000, 'prefix': 10_000_000, 'stage': 500_000,
        'denoise': 4_000_000,
    }  # fmt: skip
    ours = parts_of_call(REFLEX, watch, new_camera=1)['cpu']
    assert (ours['control'], ours['one_new'], ours['all_new']) == (4.5, 16.5, 17.5)
    theirs = parts_of_call(REFERENCE, watch, new_camera=1)['cpu']
    assert theirs['control'] == theirs['one_new'] == theirs['all_new'] == 17.5


def test_a_stopwatch_adds_up_on_every_clock():
    slow, fast = itertools.count(0, 10), itertools.count(0, 3)
    watch = Stopwatch({'wall': lambda: next(slow), 'cpu': lambda: next(fast)})
    for _ in range(2):
        with watch.span('prefix'):
            pass
    assert watch.spent_ns == {'wall': {'prefix': 20}, 'cpu': {'prefix': 6}}


def cells_with(part, ours, theirs, dtype='float32', n=MIN_CALLS):
    """Return cells that have measured one part."""
    pairs = ((REFERENCE, 'float32', theirs), (REFLEX, dtype, ours))
    return [Cell(variant, kind, None, {'cpu': {part: [time] * n}})
            for variant, kind, time in pairs]


def verdict(part, dtype, cells, *, family='pi0', size='mid', has_bfloat16=True):
    judged = judge(family, size, cells, has_bfloat16=has_bfloat16)
    return next(j.verdict for j in judged if (j.part, j.dtype) == (part, dtype))


@pytest.mark.parametrize(('part', 'dtype', 'limit'), [
    ('control', 'float32', 25.0), ('one_new', 'float32', 85.0), ('all_new', 'float32', 95.0),
    ('control', 'bfloat16', 15.0),
])  # fmt: skip
def test_a_target_is_met_at_its_limit(part, dtype, limit):
    assert verdict(part, dtype, cells_with(part, limit, 100.0, dtype)) == 'pass'


@pytest.mark.parametrize(('part', 'dtype', 'limit'), [
    ('control', 'float32', 25.0), ('one_new', 'float32', 85.0), ('all_new', 'float32', 95.0),
    ('control', 'bfloat16', 15.0),
])  # fmt: skip
def test_a_target_can_fail(part, dtype, limit):
    assert verdict(part, dtype, cells_with(part, limit + 0.1, 100.0, dtype)) == 'fail'


def test_a_slow_minute_of_the_machine_does_not_decide():
    cells = cells_with('control', 20.0, 100.0)
    for cell in cells:
        cell.calls['cpu']['control'][:10] = [10 * t for t in cell.calls['cpu']['control'][:10]]
    assert verdict('control', 'float32', cells) == 'pass'


def test_few_calls_or_no_hardware_are_said_not_judged():
    few = cells_with('control', 1.0, 100.0, n=MIN_CALLS - 1)
    assert verdict('control', 'float32', few) == 'not measured'
    assert verdict('one_new', 'float32', few) == 'not measured', 'a part without calls'
    half = cells_with('control', 99.0, 100.0, 'bfloat16')
    assert verdict('control', 'bfloat16', half, has_bfloat16=False) == 'not applicable'
    assert judge('pi0', 'tiny', few, has_bfloat16=True) == ()


@pytest.mark.parametrize(('flags', 'wanted'), [
    ('fpu avx512_bf16', True), ('amx_bf16 fpu', True), ('fpu avx512f', False), ('', False),
])  # fmt: skip
def test_hardware_for_bfloat16_is_read_from_the_flags(tmp_path, flags, wanted):
    file = tmp_path / 'cpuinfo'
    file.write_text(f'model name\t: x\nflags\t\t: {flags}\n')
    assert multiplies_bfloat16(file) is wanted
    assert not multiplies_bfloat16(tmp_path / 'none')


def test_a_result_has_every_figure(found, tmp_path):
    path = keep(found, TINY, tmp_path, Revision('a' * 40, is_dirty=False))
    result = json.loads(path.read_text())
    assert (result['bench'], result['tag'], result['unit'], result['n']) == (
        'policy', 'measured', 'ms', 2)
    (subject,) = result['summary']['subjects']
    assert subject['equal'] is True
    assert subject['difference']['bfloat16'] <= 3e-2
    keys = {(cell['variant'], cell['dtype']) for cell in subject['cells']}
    assert keys == {(v, d) for v in VARIANTS for d in ('float32', 'bfloat16')}
    for cell in subject['cells']:
        for clock in ('cpu', 'wall'):
            for part in ('vision', 'prefix', 'denoise', 'control', 'one_new', 'all_new'):
                assert set(cell[clock][part]) == {'p50', 'p90', 'p95', 'p99', 'max', 'n'}
        assert cell['n'] == cell['cpu']['control']['n'] == 2


def test_the_table_has_a_line_for_each_variant(found):
    text = '\n'.join(table(found))
    assert text.count('bfloat16 ') >= 3
    assert 'smolvla tiny: 0.5 M weights, 3 cameras' in text
    assert '(at most 2e-05: yes)' in text


def test_a_judged_target_is_said_in_words():
    judged = judge('pi0', 'mid', cells_with('control', 26.0, 100.0), has_bfloat16=True)
    lines = [target_line(dataclasses.asdict(one)) for one in judged]
    assert lines[0] == ('control path, reflex in float32: 0.260 (0.260 to 0.260) of reference in '
                        'float32, at most 0.25: fail')
    assert lines[1].endswith('no ratio in float32, at most 0.85: not measured (0 calls, '
                             'expected 30)')


def test_full_is_called_less_where_it_is_slow():
    options = Options(calls=30)
    assert options.rounds('tiny').full == 30
    assert options.rounds('mid').full == FULL_CALLS
    assert options.total == 6 * 32


def test_the_number_of_threads_is_put_back():
    before = torch.get_num_threads()
    run_bench(Options(('pi0',), ('tiny',), ('float32',), calls=1, warmup=0, threads=before + 1))
    assert torch.get_num_threads() == before


@pytest.mark.parametrize('option', ['--out', '--picture'])
def test_a_place_that_cannot_be_written_is_refused_before_measuring(
    option, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(bench_report, 'run_with_bar', lambda _: pytest.fail('it measured'))
    (tmp_path / 'file').write_text('')
    assert main(['bench', 'policy', option, str(tmp_path / 'file' / 'a')]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_nothing_to_measure_is_refused():
    with pytest.raises(ConfigError, match='calls=0'):
        run_bench(Options(calls=0))


def test_a_checkpoint_is_measured_under_its_own_name():
    folder = Path(__file__).parents[2] / 'data' / 'parity' / 'pi0' / 'checkpoint'
    options = Options(dtypes=('float32',), calls=1, warmup=0, checkpoint=folder)
    (subject,) = run_bench(options)['subjects']
    assert (subject['family'], subject['size'], subject['equal']) == ('pi0', 'checkpoint', True)
    assert subject['targets'] == []


def test_the_picture_has_a_panel_for_each_network(found):
    pytest.importorskip('matplotlib')
    from reflex_ros.study.bench_picture import draw

    (axis,) = draw(found).axes
    assert [label.get_text() for label in axis.get_yticklabels()][0] == f'{FULL} float32'
    assert len(axis.patches) == 6 * 3
