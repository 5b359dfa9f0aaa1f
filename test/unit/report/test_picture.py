from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from reflex_ros.core.types import Verdict
from reflex_ros.report.picture import COLORS, draw_run, write_picture
from reflex_ros.report.run_data import Run
from reflex_ros.report.stalls import find_stalls, longest, spans


@pytest.fixture(scope='module')
def pixels(folder):
    with Image.open(write_picture(folder)) as image:
        return np.asarray(image.convert('RGB'))


def share(pixels, color):
    rgb = [int(color[i : i + 2], 16) for i in (1, 3, 5)]
    return float((pixels == rgb).all(axis=2).mean())


def test_the_picture_has_its_size_and_is_not_empty(pixels):
    assert pixels.shape == (1200, 1680, 3)
    assert share(pixels, '#ffffff') < 0.95


def test_every_verdict_of_the_run_is_to_be_seen(pixels, run):
    used = {verdict for verdict, _, _ in spans(run.records, run.period_ns)}
    for verdict in used:
        assert share(pixels, COLORS[verdict]) > 0.0005, verdict


def test_verdicts_that_did_not_happen_are_not_to_be_seen(folder, run):
    calm = replace(run, records=run.records[run.records['verdict'] != 2])
    used = {verdict for verdict, _, _ in spans(calm.records, calm.period_ns)}
    assert Verdict.HELD not in used


def test_stalls_are_those_of_the_events(run, episode):
    stalls = find_stalls(run.records, run.period_ns)
    within = [event for event in episode.log.stalls if event.first_index * 0.02 > 0.8]
    assert len(stalls) >= len(within) > 0
    assert {stall.cause for stall in stalls} == {'sync_wait'}
    total_s = sum(stall.end_s - stall.start_s for stall in stalls)
    assert total_s == pytest.approx(episode.summary.stalled_ticks * 0.02)


def test_spans_cover_the_run_without_a_hole(run):
    found = spans(run.records, run.period_ns)
    assert found[0][1] == 0.0
    assert found[-1][2] == pytest.approx(run.duration_s)
    assert all(a[2] == pytest.approx(b[1]) for a, b in zip(found, found[1:], strict=False))
    assert all(a[0] is not b[0] for a, b in zip(found, found[1:], strict=False))


def test_the_longest_stalls_come_first(run):
    lengths = [stall.end_s - stall.start_s for stall in longest(find_stalls(
        run.records, run.period_ns), 3)]
    assert lengths == sorted(lengths, reverse=True)


@pytest.mark.parametrize('part', ['nothing', 'no truths', 'no frames', 'no traces', 'one tick'])
def test_a_run_that_lacks_something_is_drawn_as_well(run, part, tmp_path):
    bare = {
        'nothing': Run(run.records[:0], run.period_ns),
        'no truths': replace(run, truths=()),
        'no frames': replace(run, frames=()),
        'no traces': replace(run, traces=()),
        'one tick': Run(run.records[:1], run.period_ns),
    }[part]
    draw_run(bare).savefig(tmp_path / 'x.png', dpi=30)


def test_many_frames_become_a_strip(run):
    # The first two were taken before the control loop started.
    frames = tuple((run.frames[0][0] + i - 2, run.frames[0][1]) for i in range(32))
    figure = draw_run(replace(run, frames=frames))
    assert sum(bool(axes.images) for axes in figure.axes) == 10
