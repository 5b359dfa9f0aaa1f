"""An episode shows its policy what the policy's encoder names, and tells it what the task is."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip('torch', reason='tiny needs torch')

from reflex_ros.core.clock import MS, SystemClock
from reflex_ros.core.errors import ConfigError
from reflex_ros.infer.families.tiny_network import TinyConfig
from reflex_ros.ring.writer import RingWriter
from reflex_ros.sim.live import EPISODE_S
from reflex_ros.stages.windowed import LocalRing, WindowedEncoder, WindowedModel, ring_layout
from reflex_ros.study import experiment
from reflex_ros.study.episode import Entry, EpisodeSpec, run_episode
from reflex_ros.study.experiment import checkpoint_of, run_job, spec_of
from reflex_ros.study.experiment_file import load_experiment
from reflex_ros.study.experiment_lines import jobs_of
from reflex_ros.study.random_tiny import INSTRUCTION, random_tiny

BOTH = ('main', 'wrist')
SPEC = EpisodeSpec(policy='tiny', task='pick_place', duration_s=0.5, seed=2,
                   instruction=INSTRUCTION)


class Seeing(WindowedEncoder):
    """An encoder that remembers what it was told and shown."""

    def __init__(self, *args):
        super().__init__(*args)
        self.told, self.seen = [], []

    def instruction(self, text, epoch, probe):
        self.told.append(text)
        super().instruction(text, epoch, probe)

    def encode(self, block, images, probe):
        self.seen.append({name: image.copy() for name, image in images.items()})
        return super().encode(block, images, probe)


@contextmanager
def parts(cameras):
    """Yield model and encoder of random weights on a ring of their own."""
    config = TinyConfig(cameras=cameras, towers=len(cameras), width=32, layers=2)
    policy = random_tiny(config)
    writer = RingWriter.create(ring_layout(policy.spec), clock=SystemClock())
    ring = LocalRing(lambda: writer, clock=SystemClock())
    try:
        yield WindowedModel(policy, ring), Seeing(policy, writer)
    finally:
        ring.close()
        writer.close()


@pytest.fixture(scope='module')
def seen():
    """Return what one camera and two were shown, and the episode of two."""
    found = {}
    for cameras in (('main',), BOTH):
        with parts(cameras) as (model, encoder):
            episode = run_episode(SPEC, model=model, encoder=encoder)
            found[cameras] = encoder, episode
    return found


def test_every_camera_that_the_encoder_names_is_rendered(seen):
    encoder, episode = seen[BOTH]
    assert len(encoder.seen) >= 10 and all(set(images) == set(BOTH) for images in encoder.seen)
    scene, wrist = (np.stack([images[name] for images in encoder.seen]) for name in BOTH)
    assert not np.array_equal(scene, wrist) and scene.shape == wrist.shape
    assert all(block.camera_names == BOTH for block in episode.log.blocks)
    assert any(trace.first_command_stamp_ns for trace in episode.log.traces)


def test_every_camera_can_fail(seen):
    encoder, _ = seen['main',]
    assert all(set(images) == {'main'} for images in encoder.seen)


def test_a_second_camera_changes_nothing_of_the_first(seen):
    first, both = seen['main',][0].seen, seen[BOTH][0].seen
    assert np.array_equal(first[0]['main'], both[0]['main'])


def test_the_policy_is_told_what_the_episode_says(seen):
    assert seen[BOTH][0].told == [INSTRUCTION]


# ---- in experiments ----------------------------------------------------------------------------


def cells(tmp_path, **cell):
    """Return the lines to make of a file with one cell."""
    times = experiment.CHECKPOINTS.parents[1] / 'config' / 'experiments' / 'stage_times.json'
    path = tmp_path / 'multi.yaml'
    settings = ', '.join(f'{name}: {value}' for name, value in cell.items())
    path.write_text(f'title: x\nstage_times: {times.as_posix()}\n'
                    f'grid: [{{duration_s: 1.5, {settings}}}]\n')
    return jobs_of(load_experiment(path))


@pytest.mark.parametrize(('task', 'told'), [
    ('pick_place', 'put the blue cube into the bin'), ('recovery', 'put the blue cube into the '
     'bin'), ('drawer', 'open the drawer'), ('jump', 'follow the pink ball')])
def test_the_policy_for_several_tasks_is_told_which(tmp_path, task, told):
    job, = cells(tmp_path, policy='tiny_multi', task=task)
    spec = spec_of(job)
    assert spec.instruction == told and spec.parameters()['policy.name'] == 'tiny'


def test_a_line_of_the_policy_for_several_tasks_is_made(tmp_path, monkeypatch):
    job, = cells(tmp_path, policy='tiny_multi', task='drawer')
    monkeypatch.setattr(experiment, 'parts_of', lambda job, is_traced: parts(BOTH))
    short = replace(job, cell=replace(job.cell, duration_s=0.9))
    line, _ = run_job(short)
    assert line['success'] == [False] and line['inferences'] > 0 and line['complete']


def test_a_policy_without_weights_is_refused_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, 'CHECKPOINTS', tmp_path)
    with pytest.raises(ConfigError, match='tiny_multi: got no weights'):
        checkpoint_of('tiny_multi')


def test_a_policy_for_targets_is_not_asked_for_a_drawer(tmp_path):
    with pytest.raises(ConfigError, match='tiny follows a target, and task drawer has none'):
        cells(tmp_path, policy='tiny', task='drawer')


# ---- inside a longer one -----------------------------------------------------------------------


def test_an_episode_can_begin_where_a_longer_one_has_got_to():
    spec = EpisodeSpec(mode='reflex', seed=3, duration_s=0.6)
    entry = Entry(world_ns=1200 * MS, camera_phase_ns=7 * MS, world_length_s=EPISODE_S, draw=1)
    later, first = run_episode(spec, entry=entry), run_episode(spec)
    assert (later.log.truths[0].stamp_ns - later.log.ticks[0].stamp_ns) == 7 * MS
    assert np.linalg.norm(later.log.truths[0].target_position
                          - first.log.truths[0].target_position) > 0.01
    assert not any(e.stamp_ns < later.log.ticks[0].stamp_ns
                   for t in later.log.truths for e in t.events)
