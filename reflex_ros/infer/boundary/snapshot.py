"""Probes of a checkpoint of the ``snapshot`` layout."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch
from torch import Tensor

from reflex_ros.core.clock import SystemClock
from reflex_ros.core.probe import ClockProbe
from reflex_ros.infer.boundary.probe import (
    ACTIONS,
    IMAGE,
    KEPT,
    STATE,
    TAU,
    WORDS,
    Capture,
    Probe,
    compare,
    merge,
)
from reflex_ros.infer.cache import NAIVE, PARTITIONED, StaticCache
from reflex_ros.infer.checkpoint.pretrained import Pretrained
from reflex_ros.infer.one_shot import Observation, Prediction, predict
from reflex_ros.infer.plan import DTYPES
from reflex_ros.infer.policy import SnapshotPolicy
from reflex_ros.infer.reference_families import Inputs, Reference
from reflex_ros.infer.reuse import Reuse, reference_reuse
from reflex_ros.infer.snapshot import Prefix

FULL = replace(reference_reuse(prefix_kv=False), static_rows=True, drop_masked=True)
"""Nothing is kept; every row of a step lies in one buffer, where a probe can read it."""
EQUAL = MappingProxyType({'float64': 1e-9, 'float32': 1e-4, 'bfloat16': 5e-2})
"""Largest difference of velocities that is the order of summation, share of the largest value."""
CUT = replace(FULL, last_layer_kv=True)
"""The same for a model cut to its first layers: what lies behind the last keys is left out."""
NUDGE = 0.1
"""Change of a normalised state: a few hundredths of its range, more than a step of its text."""
SHALLOW = 2
"""Layers that show what every layer does: the first knows its own token only, the second all."""
Build = Callable[..., SnapshotPolicy]


@dataclass(frozen=True, slots=True)
class SnapshotScene:
    """One observation and the noise to denoise.

    Attributes:
        observation: One row.
        noise: ``float32[1, chunk, max_action_dim]``.
        ids: Token ids that win over those of the task.
    """

    observation: Observation
    noise: Tensor
    ids: tuple[int, ...] | None = None


class SnapshotBoundary:
    """One model twice: as it runs, and with nothing kept. Not thread-safe.

    Args:
        pretrained: Checkpoint.
        dtype: Type to compute in; None = the checkpoint's.
        build: Makes a policy of the checkpoint and the switches ``dtype``, ``reuse``.
        is_cut: Probe the first layers only and compare the caches over two steps; cheap.
    """

    layout = 'snapshot'

    def __init__(
        self, pretrained: Pretrained, *, dtype: str | None = None, build: Build = SnapshotPolicy,
        is_cut: bool = False,
    ) -> None:  # fmt: skip
        self.pretrained = pretrained = shallow(pretrained) if is_cut else pretrained
        self.model_id, self.is_cut = pretrained.model_id, is_cut
        self.family, self.config = pretrained.family, pretrained.config
        self.num_steps = self.config.num_steps
        self.policy = build(pretrained, dtype=dtype, reuse=Reuse())
        self.full = build(pretrained, dtype=dtype, reuse=CUT if is_cut else FULL)
        names = {value: name for name, value in DTYPES.items()}
        self.dtype = names[self.policy.dtype]

    def probes(self, scene: SnapshotScene) -> tuple[Probe, ...]:
        """Return what each change of an input moves; flow time last."""
        base, rounding = self._capture(scene, 0, is_told=False), KEPT[self.dtype]
        found = [
            compare(base, self._capture(other, 0), name=name, changed=changed, own=own,
                    rounding=rounding)
            for name, changed, own, other in self._changes(scene)
        ]  # fmt: skip
        taus = [
            compare(base, self._capture(scene, k, is_told=False), name=TAU,
                    changed='another denoise step, the same noisy actions', rounding=rounding)
            for k in later_steps(self.num_steps)
        ]  # fmt: skip
        return (*found, merge(taus))

    def table_error(self, scene: SnapshotScene) -> float | None:
        """Return how far the velocity moves when the flow time comes from a table.

        All steps, as a share of the largest value, at least 1.
        """
        network = self.full.network
        prefix = self.full.encode(self._views(scene), [self._ids(scene)], self._state(scene))
        kept = copy.copy(network)
        kept.reuse = replace(network.reuse, time_table=True)
        worst = 0.0
        for k in range(self.num_steps):
            computed, looked_up = (self._velocity(n, prefix, scene, k) for n in (network, kept))
            worst = max(worst, relative(looked_up, computed))
        return worst

    def velocities(self, scene: SnapshotScene, cache: str) -> Tensor:
        """Return ``[steps, 1, chunk, max_action_dim]`` with a cache or ``full`` recomputation."""
        steps = min(SHALLOW, self.num_steps) if self.is_cut else None
        return self.predict(scene, cache, steps).velocities

    def predict(
        self, scene: SnapshotScene, cache: str = PARTITIONED, num_steps: int | None = None
    ) -> Prediction:
        """Return the whole result of one observation.

        Args:
            scene: Observation and noise.
            cache: ``partitioned``, ``naive`` or ``full``.
            num_steps: Euler steps; None = the checkpoint's.
        """
        policy = self.policy if cache in (PARTITIONED, NAIVE) else self.full
        suffix = cache if policy is self.policy else PARTITIONED
        return self.predict_with(policy, scene, num_steps, suffix)

    @staticmethod
    def predict_with(
        policy: SnapshotPolicy, scene: SnapshotScene, num_steps: int | None = None,
        cache: str = PARTITIONED,
    ) -> Prediction:  # fmt: skip
        """Return the result of another policy, of another type for example."""
        return predict(
            policy, scene.observation, scene.noise, probe=ClockProbe(SystemClock()),
            num_steps=num_steps, cache=cache,
        )  # fmt: skip

    def oracle(self, scene: SnapshotScene) -> Tensor:
        """Return the velocities of a float64 recomputation that shares nothing but the weights.

        For small models only: it keeps nothing and is slow on purpose.
        """
        images = scene.observation.images
        pixels = [self.full.processing.image(images[n])[0].double()
                  for n in self.full.cameras if n in images]  # fmt: skip
        inputs = Inputs(pixels, self._ids(scene), self._state(scene)[0].double())
        checked = self.pretrained
        reference = Reference(checked.weights, checked.sizes, checked.config)
        x, found = scene.noise[0].double(), []
        for k in range(self.num_steps):
            found.append(reference.step(inputs, x, 1.0 - k / self.num_steps).velocity)
            x = x - found[-1] / self.num_steps
        return torch.stack(found)[:, None]

    # ---- captures ----------------------------------------------------------------------------

    @torch.inference_mode()
    def _capture(self, scene: SnapshotScene, k: int, *, is_told: bool = True) -> Capture:
        """Return what full recomputation has in step ``k``.

        Where the step before was another, it runs twice and the second is taken: an encoder that
        knows the flow time from the denoiser has then been told.
        """
        network, state = self.full.network, self._state(scene)
        for _ in range(1 if is_told else 2):
            views = self._views(scene)
            prefix = self.full.encode(views, [self._ids(scene)], state)
            self._velocity(network, prefix, scene, k)
        parts = self._parts(prefix, tuple(views), len(self._ids(scene)))
        kv = {name: prefix.kv[:, :, 0, rows].clone() for name, rows in parts.items()}
        return Capture(kv, self._projected(prefix, parts), {n: v[0] for n, v in views.items()})

    def _projected(self, prefix: Prefix, parts: Mapping[str, slice]) -> dict[str, Tensor]:
        cache = StaticCache(prefix.kv)
        pairs = [
            torch.stack(layer.cross(*cache.rows(layer.slot, prefix.length)))[:, 0]
            for layer in getattr(self.full.network, 'expert', ()) if layer.is_cross
        ]  # fmt: skip
        if not pairs:
            return {}
        whole = torch.stack(pairs)
        return {name: whole[:, :, rows] for name, rows in parts.items() if name != ACTIONS}

    def _parts(self, prefix: Prefix, cameras: tuple[str, ...], words: int) -> dict[str, slice]:
        """Return the rows of each token group."""
        sizes = [(IMAGE + name, self.full.network.camera_tokens) for name in cameras]
        sizes.append((WORDS, words))
        if self.full.network.state_rows:
            sizes.append((STATE, self.full.network.state_rows))
        sizes.append((ACTIONS, self.config.chunk_size))
        parts, at = {}, 0
        for name, rows in sizes:
            parts[name] = slice(at, at + rows)
            at += rows
        return parts

    @torch.inference_mode()
    def _velocity(self, network: object, prefix: Prefix, scene: SnapshotScene, k: int) -> Tensor:
        wide = torch.promote_types(self.policy.dtype, torch.float32)
        denoiser = network.prepare(prefix, self._state(scene).to(wide), self.num_steps)
        return denoiser.velocity(scene.noise.to(wide), k)

    def _views(self, scene: SnapshotScene) -> dict[str, Tensor]:
        images = scene.observation.images
        return {n: self.full.view(images[n]) for n in self.full.cameras if n in images}

    def _state(self, scene: SnapshotScene) -> Tensor:
        return self.full.processing.state(scene.observation.state)

    def _ids(self, scene: SnapshotScene) -> tuple[int, ...]:
        if scene.ids is not None:
            return scene.ids
        row = self.full.processing.normalised_state(scene.observation.state)[0]
        return tuple(self.full.processing.token_ids(scene.observation.tasks[0], row))

    # ---- changes -----------------------------------------------------------------------------

    def _changes(
        self, scene: SnapshotScene
    ) -> Iterator[tuple[str, str, tuple[str, ...], SnapshotScene]]:
        """Yield name of the probe, change in words, groups of the input, changed scene."""
        state = self.nudged(scene)
        yield STATE, f'every joint by {NUDGE:g} of its normalised range', (STATE,), state
        ids = list(self._ids(scene))
        at = len(ids) // 2
        ids[at] = (ids[at] + 1) % self.full.processing.tokenizer.size
        yield WORDS, 'one token', (WORDS,), replace(scene, ids=tuple(ids))
        images = scene.observation.images
        for name in self.full.cameras:
            if name in images:
                other = {**images, name: 255 - images[name]}
                observation = replace(scene.observation, images=other)
                yield (IMAGE + name, 'every pixel inverted', (IMAGE + name, name),
                       replace(scene, observation=observation))  # fmt: skip

    def nudged(self, scene: SnapshotScene, column: int | None = None) -> SnapshotScene:
        """Return the scene with one joint moved, or every one.

        Where the state is text, the change is grown until the text has as many tokens as before.
        """
        raw = scene.observation.state
        for factor in (1.0, 1.5, 2.0, 0.7, 3.0):
            moved = self._moved(raw, factor * NUDGE, column)
            other = replace(scene, observation=replace(scene.observation, state=moved))
            if scene.ids is not None or len(self._ids(other)) == len(self._ids(scene)):
                return other
        return other

    def _moved(self, raw: Tensor, by: float, column: int | None) -> Tensor:
        processing = self.full.processing
        near = processing.normalised_state(raw).clone()
        near[:, slice(None) if column is None else slice(column, column + 1)] += by
        return processing.state_normaliser.restore(near)


    def steps_between(
        self, scene: SnapshotScene, moved: SnapshotScene, column: int
    ) -> tuple[float, float]:
        """Return how far one joint of the state moved: normalised, and in its own unit."""
        raw = [one.observation.state for one in (scene, moved)]
        near = [self.full.processing.normalised_state(state)[0, column] for state in raw]
        return float(near[1] - near[0]), float(raw[1][0, column] - raw[0][0, column])


def shallow(pretrained: Pretrained) -> Pretrained:
    """Return a checkpoint cut to its first layers: what layers may depend on shows there.

    Weights of the others are not read.
    """
    sizes = pretrained.sizes
    stride = max(1, sizes.depth // max(1, sizes.expert_depth))
    experts = min(SHALLOW, sizes.expert_depth)
    cut = replace(
        sizes, depth=min(sizes.depth, stride * experts), expert_depth=experts,
        vision_depth=min(SHALLOW, sizes.vision_depth),
    )  # fmt: skip
    return replace(pretrained, sizes=cut)


def later_steps(num_steps: int) -> tuple[int, ...]:
    """Return the steps that are compared with the first: the middle and the last one."""
    return tuple(sorted({num_steps // 2, num_steps - 1}))


def relative(found: Tensor, wanted: Tensor) -> float:
    """Return max|difference| as a share of max|wanted|, at least 1."""
    wanted = wanted.double()
    return float((found.double() - wanted).abs().max() / wanted.abs().max().clamp_min(1.0))
