"""The advice follows from the figures: stalls, then reaction, then seams; ties keep what is."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from reflex_ros.bag.encode import write_run
from reflex_ros.bringup.advise import Option, choose
from reflex_ros.cli.main import main
from reflex_ros.study.episode import EpisodeSpec, run_episode


def option(name, stall, reaction, seam):
    after = SimpleNamespace(
        summary=SimpleNamespace(stall_ratio=stall, observation_to_command={'p95': reaction}),
        seam_rad={'p95': seam})
    return Option(name, {}, done=SimpleNamespace(replayed=after))


BASE = option('base', 0.05, 150.0, 0.10)


@pytest.mark.parametrize(('others', 'best'), [
    ([option('live', 0.0, 300.0, 0.5)], 'live'),
    ([option('fast', 0.05, 110.0, 0.5)], 'fast'),
    ([option('smooth', 0.05, 165.0, 0.05)], 'smooth'),
    ([option('same', 0.0502, 155.0, 0.095)], 'base'),
    ([option('worse', 0.2, 100.0, 0.01)], 'base'),
    ([option('unknown', float('nan'), 1.0, 0.0)], 'base'),
])
def test_the_first_figure_that_differs_decides(others, best):
    assert choose(BASE, [BASE, *others], row_ms=20.0).name == best


@pytest.fixture(scope='module')
def naive_bag(tmp_path_factory):
    """Return a run in sync, which waits for every chunk."""
    folder = tmp_path_factory.mktemp('run') / 'bag'
    log = run_episode(EpisodeSpec(mode='sync', duration_s=3.0, seed=2, denoise_ms=60.0)).log
    write_run(folder, [*log.ticks, *log.traces, *log.stalls, *log.truths])
    return folder


def test_a_run_that_waits_is_told_to_overlap(naive_bag, tmp_path, capsys):
    out = tmp_path / 'advice.json'
    assert main(['advise', str(naive_bag), '--policy', 'oracle', '--json', str(out),
                 '-p', 'chunk.mode:=sync', '-p', 'chunk.horizon:=8']) == 0
    advice = json.loads(out.read_text(encoding='utf-8'))
    assert advice['recorded']['stall_ratio'] > 0.3 > advice['best']['stall_ratio']
    assert advice['best']['parameters']['chunk.mode'] != 'sync'
    assert advice['overlap_steps'] >= 4 and advice['horizon'] >= 4
    rtc = next(o for o in advice['options'] if o['parameters']['chunk.stitch'] == 'rtc')
    assert rtc['why_not']  # the oracle cannot be guided
    assert '<- use this' in capsys.readouterr().out
