"""The advice follows from the figures: stalls, reaction, smoothness; ties keep what is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from reflex_ros.bag.encode import write_run
from reflex_ros.bringup.advise import _Desk
from reflex_ros.bringup.advise_figures import Outcome, Smoothness, smoothness
from reflex_ros.bringup.advise_rules import (
    Measured,
    Option,
    choose,
    forbidden,
    option_of,
    tried,
)
from reflex_ros.bringup.replay_input import ReplaySpec, open_source
from reflex_ros.cli.main import main
from reflex_ros.core.stats import quantiles
from reflex_ros.core.types import ArmState, Mode, Stitch, Verdict
from reflex_ros.study.episode import EpisodeSpec, run_episode

RECORDED = Path(__file__).parents[2] / 'data' / 'replay'


def option(name, stall, reaction, jerk):
    return Option(name, {}, outcome=Outcome(stall, reaction, 1.0, Smoothness(jerk, 1.0, 0.0), 9))


BASE = option('base', 0.05, 150.0, 0.10)


@pytest.mark.parametrize(('others', 'best'), [
    ([option('live', 0.0, 300.0, 0.5)], 'live'),
    ([option('fast', 0.05, 110.0, 0.15)], 'fast'),
    ([option('smooth', 0.05, 165.0, 0.05)], 'smooth'),
    ([option('same', 0.0502, 155.0, 0.095)], 'base'),
    ([option('worse', 0.2, 100.0, 0.01)], 'base'),
    ([option('unknown', float('nan'), 1.0, 0.0)], 'base'),
])
def test_the_first_figure_that_differs_decides(others, best):
    assert choose(BASE, [BASE, *others], row_ms=20.0, seam_deg=8.0).name == best


def rough(**changed):
    found = {'jerk_rad_s3': 0.1, 'acceleration_rad_s2': 1.0, 'limited_share': 0.0, 'seam': 1.0,
             **changed}
    seam = found.pop('seam')
    return Option('fast', {}, outcome=Outcome(0.05, 110.0, seam, Smoothness(**found), 9))


@pytest.mark.parametrize(('changed', 'best'), [
    ({}, 'fast'), ({'limited_share': 0.496}, 'base'), ({'seam': 17.0}, 'base'),
    ({'jerk_rad_s3': 0.3}, 'base'),
])
def test_a_faster_reaction_is_not_bought_with_rough_commands(changed, best):
    chosen = choose(BASE, [BASE, rough(**changed)], row_ms=20.0, seam_deg=8.0)
    assert chosen.name == best


def test_a_setting_that_cannot_work_is_none_to_keep():
    assert choose(BASE, [], row_ms=20.0, seam_deg=8.0) is None
    assert not replace(BASE, why_not=('too old',)).is_usable


@pytest.mark.parametrize(('stalls', 'rules', 'mode', 'is_usable'), [
    (0.897, (), 'reflex', False), (0.897, (), 'sync', True), (0.0, ('too old',), 'reflex', True),
    (0.3, ('too old',), 'reflex', False), (float('nan'), (), 'reflex', False),
])
def test_a_replay_may_refute_the_rules_and_itself_forbid(stalls, rules, mode, is_usable):
    known = replace(option('x', stalls, 100.0, 1.0), why_not=rules)
    assert tried(known, {'chunk.mode': mode}).is_usable == is_usable


@pytest.mark.parametrize(('mode', 'delta_ms', 'is_refused'), [
    ('sync', 489.0, False), ('sync', 700.0, True), ('reflex', 489.0, True),
])
def test_the_age_limit_is_that_of_the_bridge(moving, mode, delta_ms, is_refused):
    source = open_source(ReplaySpec(moving, overrides={'policy.name': 'oracle'}))
    slow = replace(MEASURED, latency_ms={**TIMES, 'p95': 431.0}, rows=50,
                   delta_ms={**TIMES, 'p95': delta_ms})
    why_not = forbidden({**source.values, 'chunk.mode': mode}, slow)
    assert any(why.startswith('too old') for why in why_not) == is_refused


def bag_of(folder, **spec):
    log = run_episode(EpisodeSpec(**spec)).log
    write_run(folder, [*log.ticks, *log.traces, *log.stalls, *log.truths])
    return folder


@pytest.fixture(scope='module')
def waiting(tmp_path_factory):
    """Return a run in sync, which waits for every chunk."""
    return bag_of(tmp_path_factory.mktemp('run') / 'bag', mode='sync', duration_s=2.2, seed=2,
                  denoise_ms=60.0)


@pytest.fixture(scope='module')
def moving(tmp_path_factory):
    """Return a run after a target that jumps: the plans of neighbouring chunks lie far apart."""
    return bag_of(tmp_path_factory.mktemp('run') / 'bag', task='follow', duration_s=2.6, seed=2,
                  denoise_ms=60.0)


@pytest.fixture(scope='module')
def resting(tmp_path_factory):
    """Return a run in which the target rests: all chunks say the same."""
    return bag_of(tmp_path_factory.mktemp('run') / 'bag', task='hold', duration_s=1.6, seed=2,
                  denoise_ms=60.0)


@pytest.fixture
def advised(tmp_path, capsys):
    """Return the function that gives the advice for a bag, and what was printed."""
    def ask(bag, *options):
        out = tmp_path / 'advice.json'
        code = main(['advise', str(bag), '--policy', 'oracle', '--json', str(out), *options])
        advice = json.loads(out.read_text(encoding='utf-8'))
        assert code == (0 if advice['is_possible'] else 5)
        return advice, capsys.readouterr().out

    return ask


def by_stitch(advice, mode, stitch):
    return next(o for o in advice['options'] if o['parameters']['chunk.stitch'] == stitch
                and o['parameters']['chunk.mode'] == mode)


def test_a_run_that_waits_is_told_to_overlap(waiting, advised):
    advice, said = advised(waiting, '-p', 'chunk.mode:=sync', '-p', 'chunk.horizon:=8')
    assert advice['recorded']['stall_ratio'] > 0.3 > advice['best']['stall_ratio']
    assert advice['best']['parameters']['chunk.mode'] != 'sync'
    assert advice['mode'] == advice['best']['parameters']['chunk.mode']
    assert advice['overlap_steps'] >= 4 and advice['horizon'] >= advice['delay_rows'] == 3
    assert advice['rows'] == 8, 'the chunks of sync are cut to what it executes'
    assert by_stitch(advice, 'reflex', 'rtc')['why_not']  # the oracle cannot be guided
    assert '<- use this' in said and 'in this run: stalls' in said
    for word in ('mode', 'stitcher', 'overlap', 'horizon', 'rate', 'cannot work here'):
        assert f'  {word}' in said or word in said


def test_big_seams_that_were_replaced_are_told_to_blend(moving, advised):
    advice, said = advised(moving, '-p', 'chunk.stitch:=replace')
    assert advice['stitch'] == 'blend' and 'stitcher  blend' in said
    blend, plain = (by_stitch(advice, 'reflex', stitch) for stitch in ('blend', 'replace'))
    assert plain['seam_p95_deg'] > 3 and blend['seam_p95_deg'] > 3, 'the same plans'
    assert blend['jerk_rms_rad_s3'] < 0.8 * plain['jerk_rms_rad_s3']
    assert 'jerk rad/s3' in said and 'instead of' in said


def test_big_seams_can_fail(resting, advised):
    """Without seams there is nothing to blend, and what was recorded stays."""
    advice, said = advised(resting, '-p', 'chunk.stitch:=replace')
    assert advice['stitch'] == 'replace' and 'keep the recorded settings' in said


def test_a_delay_beyond_the_chunk_is_infeasible_with_its_numbers(moving, advised):
    advice, said = advised(moving, '-p', 'chunk.horizon:=8', '--inject', 'denoise=400ms')
    assert advice['recorded']['why_not'] and 'keep the recorded' not in said
    assert advice['mode'] == 'sync' and advice['entry_row'] == advice['overlap_steps'] == 0
    assert 1.0 < advice['replan_hz'] < 2.4, 'that of the replay: 0.4 s of L and 0.1 s of rows'
    for stitch in ('blend', 'replace'):
        why = by_stitch(advice, 'reflex', stitch)['why_not']
        assert why[0] == 'L 400 ms = 20 rows' and 'runs out: row 20 of 8 is needed' in why
    assert 'L is 20 rows, chunks of 8 rows run out' in said and 'its chunks longer' in said


def test_a_delay_beyond_the_chunk_can_fail(moving, advised):
    """The same chunks at the recorded delay."""
    advice, _ = advised(moving, '-p', 'chunk.horizon:=8')
    assert advice['is_possible'] and not by_stitch(advice, 'reflex', 'blend')['why_not']


# ---- guidance ----------------------------------------------------------------------------------

TIMES = dict.fromkeys(quantiles([1.0]), 60.0) | {'n': 9}
MEASURED = Measured(TIMES, {**TIMES, 'p95': 95.0}, rows=12, step_ns=20_000_000, camera_ms=40.0,
                    denoise_ms=50.0)


def test_guidance_that_costs_too_much_is_infeasible(moving):
    source = open_source(ReplaySpec(moving, overrides={'policy.name': 'oracle'}))
    free, dear = (option_of(source, replace(MEASURED, guided=cost), Mode.REFLEX, Stitch.RTC)
                  for cost in (1.0, 6.0))
    assert (free.more_ms, free.why_not) == (0.0, ())
    assert dear.more_ms == 250.0 and dear.why_not[0] == 'L 310 ms = 16 rows'
    assert not option_of(source, replace(MEASURED, guided=6.0), Mode.REFLEX, Stitch.BLEND).why_not


def test_what_guidance_costs_is_added_to_the_replay():
    desk = _Desk(ReplaySpec(Path('bag')), None)
    assert desk._injections(12.5).stages['denoise'].add_ns == 12_500_000
    assert desk._injections(0.0) is desk.spec.injections


def test_the_cost_of_guidance_is_measured_with_the_policy(moving):
    pytest.importorskip('torch', reason='tiny needs torch')
    from reflex_ros.bringup.guided_cost import guided_cost

    assert guided_cost(open_source(ReplaySpec(moving, overrides={'policy.name': 'oracle'}))) == 1.0
    assert 1.0 < guided_cost(open_source(ReplaySpec(RECORDED))) < 20.0


# ---- smoothness --------------------------------------------------------------------------------


def ticks_of(commands, *, skipped=()):
    return [SimpleNamespace(index=i, command=np.full(7, c), arm_state=ArmState.TRACKING,
                            verdict=Verdict.FRESH)
            for i, c in enumerate(commands) if i not in skipped]


def test_a_step_of_the_commands_is_rough_and_a_parabola_is_not():
    times = np.arange(60) * 0.02
    smooth = smoothness(ticks_of(times**2), 20_000_000)
    assert smooth.jerk_rad_s3 == pytest.approx(0.0, abs=1e-6)
    assert smooth.acceleration_rad_s2 == pytest.approx(2.0)
    step = smoothness(ticks_of(times**2 + 0.01 * (times > 0.5)), 20_000_000)
    assert step.jerk_rad_s3 > 100 and step.acceleration_rad_s2 > 20


def test_commands_with_a_tick_between_them_are_not_neighbours():
    times = np.arange(60) * 0.02
    rough = ticks_of(times + 0.5 * (times > 0.5), skipped=(25, 26))
    assert smoothness(rough, 20_000_000).jerk_rad_s3 == pytest.approx(0.0, abs=1e-6)
