"""Pi0, Pi0.5 and SmolVLA by the book: everything at once, nothing kept, in float64.

The oracle of the tests. One sequence ``[images | language | state | actions]`` runs through both
stacks in every step, under the mask that follows from the blocks of its tokens; no cache, no
table, no packing, and no code of the fast path. Slow on purpose.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from reflex_ros.infer.checkpoint.config import PretrainedConfig
    from reflex_ros.infer.checkpoint.sizes import Sizes

PI_PREFIX = 'paligemma_with_expert.'
SMOL_PREFIX = 'vlm_with_expert.'
ROPE_BASE = 10_000.0


@dataclass(frozen=True, slots=True)
class Inputs:
    """One observation, processed.

    Attributes:
        pixels: ``[3, side, side]`` in [-1, 1] of each camera that is present, in order.
        ids: Token ids of the instruction.
        state: ``[max_state_dim]`` normalised, padded.
    """

    pixels: Sequence[Tensor]
    ids: Sequence[int]
    state: Tensor


@dataclass(frozen=True, slots=True)
class Step:
    """One evaluation: ``velocity[chunk, max_action_dim]``; prefix K/V ``[layers, kv, n, dim]``."""

    velocity: Tensor
    key: Tensor
    value: Tensor


class Reference:
    """A checkpoint in float64.

    Args:
        weights: By canonical name.
        sizes, config: Of the checkpoint.
    """

    def __init__(
        self, weights: Mapping[str, Tensor], sizes: Sizes, config: PretrainedConfig
    ) -> None:
        self._w = {name: value.to(torch.float64) for name, value in weights.items()}
        self._sizes, self._config = sizes, config
        self._is_smol = config.family == 'smolvla'
        root = SMOL_PREFIX if self._is_smol else PI_PREFIX
        self._vlm = root + ('vlm.model.text_model.' if self._is_smol else
                            'paligemma.model.language_model.')  # fmt: skip
        self._expert = root + ('lm_expert.' if self._is_smol else 'gemma_expert.model.')
        self._eps = 1e-5 if self._is_smol else 1e-6

    def denoise(self, inputs: Inputs, noise: Tensor, num_steps: int) -> Tensor:
        """Return the normalised actions of ``noise[chunk, max_action_dim]``."""
        x = noise.to(torch.float64)
        for k in range(num_steps):
            x = x - self.step(inputs, x, 1.0 - k / num_steps).velocity / num_steps
        return x

    def step(self, inputs: Inputs, x: Tensor, tau: float, *, committed: int = 0) -> Step:
        """Return velocity of noisy actions ``x`` at flow time ``tau``, and the prefix's K/V."""
        prefix, opens = self._prefix(inputs)
        suffix, suffix_opens, condition = self._suffix(inputs, x.to(torch.float64), tau)
        if condition is not None and committed:  # Pi0.5: a flow time of its own for each row
            clean = self._suffix(inputs, x.to(torch.float64), 0.0)[2]
            assert clean is not None
            condition = torch.stack([clean] * committed + [condition] * (len(x) - committed))
        block = torch.tensor(opens + suffix_opens).cumsum(0)
        mask = block[None, :] <= block[:, None]
        keys, values = [], []
        for layer in range(self._sizes.depth):
            prefix, suffix, key, value = self._layer(layer, prefix, suffix, mask, condition)
            keys.append(key)
            values.append(value)
        out = self._norm(suffix, f'{self._expert}norm', condition)[0]
        velocity = self._linear('action_out_proj', out[-len(x) :])
        return Step(velocity, torch.stack(keys), torch.stack(values))

    # ---- tokens ------------------------------------------------------------------------------

    def _prefix(self, inputs: Inputs) -> tuple[Tensor, list[int]]:
        table = self._w[f'{self._vlm}embed_tokens.weight']
        words = table[torch.tensor(list(inputs.ids))] * math.sqrt(table.shape[1])
        blocks = [*(self._camera(p.to(torch.float64)) for p in inputs.pixels), words]
        opens = [0] * sum(len(b) for b in blocks)
        if self._is_smol:
            blocks.append(self._linear('state_proj', inputs.state.to(torch.float64))[None])
            opens.append(1)
        return torch.cat(blocks), opens

    def _suffix(
        self, inputs: Inputs, x: Tensor, tau: float
    ) -> tuple[Tensor, list[int], Tensor | None]:
        actions = self._linear('action_in_proj', x)
        time = self._time(tau, actions.shape[1])
        if self._config.family == 'pi05':
            hidden = torch.nn.functional.silu(self._linear('time_mlp_in', time))
            condition = torch.nn.functional.silu(self._linear('time_mlp_out', hidden))
            return actions, [1] + [0] * (len(x) - 1), condition
        joined = torch.cat((actions, time.expand(len(x), -1)), 1)
        mixed = torch.nn.functional.silu(self._linear('action_time_mlp_in', joined))
        actions = self._linear('action_time_mlp_out', mixed)
        if self._is_smol:
            return actions, [1] * len(x), None
        state = self._linear('state_proj', inputs.state.to(torch.float64))[None]
        return torch.cat((state, actions)), [1, 1] + [0] * (len(x) - 1), None

    def _time(self, tau: float, width: int) -> Tensor:
        config = self._config
        at = torch.tensor(tau, dtype=torch.float32).double()
        share = torch.linspace(0, 1, width // 2, dtype=torch.float64)
        period = config.min_period * (config.max_period / config.min_period) ** share
        angle = 2 * math.pi * at / period
        # the checkpoints round the embedding, whatever they compute in
        return torch.cat((angle.sin(), angle.cos())).to(torch.float32).double()

    def _camera(self, pixels: Tensor) -> Tensor:
        tower = (f'{SMOL_PREFIX}vlm.model.vision_model.' if self._is_smol
                 else f'{PI_PREFIX}paligemma.model.vision_tower.vision_model.')  # fmt: skip
        x = self._patches(tower, pixels)
        for i in range(self._sizes.vision_depth):
            x = self._tower_layer(f'{tower}encoder.layers.{i}.', x)
        x = self._layer_norm(f'{tower}post_layernorm', x)
        if not self._is_smol:
            return self._linear(f'{PI_PREFIX}paligemma.model.multi_modal_projector.linear', x)
        out = self._linear(f'{SMOL_PREFIX}vlm.model.connector.modality_projection.proj',
                           self._shuffle(x))  # fmt: skip
        return out * math.sqrt(out.shape[1])

    def _patches(self, tower: str, pixels: Tensor) -> Tensor:
        p = self._sizes.patch
        kernel = self._w[f'{tower}embeddings.patch_embedding.weight']
        rows = pixels.unfold(1, p, p).unfold(2, p, p)
        out = torch.einsum('cyxij,ocij->yxo', rows, kernel).flatten(0, 1)
        out = out + self._w[f'{tower}embeddings.patch_embedding.bias']
        return out + self._w[f'{tower}embeddings.position_embedding.weight']

    def _tower_layer(self, name: str, x: Tensor) -> Tensor:
        heads = self._sizes.vision_heads
        z = self._layer_norm(f'{name}layer_norm1', x)
        parts = (self._linear(f'{name}self_attn.{p}_proj', z) for p in 'qkv')
        q, k, v = (p.unflatten(1, (heads, -1)) for p in parts)
        everything = torch.ones(len(x), len(x), dtype=torch.bool)
        x = x + self._linear(f'{name}self_attn.out_proj', attention(q, k, v, everything))
        z = self._linear(f'{name}mlp.fc1', self._layer_norm(f'{name}layer_norm2', x))
        return x + self._linear(f'{name}mlp.fc2', gelu(z))

    def _shuffle(self, x: Tensor) -> Tensor:
        r = self._sizes.scale_factor
        side = math.isqrt(len(x))
        grid = x.reshape(side, side // r, -1).transpose(0, 1)
        grid = grid.reshape(side // r, side // r, -1).transpose(0, 1)
        return grid.reshape((side // r) ** 2, -1)

    # ---- layers ------------------------------------------------------------------------------

    def _layer(
        self, index: int, prefix: Tensor, suffix: Tensor, mask: Tensor, condition: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return prefix and suffix behind a layer and the prefix's keys and values."""
        n = len(prefix)
        positions = torch.arange(n + len(suffix), dtype=torch.float64)
        own = f'{self._vlm}layers.{index}.'
        normed = self._norm(prefix, f'{own}input_layernorm', None)[0]
        q, k, v = (self._heads(f'{own}self_attn.{p}_proj', normed) for p in 'qkv')
        q, k = turn(q, positions[:n]), turn(k, positions[:n])
        key, value = k.transpose(0, 1), v.transpose(0, 1)
        stride = self._sizes.depth // self._sizes.expert_depth
        if index % stride:  # the expert has no layer here
            mixed = attention(q, k, v, mask[:n, :n])
            return self._finish(own, prefix, mixed, None, 1.0), suffix, key, value
        name = f'{self._expert}layers.{index // stride}.'
        normed, gate = self._norm(suffix, f'{name}input_layernorm', condition)
        query = self._heads(f'{name}self_attn.q_proj', normed)
        if self._is_cross(index):
            before = attention(q, k, v, mask[:n, :n])
            seen = [self._heads(f'{name}self_attn.{p}_proj', y.flatten(1))
                    for p, y in (('k', k), ('v', v))]  # fmt: skip
            local = turn(query, positions[: len(suffix)])
            behind = attention(local, *seen, mask[n:, :n])
        else:
            more = [self._heads(f'{name}self_attn.{p}_proj', normed) for p in 'kv']
            query, more[0] = turn(query, positions[n:]), turn(more[0], positions[n:])
            whole = [torch.cat(pair) for pair in zip((q, k, v), (query, *more), strict=True)]
            mixed = attention(whole[0], whole[1], whole[2], mask)
            before, behind = mixed[:n], mixed[n:]
        prefix = self._finish(own, prefix, before, None, 1.0)
        return prefix, self._finish(name, suffix, behind, condition, gate), key, value

    def _is_cross(self, index: int) -> bool:
        every = self._config.self_attn_every_n_layers
        return self._is_smol and (every <= 0 or index % every != 0)

    def _finish(
        self, name: str, x: Tensor, mixed: Tensor, condition: Tensor | None, gate: Tensor | float
    ) -> Tensor:
        x = x + gate * self._linear(f'{name}self_attn.o_proj', mixed)
        z, second = self._norm(x, f'{name}post_attention_layernorm', condition)
        act = torch.nn.functional.silu if self._is_smol else gelu
        hidden = act(self._linear(f'{name}mlp.gate_proj', z))
        return x + second * self._linear(
            f'{name}mlp.down_proj', hidden * self._linear(f'{name}mlp.up_proj', z)
        )

    def _norm(
        self, x: Tensor, name: str, condition: Tensor | None
    ) -> tuple[Tensor, Tensor | float]:
        unit = x / torch.sqrt(x.square().mean(1, keepdim=True) + self._eps)
        if condition is None:
            weight = self._w[f'{name}.weight']
            return unit * (weight if self._is_smol else 1 + weight), 1.0
        scale, shift, gate = self._linear(f'{name}.dense', condition).chunk(3, -1)
        return unit * (1 + scale) + shift, gate

    def _linear(self, name: str, x: Tensor) -> Tensor:
        out = x @ self._w[f'{name}.weight'].T
        bias = self._w.get(f'{name}.bias')
        return out if bias is None else out + bias

    def _heads(self, name: str, x: Tensor) -> Tensor:
        return self._linear(name, x).unflatten(1, (-1, self._sizes.head_dim))

    def _layer_norm(self, name: str, x: Tensor) -> Tensor:
        centred = x - x.mean(1, keepdim=True)
        unit = centred / torch.sqrt(centred.square().mean(1, keepdim=True) + 1e-6)
        return unit * self._w[f'{name}.weight'] + self._w[f'{name}.bias']


def gelu(x: Tensor) -> Tensor:
    """Return the tanh form of GELU."""
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def turn(x: Tensor, positions: Tensor) -> Tensor:
    """Return heads ``x[tokens, heads, dim]`` rotated as complex numbers by their positions."""
    half = x.shape[2] // 2
    rates = ROPE_BASE ** (-torch.arange(half, dtype=torch.float64) / half)
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(
        torch.ones_like(rates), positions[:, None, None] * rates
    )
    return torch.cat((turned.real, turned.imag), 2)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Return ``[tokens, heads * dim]``; query head ``h`` reads key head ``h // group``."""
    group = q.shape[1] // k.shape[1]
    outputs = []
    for head in range(q.shape[1]):
        scores = q[:, head] @ k[:, head // group].T / math.sqrt(q.shape[2])
        weights = torch.softmax(scores.masked_fill(~mask, -torch.inf), 1)
        outputs.append(weights @ v[:, head // group])
    return torch.cat(outputs, 1)
