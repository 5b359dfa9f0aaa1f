"""The two training losses: regression for the vision tower, flow matching for the rest."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from reflex_ros.infer import rope
from reflex_ros.infer.families.tiny_network import TinyNetwork


class BatchContext:
    """What ``TinyNetwork.velocity`` attends to, for a batch with gradients.

    Equal to ``Context`` by the identity that it rests on: here the keys of a frame are rotated by
    minus its age, there the queries by plus its age. Missing frames are masked.

    Args:
        network: Supplies layout and rotary rates.
        pinned: ``[batch, layers, 2, pinned_tokens, kv_heads, head_dim]``.
        frames: ``[batch, frames, layers, 2, frame_tokens, kv_heads, head_dim]``.
        ages_steps: ``[batch, frames]``. ``present``: ``bool[batch, frames]``.
        draws: Number of noise draws that share each prefix; they follow each other in the batch.
    """

    def __init__(
        self,
        network: TinyNetwork,
        pinned: Tensor,
        *,
        frames: Tensor,
        ages_steps: Tensor,
        present: Tensor,
        draws: int,
    ) -> None:
        layout = network.config.layout
        dtype = frames.dtype
        cos, sin = rope.phases(-ages_steps, network.rates.to(ages_steps.device), dtype=dtype)
        cos, sin = cos[:, :, None, None, None], sin[:, :, None, None, None]
        keys, values = frames.unbind(3)
        turned = rope.rotate(keys, cos, sin).unbind(2)
        pinned_keys, pinned_values = pinned.unbind(2)
        self._keys = list(map(self._join, pinned_keys.unbind(1), turned))
        self._values = list(map(self._join, pinned_values.unbind(1), values.unbind(2)))
        seen = present.repeat_interleave(layout.frame_tokens, 1)
        always = seen.new_ones((len(seen), 1))
        pinned_seen = always.expand(-1, layout.pinned_tokens)
        own_seen = always.expand(-1, layout.suffix_tokens)
        mask = torch.cat((pinned_seen, seen, own_seen), 1)
        nothing = torch.zeros(mask.shape, dtype=torch.float32, device=mask.device)
        self._bias = nothing.masked_fill(~mask, -torch.inf)
        self._draws, self._prefix = draws, layout.pinned_tokens + seen.shape[1]
        cos, sin = rope.phases(layout.suffix_positions(), network.rates, dtype=dtype)
        self._cos, self._sin = cos[:, None].to(frames.device), sin[:, None].to(frames.device)

    @staticmethod
    def _join(pinned: Tensor, frames: Tensor) -> Tensor:
        return torch.cat((pinned, frames.flatten(1, 2)), 1).transpose(1, 2)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return the heads ``[batch * draws, tokens, heads, head_dim]`` of one layer."""
        total, tokens, heads, head_dim = query.shape
        batch, kv_heads, groups = total // self._draws, key.shape[2], heads // key.shape[2]
        cos, sin = self._cos.to(query.dtype), self._sin.to(query.dtype)
        query = rope.rotate(query, cos, sin).transpose(1, 2)
        key = rope.rotate(key, cos, sin).permute(0, 2, 3, 1)
        grouped = query.reshape(total, kv_heads, groups * tokens, head_dim)
        shared = grouped.view(batch, self._draws, kv_heads, groups * tokens, head_dim)
        shared = shared.transpose(1, 2).reshape(batch, kv_heads, -1, head_dim)
        context = shared @ self._keys[layer].transpose(-1, -2)
        context = context.view(batch, kv_heads, self._draws, groups * tokens, -1).transpose(1, 2)
        own = (grouped @ key).view(batch, self._draws, kv_heads, groups * tokens, tokens)
        scores = torch.cat((context, own), -1) * head_dim**-0.5
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        weights = torch.softmax(scores + self._bias[:, None, None, None], -1).to(value.dtype)
        context, own = weights.split((self._prefix, tokens), -1)
        context = context.transpose(1, 2).reshape(batch, kv_heads, -1, self._prefix)
        out = (context @ self._values[layer]).view(batch, kv_heads, self._draws, -1, head_dim)
        own = own.reshape(total, kv_heads, groups * tokens, tokens) @ value.transpose(1, 2)
        out = out.transpose(1, 2).reshape(own.shape) + own
        return out.view(total, heads, tokens, head_dim).transpose(1, 2)


