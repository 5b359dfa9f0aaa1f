"""Observations for the certificate: from a bag, from a file, or made up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reflex_ros.core.errors import ConfigError
from reflex_ros.infer.boundary.certificate import (
    snapshot_samples,
    window_scene,
    windowed_samples,
)
from reflex_ros.infer.boundary.snapshot import SnapshotScene
from reflex_ros.infer.flow import chunk_noise
from reflex_ros.infer.one_shot import Observation
from reflex_ros.study.arrays import single
from reflex_ros.study.inspect_sight import Glimpse
from reflex_ros.study.inspect_source import glimpse_of_file, glimpse_of_run
from reflex_ros.study.inspect_tiny import TinySubject

GAP_S = 0.1
"""Between two frames of a bag, where the checkpoint does not say."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Where observations are to come from; without file and run they are made up.

    Attributes:
        file: ``.npz`` in the layout of ``reflex-ros predict``; its rows are one after another.
        run, at_s: Run folder or bag with images, and where to start, s.
        count: Observations wanted.
        gap_s: Time between two of a bag, s; None = the checkpoint's frame period, or 0.1.
        task: Instruction that wins over the source's.
        seed: Of the noise and of what is made up.
    """

    file: Path | None = None
    run: Path | None = None
    at_s: float = 0.0
    count: int = 4
    gap_s: float | None = None
    task: str | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Scenes:
    """Observations, one after another, in the layout of the boundary.

    Attributes:
        scenes: At least one. origin: Where they were taken, in words. warnings: What is doubtful.
    """

    scenes: tuple[Any, ...]
    origin: str
    warnings: tuple[str, ...] = ()


def scenes_of(subject: Any, asked: Asked) -> Scenes:
    """Return the observations of an inspected checkpoint.

    Raises:
        ConfigError: The source lacks something or does not fit; by name.
    """
    is_tiny = isinstance(subject, TinySubject)
    if asked.file is None and asked.run is None:
        if is_tiny:
            made: list[Any] = windowed_samples(subject.policy, asked.count, seed=asked.seed)
        else:
            made = snapshot_samples(subject.pretrained, asked.count, seed=asked.seed)
        origin = (f'made up from seed {asked.seed}: drifting colours, not images of your '
                  'cameras. Give --bag RUN for errors that mean something on your robot')
        return Scenes(tuple(made), origin)
    glimpses = _glimpses(subject, asked, is_tiny)
    warnings = tuple(dict.fromkeys(w for glimpse in glimpses for w in glimpse.warnings))
    last = f' to {glimpses[-1].origin}' if len(glimpses) > 1 else ''
    make = _windows if is_tiny else _snapshots
    return Scenes(tuple(make(subject, glimpses, asked.seed)), f'{glimpses[0].origin}{last}',
                  warnings)  # fmt: skip


def _glimpses(subject: Any, asked: Asked, is_tiny: bool) -> list[Glimpse]:
    if asked.run is not None:
        gap_s = asked.gap_s
        if gap_s is None:
            gap_s = subject.spec.frame_period_ns / 1e9 if is_tiny else GAP_S
        return _of_run(subject, asked, asked.run, gap_s)
    assert asked.file is not None
    glimpses = [glimpse_of_file(asked.file, 0, task=asked.task)]
    for row in range(1, asked.count):
        try:
            glimpses.append(glimpse_of_file(asked.file, row, task=asked.task))
        except ConfigError:  # the file has no more rows
            break
    return glimpses


def _of_run(subject: Any, asked: Asked, run: Path, gap_s: float) -> list[Glimpse]:
    """Return observations of a recording, each at least a gap after the one before."""
    found = [glimpse_of_run(run, subject, at_s=asked.at_s, task=asked.task)]
    for _ in range(1, asked.count):
        later_s = found[-1].at_s + gap_s
        try:
            found.append(glimpse_of_run(run, subject, at_s=later_s, task=asked.task))
        except ConfigError:  # the recording ends here
            break
    return found


def _snapshots(subject: Any, glimpses: Sequence[Glimpse], seed: int) -> list[SnapshotScene]:
    config = subject.config
    shape = (config.chunk_size, config.max_action_dim)
    scenes = []
    for at, glimpse in enumerate(glimpses):
        images = {
            name: torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1)[None]
            for name, image in glimpse.images.items()
        }
        state = torch.from_numpy(single(glimpse.state))[None]
        noise = chunk_noise(seed, at, shape=shape) if glimpse.noise is None else glimpse.noise
        observation = Observation(images, state, (glimpse.task,))
        scenes.append(SnapshotScene(observation, torch.from_numpy(noise)[None]))
    return scenes


def _windows(subject: Any, glimpses: Sequence[Glimpse], seed: int) -> list[Any]:
    frames = [glimpse.images for glimpse in glimpses]
    shape = subject.spec.noise_shape
    return [
        window_scene(subject.policy, frames[: at + 1], glimpse.state, glimpse.task,
                     noise=chunk_noise(seed, at, shape=shape) if glimpse.noise is None
                     else glimpse.noise)
        for at, glimpse in enumerate(glimpses)
    ]  # fmt: skip
