"""Full recomputation in the loop: the very chunks of the ring, made without anything kept."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip('torch', reason='tiny needs torch')

from reflex_ros.core.clock import SystemClock
from reflex_ros.core.probe import ClockProbe
from reflex_ros.core.types import KvBlock
from reflex_ros.infer.families.tiny_network import TinyConfig
from reflex_ros.stages.models import InferRequest
from reflex_ros.study import policies
from reflex_ros.study.episode import EpisodeSpec, run_episode
from reflex_ros.study.experiment import parts_of, run_job
from reflex_ros.study.experiment_file import load_experiment
from reflex_ros.study.experiment_lines import jobs_of
from reflex_ros.study.random_tiny import INSTRUCTION, random_tiny
from reflex_ros.study.recompute import KeepingEncoder, RecomputingModel

TABLE4 = Path(__file__).parents[3] / 'config' / 'experiments' / 'table4.yaml'
FULL, NAIVE, PARTITIONED = ('full recomputation', 'naive cache', 'partitioned')
CAMERAS = ('main', 'wrist')
SPEC = EpisodeSpec(policy='tiny', task='pick_place', duration_s=0.6, seed=2,
                   instruction=INSTRUCTION)
CONFIG = TinyConfig(cameras=CAMERAS, towers=2, width=32, layers=2)


@pytest.fixture(scope='module')
def policy():
    """Return a policy with two cameras and random weights."""
    return random_tiny(CONFIG)


@pytest.fixture
def parts(policy, monkeypatch):
    """Return what makes model and encoder of these weights with a cache."""
    monkeypatch.setattr(policies, 'load_once', lambda *_, **__: policy)

    def make(cache, **options):
        return policies.tiny_parts(Path('no folder is read'), cache=cache, **options)

    return make


def chunks(parts, cache, **options):
    """Return the positions of every chunk of an episode."""
    with parts(cache, **options) as (model, encoder):
        log = run_episode(SPEC, model=model, encoder=encoder).log
    return np.array([chunk.positions for chunk in log.chunks])


def test_full_recomputation_makes_the_chunks_of_the_ring_bit_for_bit(parts):
    reused, recomputed = chunks(parts, 'partitioned'), chunks(parts, 'full')
    assert len(reused) > 3 and np.array_equal(reused, recomputed)
    fewer = chunks(parts, 'full', num_steps=3)
    assert np.array_equal(fewer, chunks(parts, 'partitioned', num_steps=3))
    assert not np.array_equal(fewer[0], recomputed[0])


@pytest.mark.parametrize('wrong', ['order', 'stamp', 'words'])
def test_the_same_chunks_can_fail(parts, monkeypatch, wrong):
    right = KeepingEncoder.window

    def window(self, block):
        text, frames = right(self, block)
        if wrong == 'order':
            return text, frames[::-1]
        if wrong == 'stamp':
            return text, [replace(one, stamp_ns=one.stamp_ns - 1_000_000) for one in frames]
        return 'pink pink', frames

    reused = chunks(parts, 'partitioned')
    monkeypatch.setattr(KeepingEncoder, 'window', window)
    assert not np.allclose(reused[:3], chunks(parts, 'full')[:3], rtol=0, atol=1e-9)


def test_a_naive_cache_makes_other_chunks(parts):
    reused, naive = chunks(parts, 'partitioned'), chunks(parts, 'naive')
    assert np.abs(reused[0] - naive[0]).max() > 1e-4


def count_encodings(policy, monkeypatch):
    """Return where the calls of both encoders are counted from now on."""
    counts = {'encode_frame': 0, 'encode_instruction': 0}

    def counted(name, call, *args):
        counts[name] += 1
        return call(*args)

    for name in counts:
        monkeypatch.setattr(policy, name, partial(counted, name, getattr(policy, name)))
    return counts


def test_every_step_encodes_every_frame_and_the_words(parts, policy, monkeypatch):
    counts, probe = count_encodings(policy, monkeypatch), ClockProbe(SystemClock())
    with parts('full', num_steps=3) as (model, encoder):
        block = shown(encoder, frames=2)
        counts.update(encode_frame=0, encode_instruction=0)
        assert model.infer(InferRequest(block, 1, np.zeros(7), block.stamp_ns), probe).shape == (
            policy.spec.horizon, 7)
    assert counts == {'encode_frame': 3 * 2, 'encode_instruction': 3}


def test_the_ring_encodes_no_frame_twice(parts, policy, monkeypatch):
    counts, probe = count_encodings(policy, monkeypatch), ClockProbe(SystemClock())
    with parts('partitioned', num_steps=3) as (model, encoder):
        block = shown(encoder, frames=2)
        model.infer(InferRequest(block, 1, np.zeros(7), block.stamp_ns), probe)
    assert counts == {'encode_frame': 2, 'encode_instruction': 1}


def shown(encoder, *, frames, epoch=1):
    """Return the block of the last of some frames, 40 ms apart."""
    probe, side = ClockProbe(SystemClock()), CONFIG.image_size
    encoder.instruction(INSTRUCTION, epoch, probe)
    for number in range(1, frames + 1):
        stamp = 10**18 + number * 40_000_000
        block = KvBlock(number, stamp, epoch, CAMERAS, (stamp, stamp))
        images = {name: np.full((side, side, 3), 40 * number % 256, np.uint8) for name in CAMERAS}
        made = encoder.encode(block, images, probe)
    return made


def test_images_that_are_gone_make_no_chunk(parts):
    probe = ClockProbe(SystemClock())
    with parts('full') as (model, encoder):
        old, new = shown(encoder, frames=1), shown(encoder, frames=40)
        assert model.infer(InferRequest(old, 1, np.zeros(7), old.stamp_ns), probe) is None
        assert model.infer(InferRequest(new, 1, np.zeros(7), new.stamp_ns), probe) is not None
        other = replace(new, epoch=9)  # words of another epoch
        assert model.infer(InferRequest(other, 1, np.zeros(7), new.stamp_ns), probe) is None


# ---- in experiments ----------------------------------------------------------------------------


@pytest.fixture
def jobs():
    """Return the first line to make of each cell of Table 4, short."""
    found = jobs_of(load_experiment(TABLE4, seeds=1))
    return {job.cell.label: replace(job, cell=replace(job.cell, duration_s=1.5)) for job in found}


@pytest.fixture
def small(monkeypatch):
    """Let the lines be made by one camera and random weights."""
    policy = random_tiny(replace(CONFIG, cameras=('main',), towers=1))
    monkeypatch.setattr(policies, 'load_once', lambda *_, **__: policy)
    policy.token_ids = lambda text, ids=policy.token_ids: ids(INSTRUCTION)


def line_of(job):
    return {name: value for name, value in run_job(job)[0].items() if name != 'cell'}


def test_a_line_of_table_4_has_the_cache_of_its_cell(small, jobs):
    found = {label: line_of(job) for label, job in jobs.items()}
    assert list(found) == [FULL, NAIVE, PARTITIONED]
    assert found[FULL] == found[PARTITIONED] != found[NAIVE]
    assert found[FULL]['inferences'] > 5
    with parts_of(jobs[FULL], is_traced=False) as (model, _):
        assert isinstance(model, RecomputingModel)


def test_a_cache_that_is_ignored_can_fail(small, jobs, monkeypatch):
    monkeypatch.setattr(policies, 'network_options', lambda params: {})
    found = {label: line_of(job) for label, job in jobs.items()}
    assert found[FULL] == found[PARTITIONED] == found[NAIVE]
    with parts_of(jobs[FULL], is_traced=False) as (model, _):
        assert not isinstance(model, RecomputingModel)


def test_a_line_has_the_denoise_steps_and_the_window_of_its_cell(small, jobs):
    job = jobs[FULL]
    fewer = replace(job.cell, params={**job.cell.params, 'policy.num_denoise_steps': 2})
    alone = replace(job.cell, window=1)
    found = [line_of(replace(job, cell=cell)) for cell in (job.cell, fewer, alone)]
    assert found[0] != found[1] and found[0] != found[2]
    reused = replace(alone, params={'policy.cache': 'partitioned'})
    assert line_of(replace(job, cell=reused)) == found[2]
