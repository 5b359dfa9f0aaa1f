"""The denoise loop over fixed buffers: one recording for each bucket of prefix lengths.

The buffers are the prefix's keys and values (the staging copy), which of its rows count, state,
noise, and the actions that come out. State and actions always start at the bucket's last row, so
every address and every shape is the same for all lengths of a bucket; the rows between are masked.
What the flow time does is in tables that were made before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from reflex_ros.core.errors import ConfigError
from reflex_ros.infer.guidance import Guidance
from reflex_ros.infer.snapshot import TILE, Prefix, denoise

if TYPE_CHECKING:
    from reflex_ros.infer.graph import Graphs
    from reflex_ros.infer.policy import SnapshotPolicy

BUCKET = 2 * TILE
"""Rows by which the buckets differ."""


def graph_room(state_rows: int, chunk: int, *, bucket: int = BUCKET) -> int:
    """Return the rows that a cache needs behind the longest prefix."""
    return state_rows + chunk + bucket - 1


class GraphedDenoiser:
    """All Euler steps of a call, and before them the state's row. Not thread-safe.

    Args:
        policy: The checkpoint.
        kv: ``[layers, 2, 1, rows, kv_heads, head_dim]`` staging copy, which is written only
            through it; ``rows`` as of ``graph_room``.
        num_steps: Euler steps.
        graphs: Holds the recordings.
        bucket: Rows by which the buckets differ, a multiple of ``TILE``.

    Raises:
        ConfigError: The policy's switches leave something to compute that no recording can hold.
    """

    def __init__(
        self, policy: SnapshotPolicy, kv: Tensor, *, num_steps: int, graphs: Graphs,
        bucket: int = BUCKET,
    ) -> None:  # fmt: skip
        reuse, config = policy.reuse, policy.config
        if not (reuse.static_rows and reuse.time_table and reuse.prefix_kv):
            raise ConfigError(
                'denoise loop cannot be recorded: got a policy without static rows, time table or '
                'prefix cache, expected all three. Use the default switches, or eager.'
            )
        self.kv, self.graphs, self.num_steps = kv, graphs, num_steps
        self._policy, self._bucket = policy, bucket
        self._behind = policy.network.state_rows + config.chunk_size
        shape = (1, config.chunk_size, config.max_action_dim)
        with torch.inference_mode(), policy.placed():
            self._valid = torch.zeros(1, kv.shape[3], dtype=torch.bool)
            self._state = torch.zeros(1, config.max_state_dim, dtype=policy.wide)
            self._noise, self._out, self._target = (
                torch.zeros(shape, dtype=policy.wide) for _ in range(3)
            )
            self._weights = torch.zeros(config.chunk_size, dtype=policy.wide)

    def bucket_of(self, length: int) -> int:
        """Return the row at which state and actions start behind a prefix of ``length`` rows.

        Raises:
            ConfigError: The staging copy is too small for it.
        """
        end = -(-(length + self._behind) // self._bucket) * self._bucket
        if length < 1 or end > self.kv.shape[3]:
            raise ConfigError(
                f'prefix cannot be denoised: got {length} rows, expected 1 to '
                f'{self.kv.shape[3] - self._behind} (rows of the staging copy).'
            )
        return end - self._behind

    @torch.inference_mode()
    def warm(self, lengths: Iterable[int], *, is_guided: bool = False) -> None:
        """Record every bucket of these lengths; with ``is_guided`` once more for guidance.

        What is in the staging copy is lost.
        """
        rows = sorted({self.bucket_of(length) for length in lengths})
        guides = (None, float(self.num_steps)) if is_guided else (None,)
        self.kv.zero_()
        self._valid.fill_(value=True)
        self.graphs.warm([
            ((_name(guide), at), lambda at=at, guide=guide: self._work(at, guide))
            for guide in guides for at in rows
        ])  # fmt: skip

    @torch.inference_mode()
    def __call__(
        self, length: int, state: Tensor, noise: Tensor, *, guidance: Guidance | None = None
    ) -> Tensor:
        """Return the normalised actions ``[1, chunk, max_action_dim]``; the next call's, too.

        Args:
            length: Rows of the staging copy that hold the prefix.
            state: ``float32[1, max_state_dim]`` normalised.
            noise: ``[1, chunk, max_action_dim]``.
            guidance: What the chunk is to continue, None for a free one.
        """
        at = self.bucket_of(length)
        self.kv[:, :, :, length:at] = 0  # masked rows enter a product, with weight zero
        self._valid[:, :length] = True
        self._valid[:, length:] = False
        self._state.copy_(state)
        self._noise.copy_(noise)
        most = None
        if guidance is not None:
            most = guidance.max_weight
            self._target[..., : guidance.target.shape[-1]].copy_(guidance.target)
            self._weights.copy_(guidance.weights)
        self.graphs.run((_name(most), at), lambda: self._work(at, most))
        return self._out

    def _work(self, at: int, most: float | None) -> None:
        """Denoise out of the buffers into the buffer."""
        network, columns = self._policy.network, self._policy.config.action_dim
        with torch.inference_mode(), self._policy.placed():
            prefix = Prefix(self.kv, at, self._valid[:, :at])
            denoiser = network.prepare(prefix, self._state, self.num_steps)
            guidance = None
            if most is not None:
                guidance = Guidance(self._target[0, :, :columns], self._weights, most)
            made = denoise(denoiser, self._noise, self.num_steps, guidance=guidance)
            self._out.copy_(made)


def _name(most: float | None) -> str:
    return 'free' if most is None else f'guided by {most:g}'
