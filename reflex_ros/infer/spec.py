"""What the rest of the suite needs to know of a policy, without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

FLOAT32_BYTES = 4


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """Interface of a loaded policy of the ``windowed`` layout.

    Attributes:
        family, model_id: Kind of policy and hash over its checkpoint.
        cameras: Names, primary first. image_hw: Height and width that images must have, pixels.
        joint_names: Columns of state and actions.
        horizon, step_period_ns: Rows of a chunk and the time between them.
        execute_steps: Rows meant to be used before replacement.
        window, frame_period_ns: Most frames, and the time between them in training.
        pinned_shape, frame_shape: Blocks as float32: ``[layers, 2, tokens, kv_heads, head_dim]``.
        num_steps: Denoise steps it was tuned for.
        instruction: One that it was trained on.
        dh: DH variant of the arm in training.
    """

    family: str
    model_id: str
    cameras: tuple[str, ...]
    image_hw: tuple[int, int]
    joint_names: tuple[str, ...]
    horizon: int
    step_period_ns: int
    execute_steps: int
    window: int
    frame_period_ns: int
    pinned_shape: tuple[int, ...]
    frame_shape: tuple[int, ...]
    num_steps: int = 10
    instruction: str = ''
    dh: str = 'new'

    @property
    def pinned_bytes(self) -> int:
        """Size of an instruction block."""
        return FLOAT32_BYTES * math.prod(self.pinned_shape)

    @property
    def frame_bytes(self) -> int:
        """Size of a frame block."""
        return FLOAT32_BYTES * math.prod(self.frame_shape)

    @property
    def noise_shape(self) -> tuple[int, int]:
        """Shape of the noise of one chunk."""
        return self.horizon, len(self.joint_names)
