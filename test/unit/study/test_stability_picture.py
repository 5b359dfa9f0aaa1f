"""[ci] The picture of the stability bench: from a small result, with everything it must say."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from PIL import Image

from reflex_ros.study.stability import REGIMES, StreamSpec, run_stream
from reflex_ros.study.stability_picture import SERIES, draw

ROOT = Path(__file__).resolve().parents[3]


def call(precision='bf16', **changes):
    return {'regime': 'normal', 'precision': precision, 'is_operating': True, 'calls': 9,
            'nan': 0, 'inf': 0, 'first_failure_call': None, 'drift_mean_rad': 0.002,
            'drift_max_rad': 0.005, **changes}


@pytest.fixture(name='result', scope='module')
def result_fixture():
    """Return what the bench stores of a short run."""
    norms = [row for name in REGIMES for row in run_stream(name, StreamSpec(1000, width=32))]
    calls = [call('float32'), call(), call('ada', nan=1, first_failure_call=7),
             call(regime='sweep', is_operating=False)]
    return json.loads(json.dumps({'summary': {'norms': norms, 'calls': calls}}))


@pytest.fixture(name='bench', scope='module')
def bench_fixture():
    path = ROOT / 'bench' / 'stability.py'
    spec = importlib.util.spec_from_file_location('bench_stability_picture', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def names(axis):
    return [tick.get_text() for tick in axis.get_yticklabels()]


def crosses(axis):
    return sum(line.get_marker() == 'X' for line in axis.get_lines())


def test_axes_are_logarithmic_and_say_what_they_show(result):
    norms, calls = draw(result).axes
    assert {axis.get_xscale() for axis in (norms, calls)} == {'log'}
    assert '% of the largest output' in norms.get_xlabel() and 'float64' in norms.get_xlabel()
    assert 'mrad' in calls.get_xlabel() and 'float64' in calls.get_xlabel()
    assert all(axis.get_ylabel() == 'regime' and axis.get_title(loc='left')
               for axis in (norms, calls))


def test_every_regime_and_variant_has_its_place(result):
    figure = draw(result)
    first_lines = [name.partition('\n')[0] for name in names(figure.axes[0])]
    streams = ['residual, stream', 'endless, stream']
    assert sorted(first_lines) == sorted([*REGIMES, *streams])
    assert len(figure.axes[0].get_lines()) == 2 * 4 * len(first_lines)
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert list(SERIES) == legend[:5]


def test_a_line_goes_from_mean_to_largest(result):
    line = draw(result).axes[1].get_lines()[0]
    assert list(line.get_xdata()) == pytest.approx([2.0, 5.0]), 'mrad'


def test_first_failures_are_named_and_marked(result):
    norms, calls = draw(result).axes
    assert 'overflowed\nfirst NaN: step 5' in names(norms)
    assert any(name.startswith('extreme\nfirst flushed to zero: step') for name in names(norms))
    assert 'normal' in names(norms)
    assert (crosses(norms), names(calls), crosses(calls)) == (8, ['normal\nfirst NaN: call 7'], 1)


def test_without_a_failure_nothing_is_marked_can_fail(result):
    kept = [row for row in result['summary']['norms'] if row['first_failure_step'] is None]
    (axis,) = draw({'summary': {'norms': kept, 'calls': []}}).axes
    assert crosses(axis) == 0 and not any('\n' in name for name in names(axis))


def test_draw_writes_beside_the_newest_result_alone(result, bench, tmp_path):
    for name in ('20260101T000000Z-aaaaaaa', '20260102T000000Z-bbbbbbb'):
        (tmp_path / f'{name}.json').write_text(json.dumps(result), encoding='utf-8')
    assert bench.main(['--draw', '--out', str(tmp_path)]) == 0
    (picture,) = tmp_path.glob('*.png')
    assert picture.stem == '20260102T000000Z-bbbbbbb'
    with Image.open(picture) as image:
        assert 1000 <= image.width <= 1400 and len(image.convert('L').getcolors()) > 10


def test_draw_without_a_result_says_so(bench, tmp_path):
    with pytest.raises(SystemExit, match='no result'):
        bench.main(['--draw', '--out', str(tmp_path)])


def test_the_page_shows_the_stored_picture():
    newest = max((ROOT / 'results' / 'stability').glob('*.json'))
    assert newest.with_suffix('.png').is_file()
    page = (ROOT / 'docs' / 'stability.md').read_text(encoding='utf-8')
    assert f'](../results/stability/{newest.stem}.png)' in page
