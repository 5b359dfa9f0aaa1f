"""The small policy in closed loop without any delay, tick by tick.

No stages, no clock, no limits: what the weights are worth where nothing is late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from reflex_ros.infer import flow
from reflex_ros.infer.families.tiny import TinyPolicy

Float64 = npt.NDArray[np.float64]


class Rollout:
    """What the policy commands in one episode.

    Args:
        policy: Weights. instruction: What it is told.
        seed: Of the noise that chunks start from.
        execute_steps: Rows of a chunk until the next is computed, None = of the policy.
    """

    def __init__(self, policy: TinyPolicy, instruction: str, *, seed: int = 0,
                 execute_steps: int | None = None) -> None:
        self._policy, self._seed = policy, seed
        self._every = execute_steps or policy.spec.execute_steps
        self._pinned = np.empty(policy.spec.pinned_shape, np.float32)
        policy.encode_instruction(instruction, self._pinned)
        self._frames: deque[tuple[int, npt.NDArray[np.float32]]] = deque(
            maxlen=policy.spec.window)
        self._state = np.zeros(len(policy.spec.joint_names))
        self._chunk: Float64 | None = None
        self._row0, self._due, self._count = 0, 0, 0

    def see(self, tick: int, images: Mapping[str, npt.NDArray[np.uint8]], state: Float64) -> None:
        """Take the frame of a control tick and the state at that instant.

        Args:
            tick: Number of the tick, later than that of the frame before.
            images: ``uint8[H, W, 3]`` of every camera, by name.
            state: ``float64[joints]`` measured, rad and m.
        """
        frame = np.empty(self._policy.spec.frame_shape, np.float32)
        self._policy.encode_frame(images, self._pinned, frame)
        self._frames.append((tick, frame))
        self._state = np.array(state, dtype=np.float64)

    def command(self, tick: int) -> Float64:
        """Return the command of a tick, ``float64[joints]`` rad and m; needs a frame before."""
        if self._chunk is None or tick >= self._due:
            self._row0, self._due = self._frames[-1][0], tick + self._every
            self._chunk = self._infer()
        return np.asarray(self._chunk[min(tick - self._row0, len(self._chunk) - 1)])

    def _infer(self) -> Float64:
        self._count += 1
        noise = flow.chunk_noise(self._seed, self._count, shape=self._policy.spec.noise_shape)
        ages = [float(self._row0 - tick) for tick, _ in self._frames]
        frames = [frame for _, frame in self._frames]
        return self._policy.denoise(self._pinned, frames, ages, state=self._state, noise=noise)
