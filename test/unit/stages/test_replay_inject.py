"""Injected latencies are met in every short run, whatever was recorded."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest

from reflex_ros.core.clock import MS
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.stats import quantiles
from reflex_ros.stages.replay_costs import Distribution, Samples, make_latencies
from reflex_ros.stages.replay_inject import FrameDrops, check_injections, parse_injections

CALLS = (50, 75, 200)
SEEDS = range(10)
RECORDINGS = {
    'steady': [15 * MS + n % 5 * MS for n in range(80)],
    'one spike': [150 * MS if n == 20 else 15 * MS + n % 5 * MS for n in range(80)],
    'skewed': (15 * MS * np.exp(0.15 * np.random.default_rng(0).normal(size=90))).astype(
        int).tolist(),
    'few': [12 * MS, 15 * MS, 19 * MS],
    'nothing': [0],
}


def drawn(inject, recording, *, calls, seed, is_timed=True):
    """Return the durations of a stage's calls, ms."""
    at_ns = iter(range(0, 10**12, 80 * MS))
    samples = Samples(tuple(range(0, len(recording) * 80 * MS, 80 * MS)), tuple(recording))
    table = make_latencies({'denoise': samples}, parse_injections([inject]).stages,
                           now=lambda: next(at_ns), is_timed=is_timed).table
    return np.array([table['denoise'].duration_ns(n, (seed, 7)) for n in range(calls)]) / MS


@pytest.mark.parametrize('recording', RECORDINGS.values(), ids=RECORDINGS)
@pytest.mark.parametrize(('inject', 'quantile', 'want_ms'), [
    ('denoise.p95=120ms', 'p95', 120.0),
    ('denoise.p95=120ms,spike=400ms@3%', 'p95', 120.0),
    ('denoise.p95=120ms,spike=400ms@3%,denoise.add=20ms', 'p95', 140.0),
    ('denoise.p90=80ms,spike=5ms@5%', 'p90', 80.0),
    ('denoise.p50=60ms,spike=400ms@10%', 'p50', 60.0),
    ('denoise=45ms,spike=400ms@3%', 'p90', 45.0),
    ('denoise=45ms,denoise.add=5ms', 'p99', 50.0),
])
def test_what_is_asked_for_is_there_within_five_percent(recording, inject, quantile, want_ms):
    for calls in CALLS:
        for seed in SEEDS:
            found = quantiles(drawn(inject, recording, calls=calls, seed=seed))
            assert found[quantile] == pytest.approx(want_ms, rel=0.05), (calls, seed)


def test_a_quantile_that_does_not_count_the_spikes_can_fail():
    recording = sorted(np.exp(0.5 * np.random.default_rng(0).normal(size=90)).tolist())
    wrong = [120 * value / recording[ceil(0.95 * 90) - 1] for value in recording]
    draw = Distribution(tuple(round(value * MS) for value in wrong))
    calls = sorted(draw.duration_ns(n, (0, 7)) / MS for n in range(194)) + [400.0] * 6
    assert quantiles(calls)['p95'] != pytest.approx(120.0, rel=0.05)


@pytest.mark.parametrize('inject', ['denoise.spike=400ms@3%', 'denoise=45ms,spike=400ms@10%',
                                    'denoise.p50=60ms,spike=7ms@10%'])
def test_spikes_have_their_share_and_last_as_long_as_asked(inject):
    want = parse_injections([inject]).stages['denoise']
    for calls in CALLS:
        for seed in SEEDS:
            found = drawn(inject, RECORDINGS['steady'], calls=calls, seed=seed)
            spikes = (found == want.spike_ns / MS).sum()
            assert abs(spikes - want.spike_share * calls) <= 2, (calls, seed)


def test_an_addition_alone_keeps_the_recorded_calls_in_their_order():
    recording = RECORDINGS['one spike']
    found = drawn('denoise.add=20ms', recording, calls=80, seed=0)
    assert np.array_equal(found, np.array(recording) / MS + 20)


def test_drawn_calls_with_spikes_still_have_the_recorded_distribution():
    recording = sorted(RECORDINGS['skewed'])
    found = drawn('denoise.spike=400ms@10%', recording, calls=200, seed=3, is_timed=False)
    rest = quantiles(found[found < 400])
    assert rest['p50'] == pytest.approx(recording[44] / MS, rel=0.03)
    assert rest['max'] == pytest.approx(recording[-1] / MS, rel=0.03)


@pytest.mark.parametrize(('text', 'said'), [
    ('denoise=40ms,denoise=50ms', 'a second one of its kind'),
    ('spike=40ms@1%,denoise.spike=50ms@1%', 'a second one of its kind'),
    ('denoise.p50=40ms,denoise.p95=50ms', 'a second one of its kind'),
    ('drop=camera.main@1%,drop=camera.main@2%', 'a second one of its kind'),
    ('denoise=40ms,denoise.p95=50ms', 'got both'),
    ('denoise.p99=120ms,spike=400ms@3%', r'spikes in 3 %'),
    ('denoise.p97=120ms,spike=400ms@3%', r'spikes in 3 %'),
    ('denoise.p5=120ms,spike=1ms@10%', r'spikes in 10 %'),
    ('denoise.p50=120ms,spike=400ms@100%', r'spikes in 100 %'),
])
def test_contradictions_are_refused(text, said):
    with pytest.raises(ConfigError, match=said):
        parse_injections([text])


@pytest.mark.parametrize(('policy', 'inject'), [
    ('oracle', 'publish=1ms'), ('tiny', 'vision=1ms'), ('pi0', 'encode=1ms'),
    ('smolvla', 'drop=camera.top@1%'),
])
def test_what_a_policy_does_not_have_is_refused(policy, inject):
    asked = parse_injections([inject])
    with pytest.raises(ConfigError, match='expected one of'):
        check_injections(asked, policy=policy, cameras=('main',))


def test_what_a_policy_has_can_be_injected():
    for policy, inject in (('oracle', 'encode=1ms,transport=1ms'), ('tiny', 'publish=1ms'),
                           ('pi05', 'vision=1ms,decode=1ms,drop=camera.main@1%')):
        check_injections(parse_injections([inject]), policy=policy, cameras=('main',))


def test_dropped_frames_have_their_share():
    for seed in SEEDS:
        drops = FrameDrops({'main': 0.1}, seed)
        lost = sum(drops.is_lost('main') for _ in range(100))
        assert abs(lost - 10) <= 1 and drops.dropped == {'main': lost}
        assert not any(drops.is_lost('wrist') for _ in range(10))


@pytest.mark.parametrize('text', [
    'denoise=99999999999999999999s', f'denoise={"9" * 400}s', 'denoise.p95=601s',
    'denoise.add=601000ms', 'denoise.spike=700s@3%'])
def test_a_duration_that_no_run_survives_is_refused(text):
    with pytest.raises(ConfigError, match=r'expected at most 600 \(s\)'):
        parse_injections([text])


def test_the_bound_of_durations_can_fail():
    parse_injections(['denoise=600s', 'encode.spike=600s@3%'])
