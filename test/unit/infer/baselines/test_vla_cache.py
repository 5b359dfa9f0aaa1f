"""[ci] VLA-Cache on small Pi networks: exact where nothing changed, wrong where something did."""

from __future__ import annotations

import pytest

from reflex_ros.core.errors import ConfigError
from reflex_ros.infer.baselines.options import VlaOptions
from reflex_ros.infer.baselines.registry import open_prior
from reflex_ros.infer.baselines.vla_cache import VlaCache
from reflex_ros.study.op_counts import count_ops

ALL = {'ratio': 1.0, 'static_patches': 256, 'task_patches': 0, 'layers': (1, 2)}
EXACT = 1e-12


def error(prefix, wanted) -> float:
    rows = wanted.length
    return float((prefix.kv[:, :, :, :rows] - wanted.kv[:, :, :, :rows]).abs().max())


def after(stream, first, second, **options):
    """Return the error of the second prefix of a stream, and the cache."""
    cache = VlaCache(stream.policy, VlaOptions(**{**ALL, **options}))
    assert error(cache.encode(first), stream.full(first)) <= EXACT, 'the first is computed in full'
    return error(cache.encode(second), stream.full(second)), cache


@pytest.mark.parametrize('family', ['pi0', 'pi05'])
@pytest.mark.parametrize('layers', [(0,), (1, 2), (3,)])
def test_identical_input_is_exact_with_everything_reused(stream, family, layers):
    stream = stream(family)
    apart, cache = after(stream, stream.seen(), stream.seen(), layers=layers)
    assert apart <= EXACT
    assert cache.report()['reuse_ratio'] == pytest.approx((4 - layers[0]) / 4)


def test_a_changed_image_makes_an_error_that_the_check_can_fail(stream):
    stream = stream()
    apart, cache = after(stream, stream.seen(), stream.seen(block=20))
    assert 0 < cache.report()['reuse_ratio'] < 0.75
    assert apart > 1e-3


def test_changed_words_spoil_images_that_did_not_change(stream):
    stream = stream()
    apart, cache = after(stream, stream.seen(), stream.seen(ids=(3, 4, 5, 6, 9)))
    assert cache.report()['reuse_ratio'] == 0.75 and apart > 1e-3


@pytest.mark.parametrize('nothing', [
    {'ratio': 0.0}, {'static_patches': 0}, {'task_patches': 256},
])  # fmt: skip
def test_reuse_of_nothing_is_exact(stream, nothing):
    stream = stream()
    apart, cache = after(stream, stream.seen(), stream.seen(block=20), **nothing)
    assert apart <= EXACT and cache.report()['reuse_ratio'] == 0


@pytest.mark.parametrize('score', ['text', 'suffix'])
def test_the_ratio_of_the_source_reuses_some_rows(stream, score):
    stream = stream()
    cache = VlaCache(stream.policy, VlaOptions(layers=(1, 2), score=score, static_patches=256))
    for _ in range(3):
        seen = stream.seen()
        prefix = cache.encode(seen)
        stream.velocities(prefix, seen, cache.suffix(prefix))
    assert 0 < cache.report()['reuse_ratio'] < 0.5
    assert error(prefix, stream.full(seen)) <= EXACT


def test_no_row_gets_older_than_its_bound(stream):
    stream, ages = stream(), []
    cache = VlaCache(stream.policy, VlaOptions(**ALL, max_age=2))
    for _ in range(7):
        cache.encode(stream.seen())
        ages.append(cache.report()['oldest_age'])
    assert ages == [0, 1, 2, 0, 1, 2, 0]


def test_without_a_bound_rows_grow_old_so_that_the_check_can_fail(stream):
    stream = stream()
    cache = VlaCache(stream.policy, VlaOptions(**ALL, max_age=1000))
    for _ in range(5):
        cache.encode(stream.seen())
    assert cache.report()['oldest_age'] == 4


def test_another_task_or_camera_begins_anew(stream):
    stream = stream()
    apart, cache = after(stream, stream.seen(), stream.seen(task='place'))
    assert apart <= EXACT and cache.report()['reuse_ratio'] == 0
    seen = stream.seen(task='place')
    seen.images.pop('base'), seen.views.pop('base')
    assert error(cache.encode(seen), stream.full(seen)) <= EXACT
    cache.reset()
    assert error(cache.encode(stream.seen(3)), stream.full(stream.seen(3))) <= EXACT


def test_words_may_become_more_or_fewer(stream):
    stream = stream()
    apart, _ = after(stream, stream.seen(), stream.seen(ids=(3, 4, 5)), ratio=0.0)
    assert apart <= EXACT


def test_it_computes_less_by_what_it_reuses(stream):
    stream = stream()
    seen = stream.seen()
    cache = VlaCache(stream.policy, VlaOptions(**{**ALL, 'layers': (1,)}))
    full = count_ops(lambda: cache.encode(seen)).macs
    some = count_ops(lambda: cache.encode(seen)).macs
    assert 0.2 < some / full < 0.5, 'one layer of four, and the words'


def test_layers_beyond_the_network_are_refused_by_name(stream):
    with pytest.raises(ConfigError, match='layers'):
        open_prior('vla_cache', stream(depth=2).policy)
    with pytest.raises(ConfigError, match='score_layer'):
        open_prior('vla_cache', stream().policy, {'score_layer': '3'})


def test_it_refuses_what_it_does_not_apply_to(stream):
    one = stream()
    seen = one.seen()
    for name in ('vla_cache', 'vl_cache'):
        with pytest.raises(ConfigError, match=f'{name}.*padded'):
            open_prior(name, stream(drop_masked=False).policy)
        with pytest.raises(ConfigError, match=f'{name}.*state'):
            open_prior(name, stream(state_once=False).policy)
        with pytest.raises(ConfigError, match='open_prior'):
            one.policy.prepare(one.full(seen), seen.state, cache=name)
    with pytest.raises(ConfigError, match="'clever'"):
        open_prior('clever', stream().policy)
