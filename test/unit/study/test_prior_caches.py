"""[ci] The bench of the prior caches: scenes do what they say, counts are right, tables fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from reflex_ros.study.bench_subject import random_subject
from reflex_ros.study.op_counts import count_ops
from reflex_ros.study.prior_caches import (
    VLA_VARIANTS,
    Stage,
    measure_vl,
    measure_vla,
    noise_scale,
    prefix_macs,
    step_macs,
)
from reflex_ros.study.prior_caches_picture import draw
from reflex_ros.study.prior_caches_report import vl_lines, vla_lines
from reflex_ros.study.prior_caches_scenes import SCENES, background, panned, shots
from reflex_ros.study.prior_caches_tiny import TinyStage, errors
from reflex_ros.study.stability_calls import Scene

CAMERAS, WORDS = ('left', 'right'), tuple(range(1, 41))
STATIC = {'all static': VLA_VARIANTS['all static'], 'published': VLA_VARIANTS['published']}


@pytest.fixture(scope='module')
def stage():
    torch.set_num_threads(1)
    return Stage(random_subject('pi05', 'tiny', seed=3), calls=3, seed=3)


@pytest.fixture(scope='module')
def vla(stage):
    return measure_vla(stage, ('identical', 'moving'), variants=STATIC)


@pytest.fixture(scope='module')
def vl(stage):
    return measure_vl(stage, retentions=(0.1, 1.0))


def row(rows, **wanted):
    return next(one for one in rows if all(one[key] == value for key, value in wanted.items()))


def stream(scene, calls=4, seed=0):
    return shots(scene, CAMERAS, WORDS, side=56, calls=calls, seed=seed)


@pytest.mark.parametrize('scene', SCENES)
def test_a_stream_is_that_of_its_seed_and_of_no_other(scene):
    one, same, other = stream(scene), stream(scene), stream(scene, seed=1)
    for a, b, c in zip(one, same, other, strict=True):
        assert a.ids == b.ids
        assert all(np.array_equal(a.images[n], b.images[n]) for n in CAMERAS)
        assert not any(np.array_equal(a.images[n], c.images[n]) for n in CAMERAS)


@pytest.mark.parametrize(('scene', 'images_change', 'text_changes'), [
    ('identical', False, False), ('moving', True, False), ('state', False, True),
    ('working', True, True), ('drifting', True, False),
])  # fmt: skip
def test_a_scene_changes_what_it_says(scene, images_change, text_changes):
    first, *later = stream(scene)
    for shot in later:
        assert (not np.array_equal(first.images['left'], shot.images['left'])) == images_change
        assert (first.ids != shot.ids) == text_changes
        assert first.ids[:19] == shot.ids[:19], 'the task stays'


def test_a_moving_object_leaves_the_background_alone():
    first, second = (shot.images['left'].astype(int) for shot in stream('moving', 2))
    changed = (first != second).any(-1).mean()
    assert 0 < changed < 0.03


def test_a_pan_of_whole_pixels_is_a_roll():
    ground = background(np.random.default_rng(0), 24)
    assert np.allclose(panned(ground, 3.0), np.roll(ground, -3, 1))
    assert not np.allclose(panned(ground, 0.25), ground)


def test_identical_calls_are_exact(vla):
    for name in STATIC:
        assert row(vla, scene='identical', variant=name)['action_error_max'] < 1e-5
        assert row(vla, scene='identical', variant=name)['key_error_max'] < 1e-5
    assert row(vla, scene='identical', variant='all static')['reuse_ratio'] == 0.5


def test_a_moving_object_can_fail_that(vla):
    found = row(vla, scene='moving', variant='all static')
    assert found['action_error_max'] > 1e-4 and found['key_error_max'] > 1e-3
    assert 0 < found['reuse_ratio'] < 0.5 and found['calls'] == 2


def test_a_budget_costs_and_the_whole_does_not(vl):
    whole, small = row(vl, variant='1'), row(vl, variant='0.1')
    assert whole['action_error_max'] == 0 == whole['mass_all_steps']
    assert small['action_error_max'] > 1e-4 and small['macs_ratio'] < whole['macs_ratio'] == 1
    assert 0 < small['share_of_bound'] <= 1
    assert small['kept_bytes'] < small['prefix_bytes'] < small['expert_bytes']


def test_the_work_of_a_prefix_is_what_the_dispatcher_counts(stage):
    seen = next(iter(stage.stream('identical')))[1]
    length = stage.encode(seen).length
    counted = count_ops(lambda: stage.encode(seen)).macs
    assert prefix_macs(stage.sizes, [length] * stage.sizes.depth, length) == counted
    assert prefix_macs(stage.sizes, [length - 1] * stage.sizes.depth, length) != counted


def test_the_work_of_a_step_is_what_the_dispatcher_counts(stage):
    _, seen, noise = next(iter(stage.stream('identical')))
    prefix, config = stage.encode(seen), stage.policy.config
    with torch.inference_mode():
        denoiser = stage.policy.prepare(prefix, seen.state)
        denoiser.velocity(noise, 0)
        counted = count_ops(lambda: denoiser.velocity(noise, 0)).macs
    ends = 2 * config.chunk_size * config.max_action_dim * stage.sizes.expert_width
    keys = prefix.length + config.chunk_size
    assert step_macs(stage.sizes, config.chunk_size, keys) + ends == counted


def test_layers_are_those_that_a_network_has(stage):
    published = VLA_VARIANTS['published']
    assert published.for_depth(stage.sizes.depth).layers == (1,)
    assert published.for_depth(9).layers == (2, 6) and published.for_depth(1).layers == (0,)


def test_tables_and_picture_have_every_row(stage, vla, vl):
    subject = {
        'family': 'pi05', 'size': 'tiny', 'weights': 'random', 'parameters': 1_000_000,
        'layers': 2, 'image_tokens': 48, 'words': 96, 'rows': [*vla, *vl, noise_scale(stage)],
    }  # fmt: skip
    found = {'summary': {'subjects': [subject]}}
    tables = vla_lines(found), vl_lines(found)
    assert [sum(line.startswith('|') for line in lines) for lines in tables] == [6, 4]
    assert '| `identical` | all static | 50 % | 2 |' in '\n'.join(tables[0])
    assert '| 1 | 100 % |' in '\n'.join(tables[1])
    assert len(draw(found['summary']).axes) == 3


def test_tiny_scenes_change_what_they_say():
    rng = np.random.default_rng(0)
    scene = Scene(rng.integers(0, 256, (4, 64, 64, 3), dtype=np.uint8), rng.random((4, 7)))
    folder = Path(__file__).resolve().parents[3] / 'reflex_ros' / 'data' / 'tiny'
    stage = TinyStage(folder, scene, seed=0)
    calls = {name: list(stage.stream(name)) for name in ('identical', 'working', 'drifting')}
    assert np.array_equal(calls['identical'][0].image, calls['identical'][3].image)
    assert np.array_equal(calls['working'][2].image, scene.images[2])
    assert not np.array_equal(calls['drifting'][0].image, calls['drifting'][3].image)
    blocks = [stage.encode(call.image) for call in calls['working']]
    right = stage.act(blocks, calls['working'][3])
    assert errors(right, right)['action_error_max'] == 0
    assert errors(stage.act(blocks[:1], calls['working'][3]), right)['action_error_max'] > 1e-3
