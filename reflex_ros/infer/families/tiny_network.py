"""Network of the small policy: patch encoder, block-causal prefix, action expert.

Anatomy of the large families at a thousandth of their size: a vision tower turns each image into
one token, a prefix transformer keeps keys and values per layer, an action expert attends jointly
to ``[pinned | frames | own tokens]`` and is conditioned on ``[tau, state]`` by ``AdaRMSNorm``.
Layout and positions: ``infer.windowed``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from reflex_ros.core.errors import ConfigError
from reflex_ros.infer import rope
from reflex_ros.infer.attention import Part, attend, logits, weigh
from reflex_ros.infer.cache import PARTITIONED, is_naive
from reflex_ros.infer.flow import embed_tau
from reflex_ros.infer.norm import AdaRMSNorm, RMSNorm
from reflex_ros.infer.windowed import WindowedLayout


@dataclass(frozen=True, slots=True)
class TinyConfig:
    """Sizes of the network; every field is part of the checkpoint.

    Attributes:
        cameras: Names, primary first; each gives one token per frame.
        image_size: Height and width of the square input, a multiple of 16, pixels.
        vision_layers, layers: Depth of the vision tower and of prefix and expert.
        width, heads, kv_heads, head_dim, mlp_ratio: Shape of every transformer layer.
        gate_hidden: Hidden width of each AdaRMSNorm gate.
        window: Largest number of frames.
        horizon, rows_per_token: Rows of a chunk and rows per action token.
        instruction_tokens: Length of the pinned block; shorter instructions are padded with a
            learned token, so the block needs no mask.
        vocabulary: Number of token ids.
        action_dim, state_dim: Joints of a row and of the state.
        tau_dim, min_period, max_period: Sinusoidal embedding of the flow time.
        rope_base, eps: Rotary base and the constant inside RMS.
        towers: Vision towers: 1 shared by all cameras, or one for each.
    """

    cameras: tuple[str, ...] = ('main',)
    image_size: int = 64
    vision_layers: int = 2
    layers: int = 3
    width: int = 96
    heads: int = 3
    kv_heads: int = 3
    head_dim: int = 32
    mlp_ratio: int = 2
    gate_hidden: int = 128
    window: int = 4
    horizon: int = 50
    rows_per_token: int = 5
    instruction_tokens: int = 8
    vocabulary: int = 64
    action_dim: int = 7
    state_dim: int = 7
    tau_dim: int = 64
    min_period: float = 0.02
    max_period: float = 4.0
    rope_base: float = 100.0
    eps: float = 1e-6
    towers: int = 1

    def __post_init__(self) -> None:
        """Refuse sizes that do not divide."""
        divisions = (
            ('image_size', self.image_size, 16),
            ('heads', self.heads, self.kv_heads),
            ('head_dim', self.head_dim, 2),
            ('horizon', self.horizon, self.rows_per_token),
            ('tau_dim', self.tau_dim, 2),
        )
        for name, value, divisor in divisions:
            if value < 1 or value % divisor:
                raise ConfigError(
                    f'network cannot be built {name}: got {value}, expected a positive multiple '
                    f'of {divisor}. Correct config.json.'
                )
        if self.towers not in (1, len(self.cameras)):
            raise ConfigError(
                f'network cannot be built towers: got {self.towers}, expected 1 or one for each '
                f'of {len(self.cameras)} cameras. Correct config.json.'
            )

    @property
    def layout(self) -> WindowedLayout:
        """Blocks and positions that follow from the sizes."""
        return WindowedLayout(
            pinned_tokens=self.instruction_tokens,
            frame_tokens=len(self.cameras),
            suffix_tokens=self.horizon // self.rows_per_token,
            rows_per_token=self.rows_per_token,
            window=self.window,
        )

    @classmethod
    def from_dict(cls, values: dict[str, object]) -> TinyConfig:
        """Return the configuration that ``dataclasses.asdict`` wrote.

        Checkpoints from before there were several towers do not name them.

        Raises:
            ConfigError: A field is missing or unknown.
        """
        names = {field.name for field in dataclasses.fields(cls)}
        if names != set(values) | {'towers'}:
            raise ConfigError(
                f'network cannot be built: got fields {sorted(set(values) ^ names)} missing or '
                'unknown, expected exactly those of TinyConfig. Correct config.json.'
            )
        known = {**values, 'cameras': tuple(cast(Sequence[str], values['cameras']))}
        return cls(**known)  # type: ignore[arg-type]


class Attention(nn.Module):
    """Packed query, key and value projection, and the output projection."""

    def __init__(self, config: TinyConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = config.heads, config.kv_heads, config.head_dim
        rows = (config.heads + 2 * config.kv_heads) * config.head_dim
        self.qkv = nn.Linear(config.width, rows, bias=False)
        self.out = nn.Linear(config.heads * config.head_dim, config.width, bias=False)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return query, key, value ``[batch, tokens, heads or kv_heads, head_dim]``."""
        packed = self.qkv(x).unflatten(-1, (-1, self.head_dim))
        query, key, value = packed.split((self.heads, self.kv_heads, self.kv_heads), -2)
        return query, key, value

    def join(self, heads: Tensor) -> Tensor:
        """Return the projected output of ``[batch, tokens, heads, head_dim]``."""
        joined: Tensor = self.out(heads.flatten(-2))
        return joined


