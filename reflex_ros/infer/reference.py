"""The slow oracle of the windowed layout: float64, no cache, nothing shared but the weights.

Every call recomputes everything, at every denoise step: the images, the whole sequence
``[pinned | frame 0 .. frame N-1 | suffix]`` and its attention, with an explicit mask and an
explicit distance between every pair of tokens. It is written in numpy, from the definition, so
that an error in the fast path cannot be repeated here by sharing its code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the weights' shapes do not tell; names as in the checkpoint's ``config.json``."""

    cameras: tuple[str, ...]
    vision_layers: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    horizon: int
    rows_per_token: int
    tau_dim: int
    min_period: float
    max_period: float
    rope_base: float
    eps: float


@dataclass(frozen=True, slots=True)
class Scene:
    """One full-batch problem.

    Attributes:
        ids: Token ids of the instruction block.
        images: ``frames x cameras`` images ``float64[H, W, 3]`` in -1..1, oldest frame first.
        ages_steps: Control steps from each frame's stamp to the instant of row 0.
        state: ``float64[state_dim]`` normalised state.
    """

    ids: Sequence[int]
    images: Sequence[Sequence[Array]]
    ages_steps: Sequence[float]
    state: Array


class Oracle:
    """Full-batch recomputation with the given weights.

    Args:
        weights: Arrays under the names that they have in ``model.safetensors``.
        sizes: The rest of the definition.
    """

    def __init__(self, weights: Mapping[str, npt.NDArray[np.generic]], sizes: Sizes) -> None:
        self._w = {name: np.asarray(value, np.float64) for name, value in weights.items()}
        self._s = sizes

    def denoise(self, scene: Scene, noise: Array, num_steps: int) -> Array:
        """Return normalised actions ``float64[horizon, action_dim]`` after Euler steps from 1."""
        x = np.array(noise, np.float64)
        for k in range(num_steps):
            x = x - self.velocity(scene, x, 1.0 - k / num_steps) / num_steps
        return x

    def velocity(self, scene: Scene, actions: Array, tau: float) -> Array:
        """Return ``v(x, tau)`` of shape ``[horizon, action_dim]``."""
        w, s = self._w, self._s
        blocks = [w['words.weight'][np.asarray(scene.ids)]]
        for images in scene.images:
            tokens = [self._image_token(image) for image in images]
            blocks.append(np.stack(tokens) + w['camera'])
        rows = actions.reshape(s.horizon // s.rows_per_token, -1)
        blocks.append(self._linear('action_in', rows) + w['place'])
        sizes = [len(block) for block in blocks]
        hidden = np.concatenate(blocks)
        mask, distance = self._mask(sizes), self._distance(sizes, scene.ages_steps)
        condition = np.concatenate((self._tau_embedding(tau), scene.state))
        for layer in range(s.layers):
            hidden = self._joint_layer(layer, hidden, sizes[-1], condition, mask, distance)
        last = self._rms(hidden[-sizes[-1] :]) * self._gamma('norm', condition)
        return self._linear('action_out', last).reshape(actions.shape)

    def _joint_layer(
        self,
        layer: int,
        hidden: Array,
        suffix: int,
        condition: Array,
        mask: npt.NDArray[np.bool_],
        distance: Array,
    ) -> Array:
        """One softmax over the whole sequence; prefix and suffix have their own weights."""
        prefix, expert = f'prefix.{layer}', f'expert.{layer}'
        streams = ((prefix, hidden[:-suffix]), (expert, hidden[-suffix:]))

        def scale(stream: str, norm: str) -> Array:
            if stream == prefix:
                return 1.0 + self._w[f'{stream}.{norm}.weight']
            return self._gamma(f'{stream}.{norm}', condition)

        packed = np.concatenate([
            self._rms(x) * scale(name, 'norm1') @ self._w[f'{name}.attention.qkv.weight'].T
            for name, x in streams
        ])
        heads = self._attention(packed, mask, distance)
        parts = ((prefix, slice(None, -suffix)), (expert, slice(-suffix, None)))
        out = []
        for name, part in parts:
            x = hidden[part] + heads[part] @ self._w[f'{name}.attention.out.weight'].T
            out.append(x + self._mlp(name, self._rms(x) * scale(name, 'norm2')))
        return np.concatenate(out)

    def _attention(
        self, packed: Array, mask: npt.NDArray[np.bool_], distance: Array | None
    ) -> Array:
        """Heads of every token; a logit is Re(sum q conj(k) e^{i w d}) for the pair's distance."""
        s = self._s
        half = s.head_dim // 2
        rates = s.rope_base ** (-2.0 * np.arange(half) / s.head_dim)
        split = packed.reshape(len(packed), -1, s.head_dim)
        out = np.zeros((len(packed), s.heads, s.head_dim))
        for head in range(s.heads):
            shared = head // (s.heads // s.kv_heads)
            query = split[:, head]
            key = split[:, s.heads + shared]
            value = split[:, s.heads + s.kv_heads + shared]
            if distance is None:
                scores = query @ key.T
            else:
                turn = np.exp(1j * distance[:, :, None] * rates)
                pairs = (query[:, :half] + 1j * query[:, half:])[:, None] * np.conj(
                    key[:, :half] + 1j * key[:, half:]
                )
                scores = np.real((pairs * turn).sum(-1))
            scores = np.where(mask, scores / np.sqrt(s.head_dim), -np.inf)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, head] = weights / weights.sum(-1, keepdims=True) @ value
        return out.reshape(len(packed), -1)

    def _mask(self, sizes: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Who sees whom: pinned itself; a frame pinned and itself; the suffix everything."""
        block = np.repeat(np.arange(len(sizes)), sizes)
        query, key = block[:, None], block[None, :]
        return (key == query) | (key == 0) | (query == len(sizes) - 1)

    def _distance(self, sizes: Sequence[int], ages_steps: Sequence[float]) -> Array:
        """Position of the query minus position of the key, for every pair."""
        pinned, frame = sizes[0], sizes[1]
        local = [np.arange(pinned, dtype=np.float64)]
        local += [pinned + np.arange(frame, dtype=np.float64) for _ in ages_steps]
        local.append(pinned + frame + np.arange(sizes[-1]) * float(self._s.rows_per_token))
        position = np.concatenate(local)
        distance = position[:, None] - position[None, :]
        first = len(position) - sizes[-1]
        for index, age in enumerate(ages_steps):
            start = pinned + index * frame
            distance[first:, start : start + frame] += age
        return distance

    def _image_token(self, image: Array) -> Array:
        w, s = self._w, self._s
        x = self._patchify(image, 'vision.stem_in', 4)
        x = self._patchify(x / (1.0 + np.exp(-x)), 'vision.stem_out', 2)
        side = x.shape[0]
        hidden = x.reshape(side * side, -1) + w['vision.position']
        everyone = np.ones((len(hidden), len(hidden)), np.bool_)
        for layer in range(s.vision_layers):
            name = f'vision.layers.{layer}'
            normed = self._rms(hidden) * (1.0 + w[f'{name}.norm1.weight'])
            heads = self._attention(normed @ w[f'{name}.attention.qkv.weight'].T, everyone, None)
            hidden = hidden + heads @ w[f'{name}.attention.out.weight'].T
            normed = self._rms(hidden) * (1.0 + w[f'{name}.norm2.weight'])
            hidden = hidden + self._mlp(name, normed)
        half = side // 2
        grid = hidden.reshape(side, side, -1)
        blocks = [
            np.concatenate([grid[2 * i + a, 2 * j + b] for a in (0, 1) for b in (0, 1)])
            for i in range(half)
            for j in range(half)
        ]
        shuffled = self._linear('vision.shuffle', np.stack(blocks))
        return self._linear('vision.summary', shuffled.reshape(1, -1))[0]

    def _patchify(self, image: Array, name: str, size: int) -> Array:
        """Strided convolution written as one matrix product per patch."""
        side = image.shape[0] // size
        kernel = self._w[f'{name}.weight'].transpose(0, 2, 3, 1)
        weight = kernel.reshape(len(kernel), -1)
        out = np.zeros((side, side, len(weight)))
        for i in range(side):
            for j in range(side):
                patch = image[i * size : (i + 1) * size, j * size : (j + 1) * size]
                out[i, j] = weight @ patch.reshape(-1) + self._w[f'{name}.bias']
        return out

    def _tau_embedding(self, tau: float) -> Array:
        s = self._s
        spread = np.linspace(0.0, 1.0, s.tau_dim // 2)
        angle = 2 * np.pi * tau / (s.min_period * (s.max_period / s.min_period) ** spread)
        return np.concatenate((np.sin(angle), np.cos(angle)))

    def _gamma(self, name: str, condition: Array) -> Array:
        inner = self._linear(f'{name}.gate_in', condition)
        return 1.0 + self._linear(f'{name}.gate_out', inner / (1.0 + np.exp(-inner)))

    def _mlp(self, name: str, x: Array) -> Array:
        gate, up = np.split(x @ self._w[f'{name}.mlp.up.weight'].T, 2, axis=-1)
        return (gate / (1.0 + np.exp(-gate)) * up) @ self._w[f'{name}.mlp.down.weight'].T

    def _linear(self, name: str, x: Array) -> Array:
        return x @ self._w[f'{name}.weight'].T + self._w[f'{name}.bias']

    def _rms(self, x: Array) -> Array:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self._s.eps)
