"""Tails, table and picture of the tick bench."""

from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.study.tick_report import draw, tails, tick_lines


def test_tails_are_samples_that_occurred():
    found = tails(np.arange(1, 10_001))
    assert (found['p50'], found['p99'], found['p99_9'], found['max'], found['n']) == (
        5000, 9900, 9990, 10_000, 10_000)


def test_one_slow_tick_of_a_thousand_is_the_maximum_and_not_the_p99_9():
    samples = np.ones(1000)
    samples[7] = 50.0
    assert (tails(samples)['p99_9'], tails(samples)['max']) == (1.0, 50.0)


def test_tails_can_fail():
    samples = np.ones(1000)
    samples[:2] = 50.0
    assert tails(samples)['p99_9'] == 50.0


def result(share=0.2):
    def cell(rate_hz, load):
        return {'rate_hz': rate_hz, 'load': load, 'programs': 2 * (load == 'loaded'),
                'late_ms': tails(np.linspace(0.01, 4.0, 500)), 'late_share': 0.001,
                'bridge_cpu_share': share, 'cpu_seconds': 60.0, 'joint_states_per_tick': 1.0,
                'is_realtime': True}

    call = tails(np.full(100, 0.2))
    cells = [cell(rate, load) for rate in (50.0, 200.0) for load in ('idle', 'loaded')]
    return {'summary': {'cells': cells, 'sdk': {'wall_ms': call, 'cpu_ms': call}}}


def test_the_table_has_a_row_for_each_cell_and_judges_the_cpu():
    text = '\n'.join(tick_lines(result()))
    assert text.count('| 50 Hz') == text.count('| 200 Hz') == 2
    assert 'uses 20.0 % of a core' in text and 'at most 25 %: pass' in text


@pytest.mark.parametrize('share', [0.26, 0.9])
def test_the_cpu_can_fail(share):
    assert 'at most 25 %: fail' in '\n'.join(tick_lines(result(share)))


def test_the_picture_has_a_panel_for_each_rate():
    figure = draw(result())
    assert [axis.get_title() for axis in figure.axes] == ['50 Hz', '200 Hz']


def test_the_table_says_what_ran_the_nodes_and_how_fast():
    found = result()
    for cell in found['summary']['cells']:
        cell['python'] = {'version': '3.11.2', 'compiler': 'GCC 12.2.0', 'loop': 10,
                          'loop_ms': 330.4}
    line = next(line for line in tick_lines(found) if line.startswith('The bridge at 50 Hz'))
    assert line.endswith('Python 3.11.2 (GCC 12.2.0); a plain loop of 10 additions took it 330 ms '
                         'of CPU time then.')
