"""One inference on a batch, with everything that a comparison with the reference needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from reflex_ros.core.errors import ConfigError
from reflex_ros.infer import flow
from reflex_ros.infer.baselines.registry import Prior, open_prior
from reflex_ros.infer.baselines.vla_cache import Seen
from reflex_ros.infer.cache import PARTITIONED, PRIOR
from reflex_ros.infer.tokens import padded_valid, reference_padding

if TYPE_CHECKING:
    from reflex_ros.core.probe import Probe
    from reflex_ros.infer.policy import SnapshotPolicy
    from reflex_ros.infer.snapshot import Denoiser, Prefix


@dataclass(frozen=True, slots=True)
class Observation:
    """What a policy is asked about, one row per observation.

    Attributes:
        images: ``uint8[batch, 3, height, width]`` RGB by camera; absent cameras are left out.
        state: ``float32[batch, joints]`` in the checkpoint's units and order.
        tasks: Instruction of each row.
    """

    images: Mapping[str, Tensor]
    state: Tensor
    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Prediction:
    """Result of one inference.

    Attributes:
        actions: ``float32[batch, chunk, max_action_dim]`` as the network makes them.
        physical: ``float32[batch, chunk, joints]`` absolute, in the checkpoint's units.
        velocities: ``float32[steps, batch, chunk, max_action_dim]``, one per Euler step.
        key, value: ``[layers, batch, kv_heads, length, head_dim]`` of the prefix in the layout of
            the reference, zero where nothing counts.
        valid: ``bool[batch, length]`` which of these rows count.
        notes: What a prior method reused or dropped in each row, by name; else empty.
    """

    actions: Tensor
    physical: Tensor
    velocities: Tensor
    key: Tensor
    value: Tensor
    valid: Tensor
    notes: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Run:
    """Raw result of one pass: of a whole batch, or of one row without padding."""

    actions: Tensor
    velocities: Tensor
    prefix: Prefix
    notes: Mapping[str, float] = field(default_factory=dict)


class RecomputingDenoiser:
    """Velocity field that runs the prefix again in every step: what a cache is compared with."""

    def __init__(
        self, policy: SnapshotPolicy, views: Mapping[str, Tensor], ids: Sequence[Sequence[int]],
        *, state: Tensor, num_steps: int,
    ) -> None:  # fmt: skip
        self._policy, self._views, self._ids = policy, views, ids
        self._state, self._num_steps = state, num_steps
        self.prefix = policy.encode(views, ids, state)

    def velocity(self, x: Tensor, k: int) -> Tensor:
        """Return the velocity at step ``k`` from a fresh prefix."""
        self.prefix = self._policy.encode(
            self._views, self._ids, self._state, out=torch.zeros_like(self.prefix.kv)
        )
        return self._policy.prepare(self.prefix, self._state, self._num_steps).velocity(x, k)


def predict(
    policy: SnapshotPolicy,
    observation: Observation,
    noise: Tensor,
    *,
    probe: Probe,
    num_steps: int | None = None,
    cache: str | Prior = PARTITIONED,
) -> Prediction:
    """Return the actions of a batch and how they came about.

    Args:
        policy: Loaded checkpoint; its switches decide what is reused.
        observation: Images, state and instructions.
        noise: ``float32[batch, chunk, max_action_dim]``.
        probe: Times the stages ``preprocess``, ``vision``, ``prefix``, ``denoise``, ``decode``.
        num_steps: Euler steps, None = the checkpoint's.
        cache: Of the suffix; looked at where the prefix is kept, see ``SnapshotPolicy.prepare``.
            Or the name of a prior method with its default parameters, or an open one: its rows
            are one observation after another.

    Raises:
        ConfigError: Shapes do not fit the checkpoint, or there is no such cache.
    """
    steps = num_steps or policy.config.num_steps
    check_observation(policy, observation, noise)
    if isinstance(cache, str) and cache in PRIOR:
        cache = open_prior(cache, policy)
    with probe.span('preprocess'):
        state = policy.processing.state(observation.state)
        near = policy.processing.normalised_state(observation.state)
        ids = [
            policy.processing.token_ids(task, row)
            for task, row in zip(observation.tasks, near, strict=True)
        ]
    with probe.span('vision'):
        views = {name: policy.view(observation.images[name]) for name in policy.cameras
                 if name in observation.images}  # fmt: skip
    groups = _rows(len(ids)) if policy.reuse.drop_masked else [slice(None)]
    def run(g: slice) -> Run:
        own = {n: v[g] for n, v in views.items()}
        if not isinstance(cache, str):
            seen = Seen({n: observation.images[n][g] for n in own}, own, ids[g][0], state[g],
                        observation.tasks[g][0])  # fmt: skip
            return _run_prior(policy, cache, seen, noise=noise[g], steps=steps, probe=probe)
        return _run(policy, own, ids[g], state=state[g], noise=noise[g], steps=steps,
                    probe=probe, cache=cache)  # fmt: skip

    runs = [run(g) for g in groups]
    actions = torch.cat([r.actions for r in runs])
    with probe.span('decode'):
        physical = policy.processing.actions(actions, observation.state)
    valid = _reference_valid(policy, len(views), ids)
    key, value = _scatter(policy, runs, valid)
    return Prediction(
        actions, physical, torch.cat([r.velocities for r in runs], 1), key, value, valid,
        {name: tuple(r.notes[name] for r in runs) for name in runs[0].notes},
    )


def check_observation(policy: SnapshotPolicy, observation: Observation, noise: Tensor) -> None:
    """Refuse an observation that does not fit the checkpoint.

    Raises:
        ConfigError: Wrong shape of state, images, noise, a value in them that is not finite, or a
            camera the checkpoint lacks.
    """
    config, batch = policy.config, len(observation.tasks)
    wanted = {
        'state': (observation.state, (batch, config.state_dim)),
        'noise': (noise, (batch, config.chunk_size, config.max_action_dim)),
    }
    for name, (tensor, shape) in wanted.items():
        if tuple(tensor.shape) != shape:
            raise ConfigError(
                f'{name} cannot be used: got shape {list(tensor.shape)}, expected {list(shape)}. '
                'Give what the checkpoint expects.'
            )
    policy.processing.normalised_state(observation.state)  # names the joint that is not finite
    if not bool(torch.isfinite(noise).all()):
        at = (~torch.isfinite(noise)).nonzero()[0].tolist()
        raise ConfigError(
            f'noise cannot be used: got a value that is not finite at {at}, expected a number. '
            'Give finite noise of [row, step, column].'
        )
    if unknown := sorted(set(observation.images) - set(policy.cameras)):
        raise ConfigError(
            f'camera cannot be used {unknown[0]}: got no such input, expected some of '
            f'{list(policy.cameras)}. Name the cameras as the checkpoint does.'
        )
    for name, image in observation.images.items():
        if image.ndim != 4 or len(image) != batch or image.shape[1] != 3 or (
                image.dtype != torch.uint8) or 0 in image.shape:
            raise ConfigError(
                f'image cannot be used {name}: got {image.dtype} {list(image.shape)}, expected '
                f'uint8 [{batch}, 3, height, width]. Give one RGB image for each row.'
            )
    if not observation.images:
        raise ConfigError(
            f'images cannot be used: got none, expected at least one of {list(policy.cameras)}. '
            'Give the images of the cameras.'
        )


def _rows(batch: int) -> list[slice]:
    return [slice(row, row + 1) for row in range(batch)]


def _run(
    policy: SnapshotPolicy, views: Mapping[str, Tensor], ids: Sequence[Sequence[int]], *,
    state: Tensor, noise: Tensor, steps: int, probe: Probe, cache: str,
) -> Run:  # fmt: skip
    with probe.span('prefix'):
        if policy.reuse.prefix_kv:
            prefix = policy.encode(views, ids, state)
    with probe.span('denoise'):
        if policy.reuse.prefix_kv:
            denoiser: Denoiser = policy.prepare(prefix, state, steps, cache=cache)
        else:
            denoiser = RecomputingDenoiser(policy, views, ids, state=state, num_steps=steps)
        actions, velocities = _integrate(denoiser, noise, steps)
    if isinstance(denoiser, RecomputingDenoiser):
        prefix = denoiser.prefix
    return Run(actions, velocities, _with_state(policy, prefix))


def _run_prior(
    policy: SnapshotPolicy, prior: Prior, seen: Seen, *, noise: Tensor, steps: int, probe: Probe
) -> Run:
    with probe.span('prefix'):
        prefix = prior.encode(seen)
    with probe.span('denoise'):
        denoiser = policy.prepare(prefix, seen.state, steps, cache=prior.suffix(prefix))
        actions, velocities = _integrate(denoiser, noise, steps)
    return Run(actions, velocities, prefix, prior.report())


def _integrate(denoiser: Denoiser, noise: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Return the actions and the velocity of every step."""
    velocities: list[Tensor] = []

    def velocity(x: Tensor, k: int) -> Tensor:
        velocities.append(denoiser.velocity(x, k))
        return velocities[-1]

    with torch.inference_mode():
        actions = flow.integrate(velocity, noise, steps)
    return actions, torch.stack(velocities)