@dataclass(frozen=True, slots=True)
class FlowBatch:
    """One batch of normalised tensors.

    Attributes:
        ids: ``int64[I, pinned_tokens]`` instructions. ``wording``: ``int64[B]`` row of ``ids``.
        tokens: ``float32[B, N, cameras, width]`` vision tokens.
        present: ``bool[B, N]``. ``ages``: ``float64[B, N]`` control steps.
        state: ``float32[B, 7]``. ``actions``: ``float32[B, horizon, 7]``.
    """

    ids: Tensor
    wording: Tensor
    tokens: Tensor
    present: Tensor
    ages: Tensor
    state: Tensor
    actions: Tensor

    def to(self, device: torch.device) -> FlowBatch:
        """Return the batch on a device."""
        fields = dataclasses.fields(self)
        return FlowBatch(**{f.name: getattr(self, f.name).to(device) for f in fields})


@dataclass(frozen=True, slots=True)
class Weights:
    """What counts how much in the flow loss.

    Attributes:
        gripper: Of the gripper, beside 1 for the mean of the arm's joints.
        late: Of a row in the later part of the chunk, beside 1 for the first ``early`` rows.
        early: Number of rows that are likely to be executed.
    """

    gripper: float = 0.05
    late: float = 1.0
    early: int = 20


Predict = Callable[[TinyNetwork, FlowBatch, Tensor, Tensor], Tensor]
"""Form of ``predict``: network, batch, noisy actions, flow times to velocity."""


def draw_tau(size: int, generator: torch.Generator) -> Tensor:
    """Return flow times, 40 % of them in 0.9 .. 1, where the direction of the motion is decided.

    The mean loss is dominated by removing the last noise from a smooth chunk and hardly shows
    whether the policy looks at the images; the first steps decide that.
    """
    early = torch.rand(size, generator=generator) < 0.4
    unit = torch.rand(size, generator=generator)
    return torch.where(early, 0.9 + 0.1 * unit, 0.001 + 0.998 * unit)


def predict(network: TinyNetwork, batch: FlowBatch, noisy: Tensor, tau: Tensor) -> Tensor:
    """Return the velocity of ``noisy`` actions ``[B * draws, horizon, 7]`` at times ``tau``."""
    size, window = batch.present.shape
    pinned = network.encode_words(batch.ids)[batch.wording]
    spread = pinned[:, None].expand(-1, window, *[-1] * (pinned.ndim - 1)).flatten(0, 1)
    frames = network.encode_tokens(batch.tokens.flatten(0, 1), spread).unflatten(0, (size, window))
    draws = len(noisy) // size
    context = BatchContext(
        network,
        pinned,
        frames=frames,
        ages_steps=batch.ages,
        present=batch.present,
        draws=draws,
    )
    gammas = network.gammas(tau, batch.state.repeat_interleave(draws, 0))
    return network.velocity(noisy, gammas, context)


def flow_loss(
    network: TinyNetwork,
    batch: FlowBatch,
    *,
    draws: int,
    generator: torch.Generator,
    forward: Predict | None = None,
    weights: Weights | None = None,
) -> Tensor:
    """Return the flow-matching loss of ``draws`` (tau, noise) pairs per sample.

    ``forward`` replaces ``predict``, e.g. by a compiled form of it.
    """
    counts = weights or Weights()
    actions = batch.actions.repeat_interleave(draws, 0)
    tau = draw_tau(len(actions), generator).to(actions.device)
    noise = torch.randn(actions.shape, generator=generator).to(actions.device)
    share = tau[:, None, None]
    noisy = share * noise + (1 - share) * actions
    velocity = (forward or predict)(network, batch, noisy, tau).float()
    rows = torch.full((actions.shape[1],), counts.late, device=actions.device)
    rows[: counts.early] = 1.0
    error = (velocity - (noise - actions)).square().mean(0)
    error = (error * (rows / rows.mean())[:, None]).mean(0)
    return (error[:-1].mean() + counts.gripper * error[-1]) / (1 + counts.gripper)


def vision_loss(
    tower: nn.Module, head: nn.Module, images: Tensor, *, wanted: Tensor, weights: Tensor
) -> Tensor:
    """Return the weighted regression error of what is read off images.

    Args:
        tower: Gives ``[B, patches, width]``. ``head``: linear read-out of the flattened patches.
        images: ``float32[B, 3, H, W]`` in -1..1.
        wanted: ``float32[B, n]`` normalised readings. weights: ``float32[B, n]`` of each.
    """
    read = head(tower.patches(images).float().flatten(1))  # type: ignore[operator]
    # Beyond a few millimetres the target is hidden: such errors must not drown the small ones.
    return (F.smooth_l1_loss(read, wanted, beta=0.05, reduction='none') * weights).mean()
