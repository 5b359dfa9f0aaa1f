"""The ``windowed`` layout between the stages: encode frames into the ring, denoise out of it.

The encoder pins the instruction once per epoch and writes every frame once; the policy stages
only what it has not yet copied. A frame's age reaches the model when it is used, never before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from reflex_ros.core.errors import LayoutError
from reflex_ros.infer import snapshot
from reflex_ros.infer.cache import PARTITIONED
from reflex_ros.infer.flow import chunk_noise
from reflex_ros.ring.layout import RingLayout
from reflex_ros.stages.ring_source import LocalRing, RemoteRing, RingSource

if TYPE_CHECKING:
    from reflex_ros.core.probe import Probe
    from reflex_ros.core.types import ByteArray, FloatArray, KvBlock, SimTruth, SlotRef
    from reflex_ros.infer.families.tiny import TinyPolicy
    from reflex_ros.infer.guidance import Guidance
    from reflex_ros.infer.spec import PolicySpec
    from reflex_ros.ring.reader import RingReader
    from reflex_ros.ring.writer import RingWriter
    from reflex_ros.stages.models import InferRequest

GAP_PERIODS = 1.5
"""Frames older than this many window lengths are left out: the model never saw such gaps."""


def ring_layout(spec: PolicySpec, *, readers: int = 1, leases: int = 1) -> RingLayout:
    """Return the ring that a windowed policy needs."""
    return RingLayout.windowed(
        spec.frame_shape, 'float32', pinned_shape=spec.pinned_shape, window=spec.window,
        model_id=spec.model_id, readers=readers, leases=leases,
    )


class WindowedEncoder:
    """``FrameEncoder`` of a windowed policy.

    Args:
        policy: The policy, used for encoding alone.
        writer: The ring, with the layout of ``ring_layout``.
        notify: Called after every commit, e.g. to wake readers.
    """

    def __init__(self, policy: TinyPolicy, writer: RingWriter,
                 notify: Callable[[], None] | None = None) -> None:
        self._policy = policy
        self._writer = writer
        self._notify = notify
        self._context = np.zeros(policy.spec.pinned_shape, np.float32)
        self._pinned: SlotRef | None = None
        self._frames: deque[tuple[SlotRef, int]] = deque(maxlen=policy.spec.window)

    @property
    def cameras(self) -> tuple[str, ...]:
        """Return the cameras that it encodes, primary first."""
        return self._policy.spec.cameras

    @property
    def state_joints(self) -> tuple[str, ...]:
        """Return (): the state enters when a chunk is made."""
        return ()

    def instruction(self, text: str, epoch: int, probe: Probe) -> None:
        """Encode and pin an instruction; the frames of the epoch before are dead with it.

        Raises:
            ConfigError: The policy cannot take it; nothing has changed.
        """
        with probe.span('instruction'):
            self._policy.encode_instruction(text, self._context)  # may refuse: before the ring
            slot = self._writer.begin()
            np.copyto(slot.pinned, self._context)
            self._writer.pin(slot)
            self._pinned = self._writer.commit(
                slot, stamp_ns=0, epoch=epoch, tokens=self._policy.spec.pinned_shape[2],
            )
            self._frames.clear()

    def encode(self, block: KvBlock, images: Mapping[str, ByteArray],
               probe: Probe) -> KvBlock:
        """Write one frame into the ring and return the block with its window."""
        with probe.span('encode'):
            slot = self._writer.begin()
            self._policy.encode_frame(images, self._context, slot.frame)
        with probe.span('publish'):
            ref = self._writer.commit(
                slot, stamp_ns=block.stamp_ns, epoch=block.epoch,
                tokens=self._policy.spec.frame_shape[2],
            )
            self._remember(ref, block.stamp_ns)
            if self._notify is not None:
                self._notify()
        spec = self._policy.spec
        return replace(
            block, ring_id=self._writer.ring_id, slot=ref.slot, seq=ref.seq,
            generation=self._writer.generation, layout_hash=self._writer.layout.hash,
            pinned=self._pinned, window=tuple(frame for frame, _ in self._frames),
            valid_tokens=spec.pinned_shape[2] + len(self._frames) * spec.frame_shape[2],
        )

    def _remember(self, ref: SlotRef, stamp_ns: int) -> None:
        spec = self._policy.spec
        self._frames.append((ref, stamp_ns))
        oldest_ns = stamp_ns - round(GAP_PERIODS * spec.window * spec.frame_period_ns)
        while self._frames[0][1] < oldest_ns or self._frames[0][1] > stamp_ns:
            self._frames.popleft()


class WindowedModel:
    """``ChunkModel`` of a windowed policy over a ring.

    Args:
        policy: The policy, used for denoising alone.
        ring: Where the blocks are.
        seed: Seed of the noise.
        num_steps: Denoise steps, None for the checkpoint's.
        cache: ``partitioned``, or ``naive`` for comparison, see ``infer.cache.NaiveCache``.
    """

    def __init__(self, policy: TinyPolicy, ring: RingSource, *, seed: int = 0,
                 num_steps: int | None = None, cache: str = PARTITIONED) -> None:
        spec = policy.spec
        self._cache = cache
        self._policy, self._ring, self._seed, self._num_steps = policy, ring, seed, num_steps
        self._context = np.zeros(spec.pinned_shape, np.float32)
        self._pinned: tuple[int, int] | None = None
        self._staging = [np.zeros(spec.frame_shape, np.float32) for _ in range(spec.window)]
        self._staged: dict[tuple[int, int], tuple[int, int]] = {}

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Return the columns of a chunk."""
        return self._policy.spec.joint_names

    @property
    def step_period_ns(self) -> int:
        """Return the time between rows."""
        return self._policy.spec.step_period_ns

    @property
    def guided_rows(self) -> int:
        """Return the rows of a chunk."""
        return self._policy.spec.horizon

    @property
    def ring_ok(self) -> bool:
        """Return whether the ring's writer lives."""
        return self._ring.is_alive

    def truth(self, truth: SimTruth) -> None:
        """Ignore the truth: this policy sees images."""

    def infer(self, request: InferRequest, probe: Probe) -> FloatArray | None:
        """Stage what is new, then integrate the flow; None if a block is gone."""
        with probe.span('stage_copy'):
            staged = self._stage(request.block)
        if staged is None:
            return None
        frames, stamps = staged
        period = self._policy.spec.step_period_ns
        ages = [(request.row0_stamp_ns - stamp) / period for stamp in stamps]
        noise = chunk_noise(self._seed, request.chunk_id, shape=self._policy.spec.noise_shape)
        with probe.span('denoise'):
            if self._cache == PARTITIONED:
                rows = self._policy.denoise(
                    self._context, frames, ages, state=request.state, noise=noise,
                    num_steps=self._num_steps, guidance=self._guidance(request),
                )
            else:
                rows = self._compare(frames, ages, request, noise)
        return np.asarray(rows, np.float64)

    def _guidance(self, request: InferRequest) -> Guidance | None:
        guide = request.guide
        if guide is None:
            return None
        return self._policy.guidance(
            guide.rows, request.state, frozen=guide.frozen_steps, soft_end=guide.soft_end,
            num_steps=self._num_steps,
        )

    def _compare(self, frames: list[npt.NDArray[np.float32]], ages: list[float],
                 request: InferRequest, noise: npt.NDArray[np.float32]) -> FloatArray:
        """Return the chunk that another cache leads to."""
        steps = self._num_steps or self._policy.spec.num_steps
        denoiser = self._policy.prepare(self._context, frames, ages, state=request.state,
                                        num_steps=steps, cache=self._cache)
        with torch.inference_mode():
            actions = snapshot.denoise(denoiser, torch.from_numpy(noise)[None], steps,
                                       guidance=self._guidance(request))
        return np.asarray(self._policy.actions(actions, request.state))

    def _stage(self, block: KvBlock) -> tuple[list[npt.NDArray[np.float32]], list[int]] | None:
        """Return the window's staging buffers, oldest first, and their stamps."""
        reader = self._ring.reader(block.ring_id)
        if reader is None or block.pinned is None or not block.window:
            return None
        if len(block.window) > len(self._staging):
            raise LayoutError(
                f'KV block {block.number} has a window of {len(block.window)} frames, expected at '
                f'most {len(self._staging)}. Start vision_encoder and policy with the same '
                'checkpoint.'
            )
        if reader.layout.hash != block.layout_hash:
            raise LayoutError(
                f'KV block {block.number} does not fit the ring: got layout '
                f'{block.layout_hash[:12]}, expected {reader.layout.hash[:12]}. '
                'Start vision_encoder and policy with the same checkpoint.'
            )
        if not self._stage_pinned(reader, block.ring_id, block.pinned):
            return None
        wanted = {(block.ring_id, ref.seq) for ref in block.window}
        for key in [k for k in self._staged if k not in wanted]:
            del self._staged[key]
        if not all(self._stage_frame(reader, block.ring_id, ref) for ref in block.window):
            return None
        places = [self._staged[block.ring_id, ref.seq] for ref in block.window]
        return [self._staging[index] for index, _ in places], [stamp for _, stamp in places]

    def _stage_pinned(self, reader: RingReader, ring_id: int, ref: SlotRef) -> bool:
        if self._pinned == (ring_id, ref.seq):
            return True
        self._pinned = None
        if not reader.copy(ref, self._context):
            return False
        self._pinned = (ring_id, ref.seq)
        return True

    def _stage_frame(self, reader: RingReader, ring_id: int, ref: SlotRef) -> bool:
        if (ring_id, ref.seq) in self._staged:
            return True
        used = {index for index, _ in self._staged.values()}
        index = next(i for i in range(len(self._staging)) if i not in used)
        meta = reader.read(ref, self._staging[index])
        if meta is None:
            return False
        self._staged[ring_id, ref.seq] = (index, meta.stamp_ns)
        return True


__all__ = [
    'LocalRing', 'RemoteRing', 'RingSource', 'WindowedEncoder', 'WindowedModel', 'ring_layout',
]
