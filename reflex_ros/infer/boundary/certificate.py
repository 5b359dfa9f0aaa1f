"""The certificate of a loaded model: probes, verdicts, refusals, and one hash of them all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from reflex_ros.core.errors import ModelError
from reflex_ros.infer.boundary.probe import Probe, Verdict
from reflex_ros.infer.boundary.snapshot import (
    EQUAL,
    SnapshotBoundary,
    SnapshotScene,
    relative,
)
from reflex_ros.infer.boundary.verdicts import hash_of, refusals, verdicts
from reflex_ros.infer.boundary.windowed import WindowedBoundary, WindowedScene
from reflex_ros.infer.cache import PARTITIONED
from reflex_ros.infer.checkpoint.config import read_json
from reflex_ros.infer.checkpoint.pretrained import Pretrained, open_pretrained
from reflex_ros.infer.families.tiny import TinyPolicy
from reflex_ros.infer.flow import chunk_noise
from reflex_ros.infer.one_shot import Observation
from reflex_ros.infer.plan import DTYPES
from reflex_ros.infer.policy import SnapshotPolicy

SCHEMA = 1
EXAMPLE_TASK = 'pick up the red block'
DRIFT_PX = 2
"""How far a sample image moves from frame to frame."""


class Boundary(Protocol):
    """A model that can be probed.

    Attributes:
        model_id, family, layout, dtype, num_steps: What it is and computes in.
    """

    model_id: str
    family: str
    layout: str
    dtype: str
    num_steps: int

    def probes(self, scene: Any) -> tuple[Probe, ...]:
        """Return what each change of an input moves."""

    def table_error(self, scene: Any) -> float | None:
        """Return the error of a table of the flow time; None = there is none."""

    def velocities(self, scene: Any, cache: str) -> Tensor:
        """Return the velocity of each step."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """What was found.

    Attributes:
        identity: Model, type and options.
        probes: Movement by changed input.
        verdicts: Whether each kind of reuse is exact.
        refusals: Why the model may not be streamed; empty for a good one.
        full_error: Partitioned cache against full recomputation: max|difference| of all steps'
            velocities, and the same as a share of the largest value, at least 1.
    """

    identity: Mapping[str, Any]
    probes: tuple[Probe, ...]
    verdicts: tuple[Verdict, ...]
    refusals: tuple[str, ...]
    full_error: tuple[float, float]

    @property
    def exact_reuse(self) -> tuple[str, ...]:
        """Names of what may be reused."""
        return tuple(verdict.name for verdict in self.verdicts if verdict.is_exact)

    @property
    def hash(self) -> str:
        """Hash of what the certificate says; no time, place or speed is in it."""
        is_equal = self.full_error[1] <= EQUAL[self.identity['dtype']]
        return hash_of(self.identity, self.verdicts, bool(self.refusals), is_equal)


def certify(boundary: Boundary, scene: Any) -> Certificate:
    """Probe a model on one observation.

    Args:
        boundary: The model.
        scene: Observation and noise, of the boundary's layout. One of ``sample_of`` has every
            camera and a full window, so that no verdict is missing.
    """
    probes = boundary.probes(scene)
    bound = EQUAL[boundary.dtype]
    found = verdicts(probes, table_error=boundary.table_error(scene), bound=bound)
    identity = {
        'schema': SCHEMA, 'model_id': boundary.model_id, 'family': boundary.family,
        'layout': boundary.layout, 'dtype': boundary.dtype, 'cache': PARTITIONED,
        'num_steps': boundary.num_steps,
    }  # fmt: skip
    part, full = (boundary.velocities(scene, cache) for cache in (PARTITIONED, 'full'))
    error = (largest(part, full), relative(part, full))
    refused = refusals(probes)
    if not refused and not error[1] <= bound:
        refused = (
            f'partitioned cache does not fit the model: got velocities that differ from full '
            f'recomputation by {error[1]:.3g}, expected at most {bound:g} (share of the largest '
            'value). Report it; do not run this checkpoint.',
        )
    return Certificate(identity, probes, found, refused, error)


def largest(found: Tensor, wanted: Tensor) -> float:
    """Return max|difference|."""
    return float((found.double() - wanted.double()).abs().max())


def certificate_hash(
    source: Path | SnapshotPolicy | Pretrained | TinyPolicy, *, dtype: str | None = None
) -> str:
    """Return the hash of a model's certificate; cheap enough for *configure*.

    A large model is cut to its first layers: every layer is of one kind, so the verdicts are
    those of ``reflex-ros verify``, and so is the hash.

    Args:
        source: Checkpoint folder, or what was loaded from it.
        dtype: Type to compute in; None = the loaded policy's, or the checkpoint's.

    Raises:
        ModelError: The model may not be streamed, or the folder is damaged.
    """
    boundary, scene = boundary_of(source, dtype=dtype, is_shallow=True)
    found = certify(boundary, scene)
    if found.refusals:
        raise ModelError(found.refusals[0])
    return found.hash


def boundary_of(
    source: Path | SnapshotPolicy | Pretrained | TinyPolicy, *, dtype: str | None = None,
    is_shallow: bool = False,
) -> tuple[Boundary, Any]:  # fmt: skip
    """Return a model ready to be probed, and a sample observation of it.

    Args:
        source, dtype: See ``certificate_hash``.
        is_shallow: Cut a ``snapshot`` model to its first layers.
    """
    if isinstance(source, Path) and read_json(source / 'config.json').get('type') == 'tiny':
        source = TinyPolicy.load(source, dtype=DTYPES[dtype or 'float32'])
    if isinstance(source, TinyPolicy):
        boundary: Boundary = WindowedBoundary(source)
        return boundary, sample_of(boundary)
    if isinstance(source, SnapshotPolicy):
        names = {value: name for name, value in DTYPES.items()}
        source, dtype = source.pretrained, dtype or names[source.dtype]
    elif isinstance(source, Path):
        source = open_pretrained(source)
    boundary = SnapshotBoundary(source, dtype=dtype, is_cut=is_shallow)
    return boundary, sample_of(boundary)


def sample_of(boundary: Any) -> Any:
    """Return a made-up observation of a model, the same one each time."""
    if boundary.layout == 'windowed':
        return windowed_samples(boundary.policy, boundary.spec.window)[-1]
    # two cameras show what three do
    most = 2 if boundary.is_cut else None
    return snapshot_samples(boundary.pretrained, 1, cameras=most)[0]


# ---- sample observations ---------------------------------------------------------------------


def snapshot_samples(
    pretrained: Pretrained, count: int, *, seed: int = 0, cameras: int | None = None
) -> list[SnapshotScene]:
    """Return made-up observations: drifting colours, a slow state near its usual middle.

    Args:
        pretrained: Checkpoint. count, seed: How many, of which seed.
        cameras: Most cameras; None = all.
    """
    config, side = pretrained.config, pretrained.sizes.image
    normaliser = pretrained.processing.state_normaliser
    scenes = []
    for at in range(count):
        images = {
            name: torch.from_numpy(sample_image(seed, slot, at, side).transpose(2, 0, 1)[None])
            for slot, name in enumerate(config.cameras[:cameras])
        }
        near = torch.from_numpy(sample_state(seed, at, config.state_dim)).to(torch.float32)[None]
        shape = (1, config.chunk_size, config.max_action_dim)
        noise = torch.from_numpy(chunk_noise(seed, at, shape=shape))
        observation = Observation(images, normaliser.restore(near), (EXAMPLE_TASK,))
        scenes.append(SnapshotScene(observation, noise))
    return scenes


def windowed_samples(policy: TinyPolicy, count: int, *, seed: int = 0) -> list[WindowedScene]:
    """Return made-up windows, each one frame later; those at the start are shorter."""
    spec = policy.spec
    frames = [
        {name: sample_image(seed, slot, at, spec.image_hw[0])
         for slot, name in enumerate(spec.cameras)}
        for at in range(count)
    ]  # fmt: skip
    states = [policy.scalings.state.restore(sample_state(seed, at, len(spec.joint_names)))
              for at in range(count)]  # fmt: skip
    return [
        window_scene(policy, frames[: at + 1], states[at], spec.instruction,
                     noise=chunk_noise(seed, at, shape=spec.noise_shape))
        for at in range(count)
    ]  # fmt: skip


def window_scene(
    policy: TinyPolicy, frames: Any, state: Any, task: str, *, noise: Any
) -> WindowedScene:
    """Return the window of the newest frames, one frame period apart as in training."""
    spec = policy.spec
    kept = tuple(frames[-spec.window :])
    step = spec.frame_period_ns / spec.step_period_ns
    ages = tuple(step * (len(kept) - 1 - i) for i in range(len(kept)))
    return WindowedScene(kept, ages, np.asarray(state, np.float64), task, noise)


def sample_image(seed: int, slot: int, at: int, side: int) -> np.ndarray:
    """Return ``uint8[side, side, 3]``: soft blotches of a slot's own that drift with ``at``."""
    rng = np.random.default_rng([seed, slot])
    waves = rng.uniform(0.5, 3.0, (3, 4, 2)) * rng.choice([-1, 1], (3, 4, 2))
    phases = rng.uniform(0, 2 * np.pi, (3, 4))
    y, x = np.mgrid[:side, :side] / side
    x = x + DRIFT_PX * at / side
    angle = 2 * np.pi * (waves[..., 0, None, None] * x + waves[..., 1, None, None] * y)
    field = np.sin(angle + phases[..., None, None]).mean(1)
    return np.clip(127.5 * (1 + field), 0, 255).astype(np.uint8).transpose(1, 2, 0).copy()


def sample_state(seed: int, at: int, joints: int) -> np.ndarray:
    """Return a normalised state float64[joints] that drifts slowly with ``at``."""
    rng = np.random.default_rng([seed, 7])
    return rng.uniform(-0.4, 0.4, joints) + 0.05 * at * rng.uniform(-1, 1, joints)
