"""Many denoise calls of ``tiny`` in one forward pass, each with its own window, ages and state.

A call in a batch is what ``TinyPolicy.denoise`` computes alone, in the same types and from the
same products and sums; the order of a sum may differ, as it does from kernel to kernel. Rows of
different calls never meet, except in kernels that let a NaN reach rows beside its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from reflex_ros.infer import flow, rope

if TYPE_CHECKING:
    from reflex_ros.infer.families.tiny import TinyPolicy
    from reflex_ros.infer.families.tiny_network import TinyNetwork

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Calls:
    """What differs from call to call.

    Attributes:
        frames: ``[calls, frames, layers, 2, frame_tokens, kv_heads, head_dim]``.
        ages_steps: ``float64[calls, frames]`` control steps.
        states: ``float64[calls, joints]``, rad and m.
        noise: ``float32[calls, horizon, joints]``.
    """

    frames: Tensor
    ages_steps: Float64
    states: Float64
    noise: npt.NDArray[np.float32]


class CallsContext:
    """What the suffixes of many calls attend to; see ``tiny_network.Context`` for one.

    Heads come before tokens here, so that no product copies its inputs.

    Args:
        network: Supplies layout and rotary rates.
        pinned: ``[layers, 2, pinned_tokens, kv_heads, head_dim]``, of all calls.
        frames, ages_steps: See ``Calls``.
    """

    def __init__(
        self, network: TinyNetwork, pinned: Tensor, *, frames: Tensor, ages_steps: Tensor
    ) -> None:
        layout, calls = network.config.layout, len(frames)
        still = layout.suffix_positions().expand(calls, 1, -1)
        positions = torch.cat((still, layout.query_positions(ages_steps)), 1)
        cos, sin = rope.phases(positions, network.rates, dtype=pinned.dtype)
        self._cos, self._sin = cos[:, :, None], sin[:, :, None]
        shared = pinned.transpose(2, 3)[:, :, None].expand(-1, -1, calls, -1, -1, -1)
        own = pinned.new_empty((*shared.shape[:4], layout.suffix_tokens, shared.shape[-1]))
        moved = frames.permute(2, 3, 0, 1, 5, 4, 6)
        self._frame_keys = moved[:, 0].contiguous()
        sliding = moved[:, 1].transpose(2, 3).flatten(3, 4)
        self._keys = torch.cat((shared[:, 0], own[:, 0]), 3)
        self._values = torch.cat((shared[:, 1], sliding, own[:, 1]), 3)
        self._pinned_tokens, self._suffix_tokens = layout.pinned_tokens, layout.suffix_tokens

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return the heads ``[calls, tokens, heads, head_dim]`` of one layer's suffix tokens."""
        calls, tokens, heads, head_dim = query.shape
        keys, values = self._keys[layer], self._values[layer]
        turned = rope.rotate(query.transpose(1, 2)[:, None].contiguous(), self._cos, self._sin)
        own = rope.rotate(key.transpose(1, 2), self._cos[:, 0], self._sin[:, 0])
        keys[:, :, self._pinned_tokens :] = own
        values[:, :, -self._suffix_tokens :] = value.transpose(1, 2)
        grouped = turned.view(calls, turned.shape[1], keys.shape[1], -1, head_dim)
        still = grouped[:, 0] @ keys.transpose(-1, -2)
        aged = grouped[:, 1:] @ self._frame_keys[layer].transpose(-1, -2)
        pinned, suffix = still.split((self._pinned_tokens, self._suffix_tokens), -1)
        scores = torch.cat((pinned, aged.permute(0, 2, 3, 1, 4).flatten(3), suffix), -1)
        wide = scores.to(torch.promote_types(scores.dtype, torch.float32)) * head_dim**-0.5
        weights = torch.softmax(wide, -1).to(values.dtype)
        return (weights @ values).view(calls, heads, tokens, head_dim).transpose(1, 2)


@torch.inference_mode()
def denoise_calls(policy: TinyPolicy, pinned: Tensor, calls: Calls) -> Float64:
    """Return the chunks ``float64[calls, horizon, joints]`` of many calls, rad and m.

    Args:
        policy: In the type to compute in.
        pinned: Pinned block of all calls.
        calls: At least one.
    """
    steps, count, dtype = policy.spec.num_steps, len(calls.frames), policy.dtype
    context = CallsContext(
        policy.network, pinned.to(dtype), frames=calls.frames.to(dtype),
        ages_steps=torch.from_numpy(calls.ages_steps),
    )  # fmt: skip
    states = np.stack([policy.scalings.state.normalise(state) for state in calls.states])
    times = torch.tensor(flow.taus(steps), dtype=torch.float64).repeat_interleave(count)
    condition = torch.from_numpy(states).to(dtype).repeat(steps, 1)
    layers, last = policy.network.gammas(times, condition)

    def velocity(x: Tensor, k: int) -> Tensor:
        rows = slice(k * count, (k + 1) * count)
        now = tuple((first[rows], second[rows]) for first, second in layers)
        return policy.network.velocity(x, (now, last[rows]), context)

    start = torch.from_numpy(calls.noise).to(dtype)
    return _actions(policy, flow.integrate(velocity, start, steps), calls.states)


def _actions(policy: TinyPolicy, rows: Tensor, states: Float64) -> Float64:
    pairs: Sequence[tuple[Tensor, Float64]] = list(zip(rows, states, strict=True))
    return np.stack([policy.actions(row[None], state) for row, state in pairs])
