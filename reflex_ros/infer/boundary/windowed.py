"""Probes of a checkpoint of the ``windowed`` layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from reflex_ros.infer import flow
from reflex_ros.infer.boundary.probe import (
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
from reflex_ros.infer.boundary.snapshot import NUDGE, later_steps
from reflex_ros.infer.cache import NAIVE, PARTITIONED
from reflex_ros.infer.families.tiny import TinyPolicy
from reflex_ros.infer.families.tiny_graph import TinyDenoiser
from reflex_ros.infer.plan import DTYPES
from reflex_ros.infer.reference import Oracle, Scene, Sizes

Images = Mapping[str, npt.NDArray[np.uint8]]
Float64 = npt.NDArray[np.float64]
Blocks = tuple[Tensor, list[Tensor]]


@dataclass(frozen=True, slots=True)
class WindowedScene:
    """One window and the noise to denoise.

    Attributes:
        frames: ``uint8[H, W, 3]`` RGB by camera, oldest frame first.
        ages_steps: Age of each frame, control steps.
        state: float64[joints], rad and m.
        task: Instruction.
        noise: ``float32[horizon, joints]``.
        ids: Token ids that win over those of the task.
    """

    frames: tuple[Images, ...]
    ages_steps: tuple[float, ...]
    state: Float64
    task: str
    noise: npt.NDArray[np.float32]
    ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class WindowedResult:
    """Velocities ``[steps, 1, horizon, joints]``, network's actions, and physical ones."""

    velocities: Tensor
    actions: Tensor
    physical: Float64


