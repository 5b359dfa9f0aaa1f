"""The ``snapshot`` layout on the policy's side: copy a prefix, add the state, denoise."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeGuard

import numpy as np
import torch

from reflex_ros.core.errors import LayoutError
from reflex_ros.core.types import SlotRef
from reflex_ros.infer.cache import PARTITIONED
from reflex_ros.infer.families.pi05 import Pi05Denoiser
from reflex_ros.infer.flow import chunk_noise
from reflex_ros.infer.graph_loop import graph_room
from reflex_ros.infer.guidance import Guidance, denoise_committed, hold_last, row_weights
from reflex_ros.infer.lanes import POLICY, HostLane
from reflex_ros.infer.snapshot import Prefix, denoise
from reflex_ros.stages.acceleration import camera_count, median_ms, warm_denoiser
from reflex_ros.stages.snapshot import FULL, prefix_rows, word_width
from reflex_ros.stages.staging import Staging

if TYPE_CHECKING:
    from torch import Tensor

    from reflex_ros.core.clock import Clock
    from reflex_ros.core.probe import Probe
    from reflex_ros.core.types import FloatArray, KvBlock, SimTruth
    from reflex_ros.infer.graph import Graphs
    from reflex_ros.infer.graph_loop import GraphedDenoiser
    from reflex_ros.infer.lanes import Lane
    from reflex_ros.infer.policy import SnapshotPolicy
    from reflex_ros.infer.processing.binding import JointBinding
    from reflex_ros.infer.snapshot import Denoiser
    from reflex_ros.ring.reader import RingReader
    from reflex_ros.stages.guide import Guide
    from reflex_ros.stages.models import InferRequest
    from reflex_ros.stages.ring_source import RingSource


class _Recomputing:
    """Velocity field that runs the language model again in every step: what a cache saves."""

    def __init__(self, policy: SnapshotPolicy, tokens: Tensor, kv: Tensor, *, state: Tensor,
                 num_steps: int) -> None:
        self._policy, self._tokens, self._kv = policy, tokens, kv
        self._state, self._num_steps = state, num_steps

    def velocity(self, x: Tensor, k: int) -> Tensor:
        """Return the velocity at step ``k`` from a fresh prefix."""
        with self._policy.placed():
            prefix = self._policy.network.encode(self._tokens, None, self._kv)
        return self._policy.prepare(prefix, self._state, self._num_steps).velocity(x, k)


class SnapshotModel:
    """``ChunkModel`` of Pi0, Pi0.5 and SmolVLA over a ring.

    Args:
        policy: The checkpoint; used for denoising alone.
        ring: Where the blocks are.
        binding: Arm joints on the columns of the checkpoint.
        step_period_ns: Time between two actions of the training data.
        seed: Seed of the noise.
        num_steps: Denoise steps, None for the checkpoint's.
        warn: Takes a text about a state far from the training data.
        cache: ``partitioned``, or for comparison ``full`` (as the ring's layout) or ``naive``.
        lane: Where the work goes; what ``infer`` returns is done.

    Attributes:
        outliers: Inferences from such a state so far.
    """

    def __init__(self, policy: SnapshotPolicy, ring: RingSource, *, binding: JointBinding,
                 step_period_ns: int, seed: int = 0, num_steps: int | None = None,
                 warn: Callable[[str], None] | None = None, cache: str = PARTITIONED,
                 lane: Lane | None = None) -> None:
        self._policy, self._ring, self._binding = policy, ring, binding
        self._step_period_ns, self._seed = step_period_ns, seed
        self._num_steps = num_steps or policy.config.num_steps
        self._warn, self._cache = warn, cache
        network, self._rows = policy.network, prefix_rows(policy)
        self._lane: Lane = lane or HostLane(POLICY)
        self._recorded: GraphedDenoiser | None = None
        self._tokens: Tensor | None = None
        with policy.placed():
            free = graph_room(network.state_rows, policy.config.chunk_size)
            self._kv = network.new_cache(1, self._rows + free)
            if cache == FULL:
                shape = (1, self._rows, word_width(policy))
                self._tokens = torch.zeros(shape, dtype=network.dtype)
        target = self._kv[:, :, 0] if self._tokens is None else self._tokens[0]
        self._staging = Staging(target, row_axis=0 if cache == FULL else 2, lane=self._lane)
        self._staged: tuple[int, int] | None = None
        self.outliers = 0

    def record(self, graphs: Graphs, *, masked: int, is_guided: bool, clock: Clock) -> float:
        """Run by recordings from now on; what was staged is lost.

        Args:
            graphs: Where they are kept.
            masked: Cameras of the checkpoint that the robot lacks.
            is_guided: Whether chunks will be guided (``rtc``).
            clock: Steady clock.

        Returns:
            Median time of a recorded loop, ms.
        """
        self._staged = None
        policy, cameras = self._policy, camera_count(self._policy, masked)
        with self._lane.entered():
            recorded = warm_denoiser(policy, graphs, self._kv, num_steps=self._num_steps,
                                     cameras=cameras, is_guided=is_guided)
        self._lane.finish()
        shape = (1, policy.config.chunk_size, policy.config.max_action_dim)
        state, noise = torch.zeros(1, policy.config.max_state_dim), torch.zeros(shape)
        length = cameras * policy.network.camera_tokens + 1
        self._recorded = recorded
        return median_ms(lambda: recorded(length, state, noise), self._lane, clock)

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Return the columns of a chunk: the arm's joints."""
        return self._binding.arm_names

    @property
    def step_period_ns(self) -> int:
        """Return the time between rows."""
        return self._step_period_ns

    @property
    def guided_rows(self) -> int:
        """Return the rows of a chunk."""
        return self._policy.config.chunk_size

    @property
    def ring_ok(self) -> bool:
        """Return whether the ring's writer lives."""
        return self._ring.is_alive

    def truth(self, truth: SimTruth) -> None:
        """Ignore the truth: this policy sees images."""

    def infer(self, request: InferRequest, probe: Probe) -> FloatArray | None:
        """Copy the prefix unless it is here, then integrate the flow; None if it is gone."""
        with self._lane.entered():
            return self._infer(request, probe)

    def _infer(self, request: InferRequest, probe: Probe) -> FloatArray | None:
        with probe.span('stage_copy'):
            is_here = self._stage(request.block)
        if not is_here:
            return None
        raw = self._binding.from_arm(request.state)[None]
        self._check(raw)
        with probe.span('denoise'):
            actions = self._denoise(raw, request)
            self._lane.finish()
        with probe.span('decode'):
            columns = self._policy.processing.actions(actions.cpu(), raw)[0]
            return np.asarray(self._binding.to_arm(columns.numpy()), np.float64)

    def _denoise(self, raw: FloatArray, request: InferRequest) -> Tensor:
        config, length = self._policy.config, request.block.valid_tokens
        state = self._policy.processing.state(raw)
        shape = (1, config.chunk_size, config.max_action_dim)
        drawn = torch.from_numpy(chunk_noise(self._seed, request.chunk_id, shape=shape[1:]))
        noise = drawn.view(shape).to(self._policy.device)
        guidance = self._guidance(raw, request.guide)
        is_committed = guidance is not None and self._is_trained_for(request.guide)
        if self._recorded is not None and not is_committed:
            return self._recorded(length, state, noise, guidance=guidance)
        if self._recorded is not None:
            self._recorded.graphs.counts.eager += 1
        denoiser: Denoiser
        if self._tokens is None:
            prefix = Prefix(self._kv, length)
            denoiser = self._policy.prepare(prefix, state, self._num_steps,
                                            cache=self._cache)
        else:
            denoiser = _Recomputing(self._policy, self._tokens[:, :length], self._kv, state=state,
                                    num_steps=self._num_steps)
        with torch.inference_mode(), self._policy.placed():
            if guidance is not None and self._is_trained_for(request.guide):
                assert isinstance(denoiser, Pi05Denoiser)
                rows = guidance.target[: request.guide.frozen_steps]
                return denoise_committed(denoiser, noise, self._num_steps, rows)
            return denoise(denoiser, noise, self._num_steps, guidance=guidance)

    def _is_trained_for(self, guide: Guide | None) -> TypeGuard[Guide]:
        """Return whether the checkpoint takes the committed rows itself; else it is steered."""
        most = self._policy.config.trained_delay
        return guide is not None and self._tokens is None and 0 < guide.frozen_steps <= most

    def _guidance(self, raw: FloatArray, guide: Guide | None) -> Guidance | None:
        """Return the guide in the network's own space: columns, units, normalised."""
        if guide is None:
            return None
        rows = self._policy.config.chunk_size
        columns = np.stack([self._binding.from_arm(row) for row in guide.rows])
        full = hold_last(torch.from_numpy(columns), rows)
        target = self._policy.processing.normalise_actions(full[None], raw)[0]
        weights = row_weights(guide.frozen_steps, guide.soft_end, rows)
        return Guidance(target, weights, float(self._num_steps))

    def _check(self, raw: FloatArray) -> None:
        """Count and tell a state that the training data do not have."""
        if found := self._policy.processing.outliers(raw):
            self.outliers += 1
            if self._warn is not None:
                self._warn(f'{"; ".join(found)} count={self.outliers}')

    def _stage(self, block: KvBlock) -> bool:
        """Copy the rows of a block that count; False if they are gone."""
        if self._staged == (block.ring_id, block.seq):
            return True
        reader = self._ring.reader(block.ring_id)
        if reader is None:
            return False
        if reader.layout.hash != block.layout_hash:
            raise LayoutError(
                f'KV block {block.number} does not fit the ring: got layout '
                f'{block.layout_hash[:12]}, expected {reader.layout.hash[:12]}. '
                'Start vision_encoder and policy with the same checkpoint.'
            )
        if not 0 < block.valid_tokens <= self._rows:
            raise LayoutError(
                f'KV block {block.number} cannot be used: got {block.valid_tokens} tokens, '
                f'expected 1 to {self._rows} (tokens). '
                'Start vision_encoder and policy with the same checkpoint.'
            )
        self._staged = None
        if not self._copy(reader, block):
            return False
        self._staged = (block.ring_id, block.seq)
        return True

    def _copy(self, reader: RingReader, block: KvBlock) -> bool:
        ref = SlotRef(block.slot, block.seq)
        if not reader.hold(ref):
            return False
        try:
            self._staging.fill(reader.store, ref.slot, block.valid_tokens)
        finally:
            is_intact = reader.release(ref)
        return is_intact
