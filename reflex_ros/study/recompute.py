"""A windowed policy that reuses nothing: the yardstick of Table 4 in the loop.

Words and images of the window are encoded anew in every denoise step, as
``infer.boundary.windowed`` defines full recomputation. The ring holds blocks and no images, so
that these are kept beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reflex_ros.infer.boundary.windowed import WindowedBoundary, WindowedScene
from reflex_ros.infer.flow import chunk_noise

if TYPE_CHECKING:
    from reflex_ros.core.probe import Probe
    from reflex_ros.core.types import ByteArray, FloatArray, KvBlock, SimTruth
    from reflex_ros.infer.families.tiny import TinyPolicy
    from reflex_ros.stages.models import InferRequest
    from reflex_ros.stages.windowed import WindowedEncoder

FULL = 'full'


@dataclass(frozen=True, slots=True)
class Seen:
    """Images of a frame by camera, and their stamp."""

    stamp_ns: int
    images: Mapping[str, ByteArray]


class KeepingEncoder:
    """``FrameEncoder`` that keeps the words of its epoch and the newest images.

    Args:
        encoder: Does the encoding.
        frames: How many frames it keeps, e.g. as many as the ring has slots.
    """

    def __init__(self, encoder: WindowedEncoder, frames: int) -> None:
        self._encoder, self._frames = encoder, frames
        self._words = (0, '')
        self._seen: dict[int, Seen] = {}

    @property
    def cameras(self) -> tuple[str, ...]:
        """Return the cameras that it encodes, primary first."""
        return self._encoder.cameras

    @property
    def state_joints(self) -> tuple[str, ...]:
        """Return (): the state enters when a chunk is made."""
        return self._encoder.state_joints

    def instruction(self, text: str, epoch: int, probe: Probe) -> None:
        """Pin an instruction and keep its words."""
        self._encoder.instruction(text, epoch, probe)
        self._words = (epoch, text)

    def encode(self, block: KvBlock, images: Mapping[str, ByteArray], probe: Probe) -> KvBlock:
        """Encode one frame and keep its images under the number of its block in the ring."""
        made = self._encoder.encode(block, images, probe)
        copies = {name: image.copy() for name, image in images.items()}
        self._seen[made.window[-1].seq] = Seen(made.stamp_ns, copies)
        while len(self._seen) > self._frames:
            del self._seen[min(self._seen)]
        return made

    def window(self, block: KvBlock) -> tuple[str, list[Seen]] | None:
        """Return words and frames of a block, oldest first; None if some of it is gone."""
        epoch, text = self._words
        if epoch != block.epoch or any(ref.seq not in self._seen for ref in block.window):
            return None
        return text, [self._seen[ref.seq] for ref in block.window]


class RecomputingModel:
    """``ChunkModel`` that encodes words and images anew in every denoise step.

    Inputs, noise and spans are those of ``stages.windowed.WindowedModel`` on the same block.

    Args:
        policy: The policy.
        kept: Has the images of its blocks.
        seed: Seed of the noise.
        num_steps: Denoise steps, None for the checkpoint's.
    """

    guided_rows = 0
    """It follows no guide."""
    ring_ok = True
    """It reads no ring."""

    def __init__(self, policy: TinyPolicy, kept: KeepingEncoder, *, seed: int = 0,
                 num_steps: int | None = None) -> None:
        self._boundary, self._kept = WindowedBoundary(policy), kept
        self._spec, self._seed, self._num_steps = policy.spec, seed, num_steps

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Return the columns of a chunk."""
        return self._spec.joint_names

    @property
    def step_period_ns(self) -> int:
        """Return the time between rows."""
        return self._spec.step_period_ns

    def truth(self, truth: SimTruth) -> None:
        """Ignore the truth: this policy sees images."""

    def infer(self, request: InferRequest, probe: Probe) -> FloatArray | None:
        """Return the chunk of full recomputation; None if an image of the block is gone."""
        with probe.span('stage_copy'):
            scene = self.scene(request)
        if scene is None:
            return None
        with probe.span('denoise'):
            return self.rows(scene)

    def scene(self, request: InferRequest) -> WindowedScene | None:
        """Return everything that a chunk is made from; None if an image of the block is gone."""
        found = self._kept.window(request.block)
        if found is None:
            return None
        text, frames = found
        ages = [(request.row0_stamp_ns - one.stamp_ns) / self.step_period_ns for one in frames]
        noise = chunk_noise(self._seed, request.chunk_id, shape=self._spec.noise_shape)
        return WindowedScene(tuple(one.images for one in frames), tuple(ages), request.state,
                             text, noise)

    def rows(self, scene: WindowedScene) -> FloatArray:
        """Return ``float64[horizon, joints]`` positions of a scene."""
        return self._boundary.predict(scene, FULL, self._num_steps).physical