class WindowedBoundary:
    """One model under the probes. Not thread-safe.

    Args:
        policy: Loaded checkpoint.
    """

    layout = 'windowed'

    def __init__(self, policy: TinyPolicy) -> None:
        self.policy, self.spec = policy, policy.spec
        self.model_id, self.family = policy.spec.model_id, policy.spec.family
        self.num_steps = policy.spec.num_steps
        self.dtype = {value: name for name, value in DTYPES.items()}[policy.dtype]

    def probes(self, scene: WindowedScene) -> tuple[Probe, ...]:
        """Return what each change of an input moves; flow time last."""
        base, rounding = self._capture(scene, 0), KEPT[self.dtype]
        found = [
            compare(base, self._capture(other, 0), name=name, changed=changed, own=own,
                    rounding=rounding)
            for name, changed, own, other in self._changes(scene)
        ]  # fmt: skip
        taus = [
            compare(base, self._capture(scene, k), name=TAU,
                    changed='another denoise step, the same noisy actions', rounding=rounding)
            for k in later_steps(self.num_steps)
        ]  # fmt: skip
        return (*found, merge(taus))

    def table_error(self, scene: WindowedScene) -> float | None:
        """Return None: the flow time goes with the state, so that no table is for ever."""
        return None

    def velocities(self, scene: WindowedScene, cache: str) -> Tensor:
        """Return ``[steps, 1, horizon, joints]`` with a cache or ``full`` recomputation."""
        return self.predict(scene, cache).velocities

    def predict(
        self, scene: WindowedScene, cache: str = PARTITIONED, num_steps: int | None = None
    ) -> WindowedResult:
        """Return the whole result of one window.

        Args:
            scene: Window and noise.
            cache: ``partitioned``, ``naive``, or ``full``: every block in every step.
            num_steps: Euler steps; None = the checkpoint's.
        """
        steps = num_steps or self.num_steps
        if cache in (PARTITIONED, NAIVE):
            return self.run(scene, self.encode(scene), num_steps=steps, cache=cache)

        def velocity(x: Tensor, k: int) -> Tensor:
            return self._prepare(scene, self.encode(scene), steps, PARTITIONED).velocity(x, k)

        return self._integrate(scene, velocity, steps)

    def encode(self, scene: WindowedScene) -> Blocks:
        """Return the pinned block and each frame's block, float32 as in the ring."""
        pinned = torch.zeros(self.spec.pinned_shape)
        if scene.ids is None:
            self.policy.encode_instruction(scene.task, pinned)
        else:
            with torch.inference_mode():
                pinned.copy_(self.policy.network.encode_words(torch.tensor([scene.ids]))[0])
        frames = [torch.zeros(self.spec.frame_shape) for _ in scene.frames]
        for images, out in zip(scene.frames, frames, strict=True):
            self.policy.encode_frame(images, pinned, out)
        return pinned, frames

    def run(self, scene: WindowedScene, blocks: Blocks, *, num_steps: int | None = None,
            cache: str = PARTITIONED) -> WindowedResult:  # fmt: skip
        """Return the result on given blocks; arguments as in ``predict``."""
        steps = num_steps or self.num_steps
        return self._integrate(scene, self._prepare(scene, blocks, steps, cache).velocity, steps)

    def oracle(self, scene: WindowedScene) -> Tensor:
        """Return the velocities of a float64 recomputation that shares nothing but the weights."""
        config = self.policy.network.config
        sizes = Sizes(**{field.name: getattr(config, field.name) for field in fields(Sizes)})
        weights = {n: t.double().numpy() for n, t in self.policy.network.state_dict().items()}
        oracle = Oracle(weights, sizes)
        images = [[frame[name].astype(np.float64) / 127.5 - 1 for name in self.spec.cameras]
                  for frame in scene.frames]  # fmt: skip
        problem = Scene(self._ids(scene), images, scene.ages_steps,
                        self.policy.scalings.state.normalise(scene.state))  # fmt: skip
        x, found = scene.noise.astype(np.float64), []
        for k in range(self.num_steps):
            found.append(oracle.velocity(problem, x, 1.0 - k / self.num_steps))
            x = x - found[-1] / self.num_steps
        return torch.from_numpy(np.stack(found))[:, None]

    def nudged(self, scene: WindowedScene, column: int | None = None) -> WindowedScene:
        """Return the scene with one joint moved, or every one."""
        normalise = self.policy.scalings.state
        near = np.array(normalise.normalise(scene.state))
        near[slice(None) if column is None else column] += NUDGE
        return replace(scene, state=np.asarray(normalise.restore(near), np.float64))

    def steps_between(
        self, scene: WindowedScene, moved: WindowedScene, column: int
    ) -> tuple[float, float]:
        """Return how far one joint of the state moved: normalised, and in rad or m."""
        near = [self.policy.scalings.state.normalise(one.state)[column] for one in (scene, moved)]
        return float(near[1] - near[0]), float(moved.state[column] - scene.state[column])

    # ---- captures ----------------------------------------------------------------------------

    def _capture(self, scene: WindowedScene, k: int) -> Capture:
        """Return the blocks as they are encoded after step ``k``, in the ring's type."""
        blocks = self.encode(scene)
        with torch.inference_mode():
            self._prepare(scene, blocks, self.num_steps, PARTITIONED).velocity(
                torch.from_numpy(scene.noise).to(self.policy.dtype)[None], k)
        pinned, frames = self.encode(scene)
        last, kv = len(frames) - 1, {WORDS: pinned}
        for index, frame in enumerate(frames):
            for at, camera in enumerate(self.spec.cameras):
                kv[group(camera, last - index)] = frame[:, :, at : at + 1]
        return Capture(kv)

    def _changes(
        self, scene: WindowedScene
    ) -> Iterator[tuple[str, str, tuple[str, ...], WindowedScene]]:
        yield (STATE, f'every joint by {NUDGE:g} of its normalised range', (STATE,),
               self.nudged(scene))  # fmt: skip
        ids = list(self._ids(scene))
        ids[0] = (ids[0] + 1) % self.policy.network.config.vocabulary
        yield WORDS, 'one token', (WORDS,), replace(scene, ids=tuple(ids))
        for name in self.spec.cameras:
            newest = {**scene.frames[-1], name: 255 - scene.frames[-1][name]}
            # the images of one frame are one block
            own = tuple(group(camera, 0) for camera in self.spec.cameras)
            yield (IMAGE + name, 'every pixel of the newest frame inverted', own,
                   replace(scene, frames=(*scene.frames[:-1], newest)))  # fmt: skip

    def _ids(self, scene: WindowedScene) -> Sequence[int]:
        return self.policy.token_ids(scene.task) if scene.ids is None else scene.ids

    def _prepare(
        self, scene: WindowedScene, blocks: Blocks, steps: int, cache: str
    ) -> TinyDenoiser:
        pinned, frames = blocks
        return self.policy.prepare(pinned, frames, scene.ages_steps, state=scene.state,
                                   num_steps=steps, cache=cache)  # fmt: skip

    @torch.inference_mode()
    def _integrate(
        self, scene: WindowedScene, velocity: Callable[[Tensor, int], Tensor], steps: int
    ) -> WindowedResult:
        found: list[Tensor] = []

        def recorded(x: Tensor, k: int) -> Tensor:
            found.append(velocity(x, k))
            return found[-1]

        noise = torch.from_numpy(scene.noise).to(self.policy.dtype)[None]
        actions = flow.integrate(recorded, noise, steps)
        physical = self.policy.actions(actions, scene.state)
        return WindowedResult(torch.stack(found), actions, physical)


def group(camera: str, age: int) -> str:
    """Return the name of an image's token group; age 0 is the newest frame."""
    return f'{IMAGE}{camera} t-{age}' if age else f'{IMAGE}{camera} t'
