"""What each approximation costs: the same observation, computed right and computed so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from reflex_ros.infer import snapshot
from reflex_ros.infer.baselines.options import FrameOptions, VlaOptions, VlOptions
from reflex_ros.infer.baselines.registry import FAMILIES
from reflex_ros.infer.baselines.vla_cache import Seen, VlaCache
from reflex_ros.infer.baselines.windowed import BudgetDenoiser, FrameCache
from reflex_ros.infer.boundary.snapshot import SnapshotBoundary, SnapshotScene
from reflex_ros.infer.boundary.windowed import WindowedBoundary, WindowedScene
from reflex_ros.infer.cache import NAIVE, VL_CACHE, VLA_CACHE
from reflex_ros.infer.families.tiny import TinyPolicy
from reflex_ros.infer.flow import chunk_noise
from reflex_ros.infer.plan import DTYPES
from reflex_ros.infer.policy import SnapshotPolicy
from reflex_ros.infer.snapshot import Prefix
from reflex_ros.study.verify_units import Metric

MEANINGS = MappingProxyType({
    'naive': 'keys and values of the actions of the first denoise step in the later ones',
    'image_kv_stale': "an image's keys and values of the observation before",
    'image_kv_kept': "an image's keys and values of a call in which only this image was the same",
    'vla_cache': 'rows of image patches that hardly changed, of the observation before',
    'vl_cache': 'a tenth of the rows of images and words after the first denoise step',
    'state_dropped': 'the state of the observation before',
    'dtype': 'another type to compute in',
    'steps': 'fewer denoise steps',
    'noise': 'another draw of the noise: no approximation, the scale to read the others by',
})  # fmt: skip
FEWER = (2, 5, 10)
"""The number of denoise steps is divided by each of these."""
OTHER_NOISE = 1_000_003
Chunk = tuple[Tensor, npt.NDArray[np.float64]]
"""Normalised actions ``[chunk, columns]`` and physical ones."""


@dataclass(frozen=True, slots=True)
class Option:
    """One approximation, measured.

    Attributes:
        name, meaning: Of it. count: Observations it was measured on.
        error: See ``verify_units.Metric.summary``; ``normalised_max`` beside it.
    """

    name: str
    meaning: str
    count: int
    error: dict[str, Any]


class SnapshotOptions:
    """Approximations of a ``snapshot`` model.

    Args:
        boundary: The model.
    """

    def __init__(self, boundary: SnapshotBoundary) -> None:
        self._boundary, self._columns = boundary, boundary.config.action_dim
        self._other = 'bfloat16' if boundary.dtype != 'bfloat16' else 'float32'
        self._typed: SnapshotPolicy | None = None

    def right(self, scene: SnapshotScene) -> Chunk:
        """Return what the exact cache makes of an observation."""
        return self._chunk(self._boundary.predict(scene))

    def variants(
        self, scene: SnapshotScene, before: SnapshotScene | None
    ) -> Iterator[tuple[str, Chunk]]:
        """Yield each approximation of an observation; those that need one before it only then."""
        predict = self._boundary.predict
        yield 'naive', self._chunk(predict(scene, NAIVE))
        if self._boundary.family in FAMILIES:
            yield from self._prior(scene, before)
        if before is not None:
            yield from self._stale(scene, before)
            older = replace(scene.observation, state=before.observation.state)
            yield 'state_dropped', self._chunk(predict(replace(scene, observation=older)))
        yield f'dtype {self._other}', self._in_other_type(scene)
        for steps in fewer(self._boundary.num_steps):
            yield f'steps {steps}', self._chunk(predict(scene, num_steps=steps))
        noise = chunk_noise(OTHER_NOISE, 0, shape=tuple(scene.noise.shape))
        yield 'noise', self._chunk(predict(replace(scene, noise=torch.from_numpy(noise))))

    def _prior(
        self, scene: SnapshotScene, before: SnapshotScene | None
    ) -> Iterator[tuple[str, Chunk]]:
        """Yield the prior methods with the parameters of their sources."""
        boundary, policy = self._boundary, self._boundary.policy
        yield VL_CACHE, self._chunk(boundary.predict_with(policy, scene, cache=VL_CACHE))
        depth = policy.pretrained.sizes.depth
        if before is not None and depth > 1:  # it asks the attention of a layer before the last
            options = VlaOptions().for_depth(depth)
            cache = VlaCache(policy, options)
            cache.encode(self._seen(before))
            yield cache.name, self._chunk(boundary.predict_with(policy, scene, cache=cache))

    def _seen(self, scene: SnapshotScene) -> Seen:
        policy, seen = self._boundary.policy, scene.observation
        row = policy.processing.normalised_state(seen.state)[0]
        views = {n: policy.view(seen.images[n]) for n in policy.cameras if n in seen.images}
        ids = policy.processing.token_ids(seen.tasks[0], row)
        return Seen(seen.images, views, ids, policy.processing.state(seen.state), seen.tasks[0])

    def _stale(
        self, scene: SnapshotScene, before: SnapshotScene
    ) -> Iterator[tuple[str, Chunk]]:
        images, older = scene.observation.images, before.observation
        shared = [name for name in self._boundary.policy.cameras
                  if name in images and name in older.images]  # fmt: skip
        now, old = self._encode(scene), self._encode(before)
        tokens = self._boundary.policy.network.camera_tokens
        present = [name for name in self._boundary.policy.cameras if name in images]
        if set(older.images) != set(images):
            return
        for name in shared:
            at = tokens * present.index(name)
            yield f'image_kv_stale {name}', self._with_rows(scene, now, old, at)
            mixed = replace(older, images={**older.images, name: images[name]})
            kept = self._encode(replace(before, observation=mixed))
            yield f'image_kv_kept {name}', self._with_rows(scene, now, kept, at)

    def _with_rows(self, scene: SnapshotScene, now: Prefix, other: Prefix, at: int) -> Chunk:
        """Return the actions when one camera's rows are another prefix's."""
        boundary, policy = self._boundary, self._boundary.policy
        end = at + policy.network.camera_tokens
        with torch.inference_mode():
            prefix = replace(now, kv=now.kv.clone())
            prefix.kv[:, :, :, at:end] = other.kv[:, :, :, at:end]
            state = policy.processing.state(scene.observation.state)
            denoiser = policy.prepare(prefix, state)
            actions = snapshot.denoise(denoiser, scene.noise, boundary.num_steps)
        physical = policy.processing.actions(actions, scene.observation.state)
        return self._cut(actions, physical)

    def _encode(self, scene: SnapshotScene) -> Prefix:
        seen = self._seen(scene)
        return self._boundary.policy.encode(seen.views, [seen.ids], seen.state)

    def _in_other_type(self, scene: SnapshotScene) -> Chunk:
        if self._typed is None:
            self._typed = SnapshotPolicy(self._boundary.pretrained, dtype=self._other)
        return self._chunk(self._boundary.predict_with(self._typed, scene))

    def _chunk(self, result: Any) -> Chunk:
        return self._cut(result.actions, result.physical)

    def _cut(self, actions: Tensor, physical: Tensor) -> Chunk:
        return actions[0, :, : self._columns].double(), physical[0].double().numpy()


class WindowedOptions:
    """Approximations of a ``windowed`` model.

    Args:
        boundary: The model. folder: Its checkpoint.
    """

    def __init__(self, boundary: WindowedBoundary, folder: Path) -> None:
        self._boundary, self._folder = boundary, folder
        self._typed: WindowedBoundary | None = None

    def right(self, scene: WindowedScene) -> Chunk:
        """Return what the exact cache makes of a window."""
        return _of_window(self._boundary.predict(scene))

    def variants(
        self, scene: WindowedScene, before: WindowedScene | None
    ) -> Iterator[tuple[str, Chunk]]:
        """Yield each approximation of a window; those that need one before it only then."""
        boundary = self._boundary
        yield 'naive', _of_window(boundary.predict(scene, NAIVE))
        yield from self._prior(scene)
        if before is not None:
            pinned, frames = boundary.encode(scene)
            stale = boundary.encode(before)[1][-1]
            yield 'image_kv_stale newest frame', _of_window(
                boundary.run(scene, (pinned, [*frames[:-1], stale])))
            yield 'state_dropped', _of_window(boundary.predict(replace(scene, state=before.state)))
        if self._typed is None:
            policy = TinyPolicy.load(self._folder, dtype=DTYPES['bfloat16'])
            self._typed = WindowedBoundary(policy)
        yield 'dtype bfloat16', _of_window(self._typed.predict(scene))
        for steps in fewer(boundary.num_steps):
            yield f'steps {steps}', _of_window(boundary.predict(scene, num_steps=steps))
        noise = chunk_noise(OTHER_NOISE, 0, shape=scene.noise.shape)
        yield 'noise', _of_window(boundary.predict(replace(scene, noise=noise)))


    def _prior(self, scene: WindowedScene) -> Iterator[tuple[str, Chunk]]:
        """Yield the prior methods with the parameters of their sources."""
        boundary, policy = self._boundary, self._boundary.policy
        pinned, frames = boundary.encode(scene)
        cache, reused = FrameCache(policy, FrameOptions()), [torch.zeros_like(f) for f in frames]
        for images, out in zip(scene.frames, reused, strict=True):
            cache.encode_frame(images, pinned, out)
        yield VLA_CACHE, _of_window(boundary.run(scene, (pinned, reused)))
        denoiser = BudgetDenoiser(policy, pinned, frames, scene.ages_steps, state=scene.state,
                                  num_steps=boundary.num_steps, options=VlOptions())  # fmt: skip
        noise = torch.from_numpy(scene.noise).to(policy.dtype)[None]
        actions = snapshot.denoise(denoiser, noise, boundary.num_steps)
        yield VL_CACHE, (actions[0].double(), policy.actions(actions, scene.state))


def _of_window(result: Any) -> Chunk:
    return result.actions[0].double(), result.physical


def fewer(steps: int) -> tuple[int, ...]:
    """Return smaller numbers of denoise steps, largest first."""
    return tuple(sorted({steps // part for part in FEWER if 0 < steps // part < steps})[::-1])


def measure(
    options: SnapshotOptions | WindowedOptions, scenes: Sequence[Any], metric: Metric
) -> tuple[Option, ...]:
    """Return the error of each approximation over all observations.

    Args:
        options: Of the model. scenes: Observations, one after another. metric: Units.
    """
    pairs: dict[str, list[tuple[Chunk, Chunk]]] = {}
    for at, scene in enumerate(scenes):
        right = options.right(scene)
        for name, found in options.variants(scene, scenes[at - 1] if at else None):
            pairs.setdefault(name, []).append((right, found))
    return tuple(
        Option(name, MEANINGS[name.split()[0]], len(both), {
            'normalised_max': max(float((f[0] - r[0]).abs().max()) for r, f in both),
            **metric.summary([(r[1], f[1]) for r, f in both]),
        })
        for name, both in sorted(pairs.items(), key=lambda item: _rank(item[0]))
    )  # fmt: skip


def _rank(name: str) -> int:
    return list(MEANINGS).index(name.split()[0])


def state_response(
    boundary: SnapshotBoundary | WindowedBoundary, options: Any, scene: Any,
    names: Sequence[str],
) -> dict[str, dict[str, float]]:  # fmt: skip
    """Return how far actions move with each joint of the state.

    Args:
        boundary, options: The model. scene: Observation. names: Columns of the state.

    Returns:
        By column: ``network``, max|change of normalised actions| per normalised change, and
        ``same_joint``, max|change of the joint's own action| per change of the joint, same units.
    """
    right, found = options.right(scene), {}
    for column, name in enumerate(names):
        moved = boundary.nudged(scene, column)
        actions, physical = options.right(moved)
        step, raw = boundary.steps_between(scene, moved, column)
        entry = {'network': float((actions - right[0]).abs().max()) / step}
        if column < physical.shape[1] and raw:
            change = np.abs(physical[:, column] - right[1][:, column]).max()
            entry['same_joint'] = float(change / abs(raw))
        found[name] = entry
    return found
