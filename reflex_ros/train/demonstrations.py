"""Demonstrations of the tasks: the expert, disturbed, in the simulated world.

Labels are not what was recorded, they are rolled from wherever the arm is (``dataset.Sampler``)
along a path: in the follow tasks the poses on the target's way as if it never jumped, in the
manipulation tasks the expert's own stream of commands, which the disturbance leaves clean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from tqdm import tqdm

from reflex_ros.infer.families.tiny import TinyPolicy
from reflex_ros.infer.rollout import Rollout
from reflex_ros.sim.cameras import CameraRig
from reflex_ros.sim.experts import follow, make_expert
from reflex_ros.sim.experts.imagine import ImaginingExpert
from reflex_ros.sim.experts.manipulation import Expert
from reflex_ros.sim.instructions import INTENT_OF, INTENTS, wordings
from reflex_ros.sim.looks import Look
from reflex_ros.sim.tasks import Follow, make_task
from reflex_ros.sim.tasks.drawer import CABINET, SPREAD_M
from reflex_ros.sim.world import World
from reflex_ros.train.disturbance import CommandNoise, Disturbance
from reflex_ros.train.recording import (
    FRAME_TICKS,
    PATH_TICKS,
    SEGMENT_TICKS,
    TICK_NS,
    EpisodeRows,
    Recording,
    cut,
)

OPEN_GRIPPER_M = 0.07
FOLLOW_S = 8.0
LONGEST_S = MappingProxyType({'pick_place': 9.0, 'recovery': 12.0, 'drawer': 6.0})
AFTER_SUCCESS_S = 0.7
PRACTICE_S = MappingProxyType({'pick_place': 8.0, 'recovery': 10.0, 'drawer': 6.0})
LABEL_TICKS, PRACTICE_ROWS = 4, 80
"""Ticks between two labels of an episode in which the policy acts, and rows of each."""

FILE_EPISODES = 25
START_SPREAD_RAD = 0.15


@dataclass(frozen=True, slots=True)
class Batch:
    """Episodes that go to one file.

    Attributes:
        task: Name of the task. cameras: Names, in the order of the policy.
        seed, episodes: First seed and number of episodes. file: Where they go.
        colours: Whether objects are shown in several colours.
        learner: Checkpoint folder of the policy that acts, None for the expert.
    """

    task: str
    cameras: tuple[str, ...]
    seed: int
    episodes: int
    file: Path
    colours: bool = True
    learner: Path | None = None

    def record(self) -> int:
        """Write the file; returns how many episodes the expert failed in and are left out."""
        torch.set_num_threads(1)
        learner = None if self.learner is None else TinyPolicy.load(self.learner)
        recording = Recording()
        studio = Studio(self.task, self.cameras, colours=self.colours, learner=learner)
        done = [studio.record(self.seed + n, recording) for n in range(self.episodes)]
        recording.write(self.file)
        studio.rig.close()
        return done.count(False)


class Job(Protocol):
    """One file that is yet to be made."""

    @property
    def file(self) -> Path:
        """Return where it goes."""

    def record(self) -> int:
        """Write it; returns how many attempts failed and are left out."""


class Studio:
    """World, cameras and expert of one task, used for many episodes.

    Args:
        task: Name of the task. cameras: Names, in the order of the policy.
        colours: Whether objects are shown in several colours.
        learner: The policy that acts, None for the expert.
    """

    def __init__(self, task: str, cameras: tuple[str, ...], *, colours: bool = True,
                 learner: TinyPolicy | None = None) -> None:  # fmt: skip
        self.cameras, self._colours = cameras, colours
        self._follows = task == 'jump'
        length = {'duration_s': FOLLOW_S} if self._follows else {}
        self.world = World(make_task(task, home_noise_rad=START_SPREAD_RAD, **length), seed=0)
        self.rig = CameraRig(self.world.model_xml, cameras=cameras)
        self.expert: Expert | None = None if self._follows else make_expert(task)
        self._learner = learner

    def record(self, seed: int, into: Recording) -> bool:
        """Record the episode of a seed; returns whether the expert succeeded, else nothing is."""
        rng = np.random.default_rng((seed, 1))
        self.world.reset(seed)
        if self.world.task.name != 'drawer':
            x, y = CABINET + rng.uniform(-SPREAD_M, SPREAD_M, 2)
            self.world.scene.place_cabinet(float(x), float(y))
        look = Look.draw(rng) if self._colours else Look()
        look.paint(self.rig)
        intent = INTENT_OF[self.world.task.name]
        rows = EpisodeRows(into, self.rig, self.cameras, seed=seed, intent=intent, look=look)
        if self._learner is None:
            return (record_follow if self._follows else record_manipulation)(self, rng, rows)
        told = rng.choice(wordings(INTENTS[intent], look))
        record_practice(self, Rollout(self._learner, str(told), seed=seed), rows)
        return True


def record_follow(studio: Studio, rng: np.random.Generator, rows: EpisodeRows) -> bool:
    """Record an episode of a moving target; always succeeds."""
    world, task = studio.world, studio.world.task
    assert isinstance(task, Follow)
    paths = reference_paths(task)
    command, noise = world.joint_state()[0][:6], CommandNoise(rng)
    for k in range(round(task.duration_s * 1e9) // TICK_NS):
        active, tick = _place(task, k)
        if k % FRAME_TICKS == 0:
            rows.add(world, k, np.append(command, OPEN_GRIPPER_M), segment=active, tick=tick)
        references = _interpolate(paths[active], tick)
        command = follow.roll((command + noise.step())[None], references[None])[0, 0]
        world.command(command, OPEN_GRIPPER_M)
        world.advance((k + 1) * TICK_NS)
    rows.finish(paths, ())
    return True


def reference_paths(task: Follow) -> list[npt.NDArray[np.float32]]:
    """Return the reference joints of each segment, as if its target never jumped."""
    times = np.arange(PATH_TICKS) * TICK_NS / 1e9
    paths = []
    for segment in task.segments:
        joints = follow.reference(segment.position(segment.start_s + times))
        opening = np.full((PATH_TICKS, 1), OPEN_GRIPPER_M)
        paths.append(np.concatenate((joints, opening), 1).astype(np.float32))
    return paths


def _interpolate(path: npt.NDArray[np.float32], tick: float) -> npt.NDArray[np.float64]:
    """Return the references of this tick and the next, ``float64[2, 6]``."""
    below, share = int(tick), tick % 1.0
    window = path[below : below + 3, :6].astype(np.float64)
    return window[:-1] * (1 - share) + window[1:] * share


def record_manipulation(studio: Studio, rng: np.random.Generator, rows: EpisodeRows) -> bool:
    """Record an episode of a manipulation task up to a moment after its success."""
    world, expert, disturbance = studio.world, studio.expert, Disturbance(rng)
    assert expert is not None
    clean = sent = world.joint_state()[0]
    stream, surprises, succeeded_k = [clean], [], 0
    for k in range(round(LONGEST_S[world.task.name] * 1e9) // TICK_NS):
        truth = world.truth(k + 1, world.time_ns)
        if k % FRAME_TICKS == 0:
            segment, tick = divmod(k, SEGMENT_TICKS)
            rows.add(world, k, sent, segment=segment, tick=tick)
        phase, clean = expert.choose(truth).phase, expert.command(truth, clean)
        stream.append(clean)
        sent, began = disturbance.apply(clean, phase)
        if began or any(event.name == 'shove' for event in truth.events):
            surprises.append(k)
        world.command(sent[:6], sent[6])
        world.advance((k + 1) * TICK_NS)
        succeeded_k = succeeded_k or (k if truth.success else 0)
        if succeeded_k and (k - succeeded_k) * TICK_NS > AFTER_SUCCESS_S * 1e9:
            rows.finish(cut(stream), surprises)
            return True
    return False


def record_practice(studio: Studio, rollout: Rollout, rows: EpisodeRows) -> None:
    """Record an episode in which the policy acts; the labels are what the expert would do.

    In the follow tasks those follow from the target's way alone, as always. In the others the
    expert imagines how it would go on, every few frames; only such frames are usable.
    """
    world, task = studio.world, studio.world.task
    follows = isinstance(task, Follow)
    paths = reference_paths(task) if isinstance(task, Follow) else []
    imagining = None if follows else ImaginingExpert(studio.expert or make_expert(task.name))
    length_s = task.duration_s if follows else PRACTICE_S[task.name]
    sent, unlabelled, done_k = world.joint_state()[0], [], 0
    for k in range(round(length_s * 1e9) // TICK_NS):
        if k % FRAME_TICKS == 0:
            segment, tick = _place(task, k) if isinstance(task, Follow) else (len(paths), 0.0)
            images = rows.add(world, k, sent, segment=segment, tick=tick)
            rollout.see(k, dict(zip(studio.cameras, images, strict=True)), world.joint_state()[0])
            if imagining is not None and k % LABEL_TICKS == 0:
                truth = world.truth(k + 1, world.time_ns)
                ahead = imagining.chunk(truth, sent, horizon=PRACTICE_ROWS)
                paths += cut([sent, *ahead])
                done_k = done_k or (k if truth.success else 0)
            elif imagining is not None:
                unlabelled.append(k)
        sent = rollout.command(k)
        world.command(sent[:6], float(sent[6]))
        world.advance((k + 1) * TICK_NS)
        if done_k and (k - done_k) * TICK_NS > AFTER_SUCCESS_S * 1e9:
            break
    rows.finish(paths, (), without=unlabelled)


def _place(task: Follow, k: int) -> tuple[int, float]:
    """Return the segment of a tick and the ticks since that began."""
    starts, now_s = [segment.start_s for segment in task.segments], k * TICK_NS / 1e9
    active = int(np.searchsorted(starts, now_s, side='right')) - 1
    return active, (now_s - starts[active]) * 1e9 / TICK_NS


def plan(folder: Path, task: str, *, cameras: tuple[str, ...], episodes: int, seed: int,
         colours: bool = True, learner: Path | None = None) -> list[Batch]:  # fmt: skip
    """Return the files that hold ``episodes`` episodes of a task; see ``Batch``."""
    last = seed + episodes
    return [
        Batch(task, cameras, first, min(FILE_EPISODES, last - first),
              folder / f'{task}_{first:07d}.npz', colours, learner)
        for first in range(seed, last, FILE_EPISODES)
    ]  # fmt: skip


def generate(jobs: Sequence[Job], *, workers: int) -> list[Path]:
    """Record what is not there yet. Blocks; an interrupted run is continued by calling it again.

    Returns:
        All files, in the order of ``jobs``.
    """
    missing = [job for job in jobs if not job.file.exists()]
    for job in missing:
        job.file.parent.mkdir(parents=True, exist_ok=True)
    if missing:
        with get_context('spawn').Pool(max(1, workers)) as pool:
            done = pool.imap_unordered(_record, missing)
            for file, failed in tqdm(done, total=len(missing), desc='demonstrations'):
                if failed:
                    tqdm.write(f'{file.name}: the expert failed in {failed} episodes')
    return [job.file for job in jobs]


def _record(job: Job) -> tuple[Path, int]:
    return job.file, job.record()