class Swiglu(nn.Module):
    """``down(silu(gate(x)) * up(x))`` with gate and up packed."""

    def __init__(self, config: TinyConfig) -> None:
        super().__init__()
        hidden = config.mlp_ratio * config.width
        self.up = nn.Linear(config.width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[batch, tokens, width]``."""
        gate, up = self.up(x).chunk(2, -1)
        down: Tensor = self.down(F.silu(gate) * up)
        return down


class PrefixLayer(nn.Module):
    """One pre-norm layer of the vision tower or of the prefix."""

    def __init__(self, config: TinyConfig) -> None:
        super().__init__()
        self.norm1 = RMSNorm(config.width, config.eps)
        self.attention = Attention(config)
        self.norm2 = RMSNorm(config.width, config.eps)
        self.mlp = Swiglu(config)

    def finish(self, x: Tensor, heads: Tensor) -> Tensor:
        """Return the layer's output from its input and its attention heads."""
        x = x + self.attention.join(heads)
        return x + cast(Tensor, self.mlp(self.norm2(x)))


class ExpertLayer(nn.Module):
    """One layer of the action expert; its norms are scaled by the condition."""

    def __init__(self, config: TinyConfig) -> None:
        super().__init__()
        condition = config.tau_dim + config.state_dim
        sizes = (config.width, condition, config.gate_hidden, config.eps)
        self.norm1 = AdaRMSNorm(*sizes)
        self.attention = Attention(config)
        self.norm2 = AdaRMSNorm(*sizes)
        self.mlp = Swiglu(config)


class Vision(nn.Module):
    """Patch tokens of 8 x 8 pixels, transformer layers, 2 x 2 shuffle, one summary token."""

    def __init__(self, config: TinyConfig) -> None:
        super().__init__()
        self.side = config.image_size // 8
        self.stem_in = nn.Conv2d(3, 32, 4, 4)
        self.stem_out = nn.Conv2d(32, config.width, 2, 2)
        self.position = nn.Parameter(torch.randn(self.side**2, config.width) * 0.05)
        self.layers = nn.ModuleList(PrefixLayer(config) for _ in range(config.vision_layers))
        self.shuffle = nn.Linear(4 * config.width, config.width)
        self.summary = nn.Linear((self.side // 2) ** 2 * config.width, config.width)

    def patches(self, images: Tensor) -> Tensor:
        """Return ``[batch, side^2 / 4, width]`` of images ``[batch, 3, H, W]`` in -1..1."""
        x = self.stem_out(F.silu(self.stem_in(images))).flatten(2).transpose(1, 2) + self.position
        for layer in self.layers:
            layer = cast(PrefixLayer, layer)
            x = layer.finish(x, attend([Part(*layer.attention.project(layer.norm1(x)))]))
        half = self.side // 2
        blocks = x.view(x.shape[0], half, 2, half, 2, -1).permute(0, 1, 3, 2, 4, 5)
        shuffled: Tensor = self.shuffle(blocks.reshape(x.shape[0], half * half, -1))
        return shuffled

    def forward(self, images: Tensor) -> Tensor:
        """Return one token ``[batch, width]`` per image."""
        token: Tensor = self.summary(self.patches(images).flatten(1))
        return token


Gammas = tuple[tuple[tuple[Tensor, Tensor], ...], Tensor]
"""Scales of every layer's two norms, and of the last norm."""


class TinyNetwork(nn.Module):
    """Weights of the policy and the three passes over them."""

    def __init__(self, config: TinyConfig) -> None:
        super().__init__()
        self.config = config
        width, rows = config.width, config.rows_per_token * config.action_dim
        layout = config.layout
        self.vision = Vision(config)
        self.more_vision = nn.ModuleList(Vision(config) for _ in range(config.towers - 1))
        self.words = nn.Embedding(config.vocabulary, width)
        # Large on purpose: beside a big constant RMSNorm hardly changes the scale of what varies,
        # and that is where the token holds positions to a millimetre.
        self.camera = nn.Parameter(torch.randn(layout.frame_tokens, width) * 3.0)
        self.prefix = nn.ModuleList(PrefixLayer(config) for _ in range(config.layers))
        self.action_in = nn.Linear(rows, width)
        # Large on purpose: gamma(c) can only scale, so tau and state enter the residual stream by
        # scaling something that is there whatever the noise.
        self.place = nn.Parameter(torch.randn(layout.suffix_tokens, width))
        self.expert = nn.ModuleList(ExpertLayer(config) for _ in range(config.layers))
        condition = config.tau_dim + config.state_dim
        self.norm = AdaRMSNorm(width, condition, config.gate_hidden, config.eps)
        self.action_out = nn.Linear(width, rows)
        self.rates = rope.frequencies(config.head_dim, config.rope_base)

    def tower(self, camera: int) -> Vision:
        """Return the vision tower of a camera, counted in the order of the configuration."""
        further = camera - 1 if self.config.towers > 1 else -1
        return self.vision if further < 0 else cast(Vision, self.more_vision[further])

    def see(self, images: Tensor) -> Tensor:
        """Return one token ``[cameras, width]`` per image of a frame ``[cameras, 3, H, W]``."""
        if self.config.towers == 1:
            return cast(Tensor, self.vision(images))
        return torch.cat([self.tower(n)(images[n : n + 1]) for n in range(len(images))])

    def encode_words(self, ids: Tensor) -> Tensor:
        """Return the pinned block ``[batch, layers, 2, pinned_tokens, kv_heads, head_dim]``.

        Args:
            ids: ``int64[batch, pinned_tokens]``.
        """
        return self._encode(self.words(ids), self.config.layout.pinned_positions(), None)

    def encode_tokens(self, tokens: Tensor, pinned: Tensor) -> Tensor:
        """Return the frame block ``[batch, layers, 2, frame_tokens, kv_heads, head_dim]``.

        Args:
            tokens: ``[batch, frame_tokens, width]`` of the vision tower.
            pinned: Block of ``encode_words``, batch of 1 or the same.
        """
        pinned = pinned.expand(tokens.shape[0], *pinned.shape[1:])
        return self._encode(tokens + self.camera, self.config.layout.frame_positions(), pinned)

    def _encode(self, x: Tensor, positions: Tensor, pinned: Tensor | None) -> Tensor:
        cos, sin = rope.phases(positions, self.rates, dtype=self.camera.dtype)
        cos, sin = cos[:, None].to(x.device), sin[:, None].to(x.device)
        blocks = []
        # unbind, not indexing: the gradient of an index is a zero tensor of the whole block.
        held = () if pinned is None else [block.unbind(1) for block in pinned.unbind(1)]
        for index, layer in enumerate(self.prefix):
            layer = cast(PrefixLayer, layer)
            query, key, value = layer.attention.project(layer.norm1(x))
            query, key = rope.rotate(query, cos, sin), rope.rotate(key, cos, sin)
            parts = [Part(query, key, value)]
            if held:
                parts.insert(0, Part(query, *held[index]))
            blocks.append(torch.stack((key, value), 1))
            x = layer.finish(x, attend(parts))
        return torch.stack(blocks, 1)

    def gammas(self, tau: Tensor, state: Tensor) -> Gammas:
        """Return the scales ``[batch, 1, width]`` of every expert norm.

        Args:
            tau: ``[batch]`` flow times.
            state: ``[batch, state_dim]`` normalised state.
        """
        sizes = self.config
        embedded = embed_tau(
            tau, dim=sizes.tau_dim, min_period=sizes.min_period, max_period=sizes.max_period
        )
        condition = torch.cat((embedded.to(state.dtype), state), -1)[:, None]
        pairs = tuple(
            (cast(ExpertLayer, layer).norm1.gamma(condition), layer.norm2.gamma(condition))
            for layer in self.expert
        )
        return pairs, self.norm.gamma(condition)

    def velocity(self, x: Tensor, gammas: Gammas, context: Context) -> Tensor:
        """Return the flow velocity ``[batch, horizon, action_dim]`` of noisy actions ``x``."""
        batch = x.shape[0]
        hidden = self.action_in(x.reshape(batch, self.config.layout.suffix_tokens, -1))
        hidden = hidden + self.place
        for index, layer in enumerate(self.expert):
            layer, (first, second) = cast(ExpertLayer, layer), gammas[0][index]
            query, key, value = layer.attention.project(layer.norm1(hidden, first))
            heads = context.attend(index, query, key, value)
            hidden = hidden + layer.attention.join(heads)
            hidden = hidden + layer.mlp(layer.norm2(hidden, second))
        out: Tensor = self.action_out(self.norm(hidden, gammas[1]))
        return out.reshape(x.shape)


class Context:
    """Pinned block and frames as one call's suffix queries see them.

    The frames' keys are used as they were stored; each frame's age is in the phases that the
    queries are rotated by for that frame. Values of all three blocks lie in one buffer, of which
    a denoise step rewrites the suffix rows only.

    Args:
        network: Supplies layout and rotary rates.
        pinned: ``[layers, 2, pinned_tokens, kv_heads, head_dim]``.
        frames: ``[frames, layers, 2, frame_tokens, kv_heads, head_dim]``, in any order.
        ages_steps: ``[frames]`` control steps from each frame's stamp to the instant of row 0.
        cache: ``partitioned``; ``naive`` keeps the suffix of the first step, for comparison.

    Raises:
        ConfigError: There is no such cache. Window and ages: see ``WindowedLayout.check_ages``.
    """

    def __init__(
        self, network: TinyNetwork, pinned: Tensor, *, frames: Tensor, ages_steps: Tensor,
        cache: str = PARTITIONED,
    ) -> None:  # fmt: skip
        layout = network.config.layout
        still = layout.suffix_positions()[None]
        positions = torch.cat((still, layout.query_positions(ages_steps)))
        cos, sin = rope.phases(positions, network.rates, dtype=pinned.dtype)
        self._cos, self._sin = cos[:, :, None], sin[:, :, None]
        self._frame_keys, values = frames[:, :, 0], frames[:, :, 1]
        own = pinned.new_empty((len(pinned), layout.suffix_tokens, *pinned.shape[3:]))
        self._keys = torch.cat((pinned[:, 0], own), 1)
        self._values = torch.cat((pinned[:, 1], values.transpose(0, 1).flatten(1, 2), own), 1)
        self._pinned_tokens, self._suffix_tokens = layout.pinned_tokens, layout.suffix_tokens
        self._kept: set[int] | None = set() if is_naive(cache) else None

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return the heads ``[1, tokens, heads, head_dim]`` of one layer's suffix tokens."""
        turned = rope.rotate(query, self._cos, self._sin)
        keys, values = self._keys[layer], self._values[layer]
        if self._kept is None or layer not in self._kept:
            keys[self._pinned_tokens :] = rope.rotate(key, self._cos[:1], self._sin[:1])[0]
            values[-self._suffix_tokens :] = value[0]
        if self._kept is not None:
            self._kept.add(layer)
        still = logits(turned[:1], keys[None])
        aged = logits(turned[1:], self._frame_keys[:, layer])
        sliding = aged.permute(1, 2, 0, 3).flatten(2)[None]
        pinned, own = still.split((self._pinned_tokens, self._suffix_tokens), -1)
        weights = torch.softmax(torch.cat((pinned, sliding, own), -1), -1)
        return weigh(weights.to(values.dtype), values[None]).transpose(1, 2)
