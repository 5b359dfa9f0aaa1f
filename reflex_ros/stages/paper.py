"""The paper's names, over the parts that do the work here.

For readers who come from the paper, and for scripts without ROS: a streaming policy in one object.
The nodes use the same ring, the same encoding and the same denoising (``stages.windowed``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from reflex_ros.core.errors import ConfigError
from reflex_ros.core.future_state import predict
from reflex_ros.infer.norm import AdaRMSNorm
from reflex_ros.ring.layout import RingLayout
from reflex_ros.ring.writer import RingWriter
from reflex_ros.stages.windowed import ring_layout

if TYPE_CHECKING:
    from reflex_ros.core.clock import Clock
    from reflex_ros.core.types import ByteArray, FloatArray, Plan, SlotRef
    from reflex_ros.infer.families.tiny import TinyPolicy

__all__ = ['AdaRMSNorm', 'Caches', 'FutureStatePredictor', 'RingBuffer', 'StreamingInputManager']

Block = npt.NDArray[np.float32]


class RingBuffer:
    """Fixed memory for keys and values: allocated at once, written in place, never moved.

    Args:
        layout: Slots, shapes and how many of the newest are kept.
        clock: Steady clock.
    """

    def __init__(self, layout: RingLayout, *, clock: Clock) -> None:
        self._writer = RingWriter.create(layout, clock=clock)
        self.layout = layout

    def push(self, fill: Callable[[Block], None], *, stamp_ns: int, epoch: int) -> SlotRef:
        """Let ``fill`` write the next free slot and publish it; a failure leaves nothing."""
        slot = self._writer.begin()
        try:
            fill(slot.frame)
        except BaseException:
            self._writer.abandon(slot)
            raise
        tokens = self.layout.shape[2]
        return self._writer.commit(slot, stamp_ns=stamp_ns, epoch=epoch, tokens=tokens)

    def pin(self, fill: Callable[[Block], None], *, epoch: int) -> SlotRef:
        """Let ``fill`` write the pinned block; it is never recycled within its epoch."""
        slot = self._writer.begin()
        try:
            fill(slot.pinned)
        except BaseException:
            self._writer.abandon(slot)
            raise
        self._writer.pin(slot)
        tokens = self.layout.pinned_shape[2]
        return self._writer.commit(slot, stamp_ns=0, epoch=epoch, tokens=tokens)

    def frame(self, ref: SlotRef) -> Block:
        """Return the memory of a kept frame, not a copy."""
        view: Block = self._writer.store.frame(ref.slot)
        return view

    def pinned(self, ref: SlotRef) -> Block:
        """Return the memory of the pinned block, not a copy."""
        view: Block = self._writer.store.pinned(ref.slot)
        return view

    def close(self) -> None:
        """Give the memory back."""
        self._writer.close()


@dataclass(frozen=True, slots=True)
class Caches:
    """The partitions that attention reads (eq. 1), as views of the ring; the suffix is to come.

    Attributes:
        pinned: ``[layers, 2, tokens, kv_heads, head_dim]`` of the instruction.
        frames: The same of each frame, oldest first.
        ages_steps: ``float64[frames]`` control steps from each frame to row 0.
    """

    pinned: Block
    frames: tuple[Block, ...]
    ages_steps: FloatArray


class StreamingInputManager:
    """Instruction and newest N frames of a stream, encoded once each.

    Not thread-safe. Use it as a context manager or call ``close``.

    Args:
        policy: A policy of the ``windowed`` layout.
        clock: Steady clock.
    """

    def __init__(self, policy: TinyPolicy, *, clock: Clock) -> None:
        self._policy = policy
        self.buffer = RingBuffer(ring_layout(policy.spec), clock=clock)
        self._frames: deque[tuple[SlotRef, int]] = deque()
        self._instruction: SlotRef | None = None
        self._epoch = 0

    def __enter__(self) -> StreamingInputManager:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give the memory back."""
        self.close()

    def set_instruction(self, text: str) -> None:
        """Encode and pin an instruction; frames that were encoded under another one are dead.

        Raises:
            ConfigError: The policy cannot take it; nothing has changed.
        """
        self._instruction = self.buffer.pin(
            lambda block: self._policy.encode_instruction(text, block), epoch=self._epoch + 1)
        self._epoch += 1
        self._frames.clear()

    def add_new_prefix(self, images: Mapping[str, ByteArray], stamp_ns: int) -> SlotRef:
        """Encode one frame into the ring; with a full window the oldest makes room.

        Args:
            images: ``uint8[H, W, 3]`` by camera.
            stamp_ns: ROS time of the frame; must be newer than the last one's.

        Raises:
            ConfigError: No instruction yet, an older stamp, or an image that does not fit.
        """
        if self._frames and stamp_ns <= self._frames[-1][1]:
            raise ConfigError(
                f'frame cannot be added: got stamp {stamp_ns}, expected one after '
                f'{self._frames[-1][1]} (ns). Give frames in order.'
            )
        context = self.buffer.pinned(self._pinned())
        while len(self._frames) >= self._policy.spec.window:
            self.evict_source_prefix()
        ref = self.buffer.push(
            lambda block: self._policy.encode_frame(images, context, block),
            stamp_ns=stamp_ns, epoch=self._epoch)
        self._frames.append((ref, stamp_ns))
        return ref

    def evict_source_prefix(self) -> SlotRef | None:
        """Drop the oldest frame and return its slot, None if there is none; no data moves."""
        return self._frames.popleft()[0] if self._frames else None

    def split_caches(self) -> tuple[Block, tuple[Block, ...]]:
        """Return the pinned block and the frames, oldest first, as they lie in the ring."""
        frames = tuple(self.buffer.frame(ref) for ref, _ in self._frames)
        return self.buffer.pinned(self._pinned()), frames

    def merge_caches(self, row0_stamp_ns: int) -> Caches:
        """Return what one softmax is to run over: partitions side by side, nothing concatenated.

        Args:
            row0_stamp_ns: ROS time of row 0; the ages count from here.
        """
        pinned, frames = self.split_caches()
        period_ns = self._policy.spec.step_period_ns
        ages = [(row0_stamp_ns - stamp_ns) / period_ns for _, stamp_ns in self._frames]
        return Caches(pinned, frames, np.array(ages, np.float64))

    def denoise(self, caches: Caches, *, state: FloatArray, noise: Block) -> FloatArray:
        """Return a chunk of absolute positions, see ``TinyPolicy.denoise``."""
        rows: FloatArray = self._policy.denoise(
            caches.pinned, caches.frames, caches.ages_steps, state=state, noise=noise)
        return rows

    def close(self) -> None:
        """Give the memory back."""
        self.buffer.close()

    def _pinned(self) -> SlotRef:
        if self._instruction is None:
            raise ConfigError(
                'frame cannot be used: got no instruction yet, expected one. '
                'Call set_instruction first.'
            )
        return self._instruction


class FutureStatePredictor:
    """State at a future instant from the plan's commands (eq. 3), see ``core.future_state``.

    Args:
        max_tracking_error_rad: Above it nothing is predicted.
    """

    def __init__(self, *, max_tracking_error_rad: float) -> None:
        self._bound = max_tracking_error_rad

    def predict(self, plan: Plan | None, at_stamp_ns: int) -> FloatArray | None:
        """Return ``float64[J]`` at ``at_stamp_ns``, None where the measured state is better."""
        return predict(plan, at_stamp_ns, max_tracking_error_rad=self._bound)
