"""The prior caches on the trained ``tiny``: what the simulated camera sees, errors in rad."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import torch

from reflex_ros.infer import snapshot
from reflex_ros.infer.baselines.options import UNBOUNDED, FrameOptions, VlOptions
from reflex_ros.infer.baselines.windowed import BudgetDenoiser, FrameCache
from reflex_ros.infer.cache import VL_CACHE, VLA_CACHE
from reflex_ros.infer.families.tiny import TinyPolicy
from reflex_ros.infer.flow import chunk_noise
from reflex_ros.study.op_counts import count_ops
from reflex_ros.study.prior_caches import RETENTIONS, Row, Tally, timed
from reflex_ros.study.prior_caches_scenes import panned
from reflex_ros.study.stability_calls import Scene

FRAME_VARIANTS: Mapping[str, FrameOptions] = MappingProxyType({
    'every patch, 3 frames': FrameOptions(max_age=3),
    '9 of 10 patches, 3 frames': FrameOptions(static_share=0.9, max_age=3),
    '9 of 10 patches, no bound': FrameOptions(static_share=0.9, max_age=UNBOUNDED),
})  # fmt: skip
SCENES = MappingProxyType({
    'identical': 'the same image in every frame',
    'still': 'the first image of the simulator with new camera noise in every frame',
    'working': 'the simulated arm follows a target that moves and jumps',
    'drifting': 'the first image, panned by a twentieth of a pixel per frame',
})  # fmt: skip
NOISE, PAN_PX = 1.5, 0.05
"""Of 255; pixels per frame."""
Float64 = npt.NDArray[np.float64]
Blocks = list[torch.Tensor]


@dataclass(frozen=True, slots=True)
class Call:
    """One call: the frames up to now, the joint state, the noise."""

    image: npt.NDArray[np.uint8]
    state: Float64
    noise: npt.NDArray[np.float32]


class TinyStage:
    """The policy with one stream of a rendered scene.

    Args:
        folder: Checkpoint. scene: Of ``stability_calls.follow_scene``. seed: Of the noise.
    """

    def __init__(self, folder: Path, scene: Scene, *, seed: int) -> None:
        self.policy = TinyPolicy.load(folder)
        self._scene, self._seed, spec = scene, seed, self.policy.spec
        self.pinned = torch.zeros(spec.pinned_shape)
        self.policy.encode_instruction(spec.instruction, self.pinned)
        self.ticks_per_frame = spec.frame_period_ns / spec.step_period_ns

    def stream(self, name: str) -> Iterator[Call]:
        """Yield the calls of a scene of ``SCENES``."""
        rng = np.random.default_rng(self._seed)
        first = self._scene.images[0].astype(np.float64)
        for at, (image, state) in enumerate(
                zip(self._scene.images, self._scene.states, strict=True)):
            seen = {
                'identical': first, 'drifting': panned(first, PAN_PX * at),
                'still': first + rng.normal(0, NOISE, first.shape),
                'working': image.astype(np.float64),
            }[name]  # fmt: skip
            noise = chunk_noise(self._seed, at, shape=self.policy.spec.noise_shape)
            yield Call(np.clip(np.rint(seen), 0, 255).astype(np.uint8),
                       state if name == 'working' else self._scene.states[0], noise)  # fmt: skip

    def encode(self, image: npt.NDArray[np.uint8]) -> torch.Tensor:
        """Return the block of one frame."""
        block = torch.zeros(self.policy.spec.frame_shape)
        self.policy.encode_frame(self.images(image), self.pinned, block)
        return block

    def images(self, image: npt.NDArray[np.uint8]) -> dict[str, npt.NDArray[np.uint8]]:
        """Return one image as that of every camera."""
        return dict.fromkeys(self.policy.spec.cameras, image)

    def ages(self, frames: int) -> Float64:
        """Return the ages of a window, oldest first, control steps."""
        return np.arange(frames)[::-1] * self.ticks_per_frame

    def act(self, blocks: Sequence[torch.Tensor], call: Call) -> Float64:
        """Return the chunk on a window of frames."""
        return self.policy.denoise(self.pinned, blocks, self.ages(len(blocks)), state=call.state,
                                   noise=call.noise)  # fmt: skip

    def windows(self, name: str) -> Iterator[tuple[Blocks, Call]]:
        """Yield the exact window of each call."""
        held: Blocks = []
        for call in self.stream(name):
            held = [*held, self.encode(call.image)][-self.policy.spec.window :]
            yield held, call


def errors(found: Float64, right: Float64) -> dict[str, float]:
    """Return the largest and mean error of the revolute joints, rad, and how far they move."""
    apart = np.abs(found - right)[:, :6]
    moved = np.abs(right - right[0])[:, :6]
    return {'action_error_max': float(apart.max()), 'action_error_mean': float(apart.mean()),
            'action_size_mean': float(moved.max())}  # fmt: skip


def measure_frames(
    stage: TinyStage, scenes: Sequence[str] = tuple(SCENES), *,
    variants: Mapping[str, FrameOptions] = FRAME_VARIANTS,
    tick: Callable[[], object] = lambda: None,
) -> list[Row]:  # fmt: skip
    """Return one row for each scene and variant of ``vla_cache`` in the windowed layout."""
    rows, window = [], stage.policy.spec.window
    for scene in scenes:
        caches = {name: FrameCache(stage.policy, options) for name, options in variants.items()}
        tallies = {name: Tally() for name in variants}
        exact: Blocks = []
        held: dict[str, Blocks] = {name: [] for name in variants}
        for at, call in enumerate(stage.stream(scene)):
            block, full_ns = timed(lambda c=call: stage.encode(c.image))
            exact = [*exact, block][-window:]
            right = stage.act(exact, call)
            for name, cache in caches.items():
                out = torch.zeros_like(block)
                is_reused, some_ns = timed(lambda c=call, k=cache, o=out: k.encode_frame(
                    stage.images(c.image), stage.pinned, o))  # fmt: skip
                held[name] = [*held[name], out][-window:]
                if at:
                    tallies[name].add(
                        reuse_ratio=is_reused, oldest_age=cache.age, cpu_ratio=some_ns / full_ns,
                        **_key_errors(held[name], exact), **errors(stage.act(held[name], call),
                                                                   right))  # fmt: skip
            tick()
        rows += [tally.row(method=VLA_CACHE, variant=name, scene=scene, unit='rad')
                 for name, tally in tallies.items()]  # fmt: skip
    return rows


def _key_errors(held: Blocks, exact: Blocks) -> dict[str, float]:
    new, right = torch.stack(held)[:, :, 0], torch.stack(exact)[:, :, 0]
    apart = (new - right).abs()
    return {'key_error_max': float(apart.max()), 'key_error_mean': float(apart.mean()),
            'key_size_mean': float(right.abs().mean())}  # fmt: skip


def measure_budgets(
    stage: TinyStage, scene: str = 'working', *, retentions: Sequence[float] = RETENTIONS,
    tick: Callable[[], object] = lambda: None,
) -> list[Row]:  # fmt: skip
    """Return one row for each budget of ``vl_cache`` in the windowed layout.

    Time and work are beside those of the same code with the whole budget, which is slower than
    what the nodes run: the ratio is the saving itself.
    """
    tallies = {retention: Tally() for retention in retentions}
    for blocks, call in stage.windows(scene):
        right = stage.act(blocks, call)
        _, full_ns = timed(lambda b=blocks, c=call: _budgeted(stage, b, c, VlOptions(1.0)))
        for retention, tally in tallies.items():
            options = VlOptions(retention)
            (rows, report), some_ns = timed(
                lambda b=blocks, c=call, o=options: _budgeted(stage, b, c, o))
            audit = _budgeted(stage, blocks, call, VlOptions(retention, is_audited=True))[1]
            tally.add(**report, **errors(rows, right), cpu_ratio=some_ns / full_ns,
                      mass_all_steps=audit['dropped_mass'])
        tick()
    found = [tally.row(method=VL_CACHE, variant=f'{retention:g}', scene=scene, unit='rad')
             for retention, tally in tallies.items()]  # fmt: skip
    whole = count_ops(lambda: _budgeted(stage, blocks, call, VlOptions(1.0))).macs
    for row, retention in zip(found, retentions, strict=True):
        some = count_ops(lambda r=retention: _budgeted(stage, blocks, call, VlOptions(r))).macs
        row['macs_ratio'] = some / whole
    return found


def _budgeted(
    stage: TinyStage, blocks: Blocks, call: Call, options: VlOptions
) -> tuple[Float64, dict[str, float]]:
    """Return the chunk with a budget, and what was kept."""
    policy, steps = stage.policy, stage.policy.spec.num_steps
    with torch.inference_mode():
        denoiser = BudgetDenoiser(policy, stage.pinned, blocks, stage.ages(len(blocks)),
                                  state=call.state, num_steps=steps, options=options)  # fmt: skip
        noise = torch.from_numpy(call.noise).to(policy.dtype)[None]
        rows = snapshot.denoise(denoiser, noise, steps)
    return policy.actions(rows, call.state), denoiser.context.report()
