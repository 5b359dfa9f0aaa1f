"""A new frame costs the same whatever the window, and a cost that grows would show."""

from __future__ import annotations

import argparse
import dataclasses
import json

import numpy as np
import pytest

from reflex_ros.infer.families.tiny_network import TinyConfig
from reflex_ros.study.bench_run import INTERRUPTED, main_of
from reflex_ros.study.new_frame import BENCH, OURS, WHOLE, Stream, count_new_frame, growth, judge
from reflex_ros.study.random_tiny import random_tiny

SMALL = TinyConfig(
    image_size=16, vision_layers=1, layers=2, width=12, heads=2, kv_heads=1, head_dim=6,
    gate_hidden=8, horizon=10, rows_per_token=5, instruction_tokens=4, vocabulary=11, tau_dim=6,
)  # fmt: skip


@pytest.fixture(scope='module')
def found():
    options = argparse.Namespace(windows=3, rounds=2, warmup=1, seed=0, config=SMALL)
    return BENCH.run(options, lambda: None)


def test_counts_do_not_depend_on_the_window(found):
    ours = found['variants'][OURS]
    assert found['equal_counts']
    assert len(set(ours['operations'])) == len(set(ours['multiply_accumulates'])) == 1


def test_equal_counts_can_fail(found):
    whole = found['variants'][WHOLE]
    first, second, third = whole['multiply_accumulates']
    assert first < second < third


def test_one_frame_of_ours_computes_what_one_frame_of_the_whole_window_does():
    stream = Stream(random_tiny(SMALL))
    assert count_new_frame(stream).macs * SMALL.window == count_new_frame(stream, WHOLE).macs
    stream.close()


def test_the_staged_frame_is_what_the_whole_window_gives():
    stream = Stream(random_tiny(SMALL))
    whole = stream.whole_window().numpy()
    staged = np.stack(stream.staging)
    assert np.abs(np.sort(whole.sum((1, 2, 3, 4, 5))) - np.sort(staged.sum((1, 2, 3, 4, 5)))
                  ).max() < 1e-4
    stream.close()


def test_growth_is_a_share_with_an_interval_and_judged():
    windows, noise = [1, 2, 3, 4], np.random.default_rng(0).normal(0, 0.1, (50, 4))
    flat = growth(windows, 100 + noise, 0)
    steep = growth(windows, 100 + 10 * np.arange(4) + noise, 0)
    assert abs(flat['growth']) < 0.01 and judge(flat['low'], flat['high']) == 'pass'
    assert steep['growth'] == pytest.approx(0.3, abs=0.01)
    assert judge(steep['low'], steep['high']) == 'fail'
    assert judge(-0.1, 0.2) == 'not decided'


def test_figures_lines_and_picture_come_from_plain_types(found):
    stored = json.loads(json.dumps(found))
    text = '\n'.join(BENCH.lines(stored))
    assert 'are the same for every window from 1 to 3' in text
    assert len(BENCH.draw(stored).axes) == 2


def test_the_command_writes_result_and_picture(tmp_path, monkeypatch, capsys, found):
    quick = dataclasses.replace(BENCH, run=lambda options, tick: found)
    assert main_of(quick, ['--out', str(tmp_path), '--rounds', '2']) == 0
    (result,) = tmp_path.glob('*.json')
    stored = json.loads(result.read_text(encoding='utf-8'))
    assert stored['n'] == 2 and stored['machine']['cpu'] and stored['tag'] == 'measured'
    assert 'host' not in json.dumps(stored).lower()
    assert result.with_suffix('.png').stat().st_size > 1000


def test_a_folder_that_cannot_be_made_is_refused_before_measuring(tmp_path, capsys):
    def run(*_):
        pytest.fail('it measured')

    (tmp_path / 'file').write_text('')
    bench = dataclasses.replace(BENCH, run=run)
    assert main_of(bench, ['--out', str(tmp_path / 'file' / 'below')]) == 2
    assert len([line for line in capsys.readouterr().err.splitlines() if 'folder' in line]) == 1


def test_an_interrupted_bench_writes_nothing(tmp_path, capsys):
    def stop(options, tick):
        raise KeyboardInterrupt

    assert main_of(dataclasses.replace(BENCH, run=stop), ['--out', str(tmp_path)]) == INTERRUPTED
    assert not list(tmp_path.iterdir())
    assert 'interrupted' in capsys.readouterr().err
