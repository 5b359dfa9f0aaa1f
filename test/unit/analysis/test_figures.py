from __future__ import annotations

import math

import numpy as np
import pytest

from reflex_ros.analysis.figures import MEANINGS, analyse, meaning
from reflex_ros.analysis.intervals import (
    NOTHING,
    Estimate,
    clustered,
    difference,
    greatest,
    proportion,
    quantile,
)
from reflex_ros.core.clock import MS
from reflex_ros.core.summary import summarise
from reflex_ros.core.types import Cause


@pytest.fixture(scope='module')
def found(stalled_bag):
    return analyse(stalled_bag)


def test_figures_are_those_of_the_ledger(found, stalled):
    log = stalled.run.log
    truth = summarise(log.ticks, log.traces, period_ns=20 * MS)
    assert found.summary == truth
    assert found.figures['stall_ratio'].value == truth.stall_ratio > 0.1
    assert found.figures['stalled_chunks'].value == truth.stalled_chunks
    assert found.figures['uncovered_share'].value == truth.uncovered_share
    assert found.figures['reaction_p95_ms'].value == truth.reaction_ms['p95']
    assert found.figures['denoise_p50_ms'].value == truth.stage_ms['denoise']['p50']


def test_a_wrong_tick_can_fail_the_comparison_with_the_ledger(found, stalled):
    log = stalled.run.log
    other = summarise(log.ticks[:-1], log.traces, period_ns=20 * MS)
    assert found.summary != other


def test_every_figure_has_a_meaning_and_an_interval_around_it(found):
    assert set(MEANINGS) <= set(found.figures)
    for name, estimate in found.figures.items():
        assert meaning(name).unit in ('share', 's', 'ms', 'deg', 'deg/s', 'count')
        if estimate.is_measured:
            assert estimate.low <= estimate.value <= estimate.high
            assert estimate.n > 0


def test_stalled_ticks_of_the_stalls_are_those_of_the_ratio(found):
    assert sum(s.stalled_ticks for s in found.stalls) == found.summary.stalled_ticks > 0


def test_every_tick_that_was_not_fresh_has_a_cause(found):
    assert found.figures['unexplained_ticks'].value == 0


def test_a_stall_has_its_chain_from_the_frame_to_the_first_command(found):
    stall = max(found.stalls, key=lambda s: s.duration_ms)
    assert stall.cause is Cause.DENOISE_LATE and stall.ended_by
    ending = stall.chains[-1]
    assert ending.steps[-1].name == 'first command'
    assert ending.steps[-1].end_ms == pytest.approx(stall.duration_ms, abs=21)
    starts = [step.start_ms for step in ending.steps]
    assert starts == sorted(starts)
    refused = stall.chains[0]
    assert refused.fate == 'rejected' and 'last row was due' in refused.text
    assert refused.longest.name == 'wait', 'the padding of the slow step is no stage of its own'
    assert refused.longest.end_ms - refused.longest.start_ms > 1000


def test_cameras_are_read_from_their_pictures(found):
    assert [c.name for c in found.cameras] == ['/camera/main/image_raw', '/camera/wrist/image_raw']
    assert {(c.period_ms, c.missing) for c in found.cameras} == {(40.0, 0)}
    assert found.figures['camera_skew_p95_ms'].value == 0.0


def test_cameras_that_do_not_expose_together_have_a_skew(recorded_scene, tmp_path):
    """The encoder pairs each frame of the primary with the newest of the other one."""
    from dataclasses import replace

    scene = recorded_scene(duration_s=1.5, cameras=('main', 'wrist'))
    on_frame = scene.run.encoder.on_frame

    def late(frame):
        is_other = frame.camera == 'wrist'
        on_frame(replace(frame, stamp_ns=frame.stamp_ns - 25 * MS) if is_other else frame)

    scene.run.encoder.on_frame = late
    bag = scene.finish().write(tmp_path / 'bag', images=False)
    found = analyse(bag)
    assert found.figures['camera_skew_p95_ms'].value == 25.0
    assert {c.seen_by for c in found.cameras} == {'blocks'}
    assert found.figures['camera_missing_share'] == NOTHING


def test_a_run_folder_is_read_from_its_ledger(stalled, stalled_bag, tmp_path):
    import shutil

    from reflex_ros.core.clock import Instant
    from reflex_ros.core.ledger import LedgerWriter

    ticks = stalled.run.log.ticks
    start = Instant(ticks[0].due_ns, ticks[0].stamp_ns)
    with LedgerWriter.create(tmp_path / 'ledger.bin', period_ns=20 * MS, start=start) as ledger:
        for tick in ticks:
            ledger.append(tick)
    assert analyse(tmp_path).notes[0].startswith('no bag')
    shutil.copytree(stalled_bag, tmp_path / 'bag')
    found = analyse(tmp_path)
    assert (found.run.ticks_from, found.notes) == ('ledger', ())
    assert found.summary.verdicts == analyse(stalled_bag).summary.verdicts


# ---- intervals ---------------------------------------------------------------------------------


def test_the_interval_of_a_quantile_covers_it_in_95_of_100():
    rng = np.random.default_rng(5)
    truth = math.exp(1.6448536)
    draws = [quantile(np.exp(rng.standard_normal(300)), 0.95) for _ in range(400)]
    assert 0.92 < np.mean([d.low <= truth <= d.high for d in draws]) <= 1.0


def test_few_samples_leave_an_end_open():
    assert quantile(range(10), 0.95).high == math.inf
    assert quantile([], 0.5) == NOTHING
    assert not NOTHING.is_measured
    assert greatest([1.0, 3.0]).value == 3.0


def test_blocks_widen_the_interval_of_a_share():
    hits = np.zeros(60)
    hits[[3, 40]] = 50
    blocks = clustered(hits, np.full(60, 50))
    apart = proportion(100, 3000)
    assert blocks.value == apart.value
    assert blocks.high - blocks.low > 2 * (apart.high - apart.low)


def test_a_share_of_nothing_seen_is_not_certain():
    none = clustered(np.zeros(60), np.full(60, 50))
    assert none.value == none.low == 0.0 and 0.04 < none.high < 0.08


def test_the_difference_of_equal_figures_holds_zero():
    low, high = difference(Estimate(0.5, 0.4, 0.6, 9), Estimate(0.5, 0.45, 0.55, 9))
    assert low < 0 < high
    low, high = difference(Estimate(0.9, 0.8, 1.0, 9), Estimate(0.5, 0.45, 0.55, 9))
    assert low > 0
    assert difference(NOTHING, Estimate(1, 1, 1, 1)) == (-math.inf, math.inf)