def _with_state(policy: SnapshotPolicy, prefix: Prefix) -> Prefix:
    """Return the prefix with the row that ``prepare`` put behind it, where that is part of it."""
    if not policy.network.is_state_in_prefix or prefix.has_state:
        return prefix
    valid = None if prefix.valid is None else F.pad(prefix.valid, (0, 1), value=True)
    return replace(prefix, length=prefix.length + 1, valid=valid, has_state=True)


def _reference_valid(
    policy: SnapshotPolicy, cameras: int, ids: Sequence[Sequence[int]]
) -> Tensor:
    padding = reference_padding(policy.config, cameras, ids)
    lengths = torch.tensor([len(row) for row in ids])
    tokens = policy.network.camera_tokens
    valid = padded_valid(tokens, cameras, lengths, padding=padding)
    if policy.network.is_state_in_prefix:
        valid = F.pad(valid, (0, 1), value=True)
    return F.pad(valid, (0, max(0, padding.total - valid.shape[1])), value=False)


def _scatter(
    policy: SnapshotPolicy, runs: Sequence[Run], valid: Tensor
) -> tuple[Tensor, Tensor]:
    """Return keys and values ``[layers, batch, kv_heads, length, head_dim]`` where they belong."""
    out = policy.network.new_cache(*valid.shape)
    first = 0
    for run in runs:
        prefix, rows = run.prefix, run.prefix.kv.shape[2]
        for row in range(rows):
            kept = prefix.kv[:, :, row, : prefix.length]
            kept = kept if prefix.valid is None else kept[:, :, prefix.valid[row]]
            out[:, :, first + row, valid[first + row]] = kept
        first += rows
    key, value = out.permute(1, 0, 2, 4, 3, 5)
    return key, value
