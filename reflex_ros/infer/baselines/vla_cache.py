"""VLA-Cache: keys and values of image patches that hardly changed, from the call before.

Xu et al., arXiv 2502.02175; code github.com/siyuhsu/vla-cache. Per camera: patches whose raw
values have a cosine of 0.996 with the image before are static; those that the last call looked at
most are taken out; at a few layers a share of the rest, by the entropy of that layer's attention,
is left out of the pass. What is left out keeps the rows of the call before; the others attend to
all rows: compact queries, full keys. The image tower always runs in full; text is always computed.

It is approximate here. The original is causal, so an old row spoils only later ones; these
prefixes are one bidirectional block, and an old row holds the old text, state and other cameras.

Ours: an age bound, the choice of order (the published code takes the first rows of the image, not
the most static ones), and the actions' attention as a score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from reflex_ros.core.errors import ConfigError
from reflex_ros.infer.attention import logits
from reflex_ros.infer.baselines.choice import (
    candidates,
    dropped_rows,
    layer_ratios,
    patch_cosines,
)
from reflex_ros.infer.baselines.options import VlaOptions
from reflex_ros.infer.cache import PARTITIONED, VLA_CACHE, Cache, StaticCache
from reflex_ros.infer.decoder import Pass, run
from reflex_ros.infer.snapshot import Prefix
from reflex_ros.infer.tokens import compact_tokens

if TYPE_CHECKING:
    from reflex_ros.infer.policy import SnapshotPolicy

SCORE_DEPTH = 15 / 32
"""Where the source reads its scores, as a share of its layers."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One observation, as a cache with a memory wants it.

    Attributes:
        images: ``uint8[1, 3, height, width]`` by camera.
        views: Tokens of these cameras, of ``SnapshotPolicy.view``.
        ids: Token ids of the prompt.
        state: Normalised state, ``float32[1, max_state_dim]``.
        task: Instruction; another one begins anew.
    """

    images: Mapping[str, Tensor]
    views: Mapping[str, Tensor]
    ids: Sequence[int]
    state: Tensor
    task: str


class ScatterCache(StaticCache):
    """A block whose rows lie anywhere in a buffer that is full already.

    Args:
        kv: As in ``StaticCache``.
        rows: ``int64[tokens]`` where the rows of the block go.
        length: Rows that are attended to.
    """

    def __init__(self, kv: Tensor, rows: Tensor, length: int) -> None:
        super().__init__(kv)
        self._rows, self._length = rows, length

    def append(self, layer: int, at: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Overwrite the block's rows and return views of all rows."""
        self.kv[layer, 0][:, self._rows] = key
        self.kv[layer, 1][:, self._rows] = value
        return self.rows(layer, self._length)


class ScoringCache(StaticCache):
    """Sees in the first denoise step how much the actions look at each row of the prefix.

    Args:
        prefix: Of this call.
        layer: Whose attention counts.
    """

    def __init__(self, prefix: Prefix, layer: int) -> None:
        super().__init__(prefix.kv)
        self._length, self._layer = prefix.length, layer
        self.scores: Tensor | None = None

    def watch(self, layer: int, query: Tensor, seen: tuple[Tensor, Tensor]) -> None:
        """Keep the mean weight of each row of the prefix."""
        if layer == self._layer and self.scores is None:
            weights = torch.softmax(logits(query, seen[0]), -1)
            self.scores = weights.mean((0, 1, 2))[: self._length]


@dataclass(slots=True)
class _Memory:
    """What is kept of a call."""

    pixels: dict[str, Tensor]
    kv: Tensor
    task: str
    ages: Tensor
    entropies: list[float]
    scores: Tensor | None = None
    asked: ScoringCache | None = None


class VlaCache:
    """Prefixes of one camera stream, each with rows of the one before. Not thread-safe.

    Args:
        policy: Loaded Pi0 or Pi0.5 without padding.
        options: Parameters.

    Raises:
        ConfigError: No layer of the network could reuse anything.
    """

    name = VLA_CACHE

    def __init__(self, policy: SnapshotPolicy, options: VlaOptions) -> None:
        self._policy, self._network, self._options = policy, policy.network, options
        depth = self._depth = policy.pretrained.sizes.depth
        if options.layers[0] >= depth:
            raise ConfigError(
                f'parameter of the cache cannot be used layers: got {list(options.layers)}, '
                f'expected one below {depth} (layers of the language model). Give layers=0 or so.'
            )
        wanted = options.score_layer
        self._score_layer = int(depth * SCORE_DEPTH) if wanted is None else wanted
        last = depth - 1 - (policy.reuse.last_layer_kv and options.score == 'text')
        if self._score_layer > last:
            raise ConfigError(
                f'parameter of the cache cannot be used score_layer: got {self._score_layer}, '
                f'expected 0 to {last} (layers with an attention). Correct it.'
            )
        self._memory: _Memory | None = None
        self._scores: list[Tensor] = []
        self._entropies: list[float] = []
        self.reused_rows: tuple[int, ...] = ()
        self.image_rows = 0

    def reset(self) -> None:
        """Forget the calls before: the next one is computed in full."""
        self._memory = None

    @torch.inference_mode()
    def encode(self, seen: Seen) -> Prefix:
        """Return the prefix of an observation.

        Its rows of images must stay as they are: the next call may use them.
        """
        policy = self._policy
        views = {name: seen.views[name] for name in policy.cameras if name in seen.views}
        pixels = {name: (policy.processing.image(seen.images[name])[0] + 1) for name in views}
        tokens = compact_tokens(self._network, views, seen.ids).to(self._network.dtype)
        images = self.image_rows = tokens.shape[1] - len(seen.ids)
        memory = self._memory_for(seen, pixels, images)
        kv = self._network.new_cache(
            1, tokens.shape[1] + self._network.state_rows + policy.config.chunk_size
        )
        plan: list[tuple[int, Tensor]] = []
        ages = torch.zeros(self._depth, images, dtype=torch.long)
        if memory is not None:
            kv[:, :, :, :images] = memory.kv[:, :, :, :images]
            plan, ages = self._plan(memory, pixels), memory.ages + 1
        self._run(tokens, kv, plan, ages)
        self._memory = _Memory(pixels, kv, seen.task, ages, self._entropies,
                               self._scores[0][:images] if self._scores else None)  # fmt: skip
        return Prefix(kv, tokens.shape[1])

    def suffix(self, prefix: Prefix) -> str | Cache:
        """Return the cache in which the actions join a prefix of ``encode``."""
        if self._options.score != 'suffix' or self._memory is None:
            return PARTITIONED
        self._memory.asked = ScoringCache(prefix, self._score_layer)
        return self._memory.asked

    def report(self) -> dict[str, float]:
        """Return the share of reused rows of the last call, over all layers, and their age."""
        assert self._memory is not None
        rows = max(1, self._depth * self.image_rows)
        return {'reuse_ratio': sum(self.reused_rows) / rows,
                'oldest_age': float(self._memory.ages.max())}  # fmt: skip

    # ---- which rows --------------------------------------------------------------------------

    def _memory_for(self, seen: Seen, pixels: Mapping[str, Tensor], images: int) -> _Memory | None:
        """Return the call before if its rows may be used."""
        memory = self._memory
        if memory is None or memory.task != seen.task or list(memory.pixels) != list(pixels):
            return None
        return memory if memory.ages.shape[1] == images else None

    def _plan(self, memory: _Memory, pixels: Mapping[str, Tensor]) -> list[tuple[int, Tensor]]:
        options, patch = self._options, self._policy.pretrained.sizes.patch
        cosines = [patch_cosines(image, memory.pixels[name], patch)
                   for name, image in pixels.items()]  # fmt: skip
        scores = memory.scores
        if memory.asked is not None and memory.asked.scores is not None:
            scores = memory.asked.scores[: self.image_rows]
        rows = candidates(cosines, scores, memory.ages.amax(0), options)
        ratios = ([options.ratio] if options.ratio is not None else
                  layer_ratios(memory.entropies, options.damping))  # fmt: skip
        return dropped_rows(rows, ratios, options.layers, self._depth)

    # ---- the pass ----------------------------------------------------------------------------

    def _run(
        self, tokens: Tensor, kv: Tensor, plan: Sequence[tuple[int, Tensor]], ages: Tensor
    ) -> None:
        """Run the tokens through the layers, fewer of them from each planned layer on."""
        self._entropies, self._scores = [], []
        length, images = tokens.shape[1], self.image_rows
        rows, x, reused = torch.arange(length), tokens, [0] * self._depth
        starts = [0, *(layer for layer, _ in plan if layer), self._depth]
        dropped = dict(plan)
        for start, end in zip(starts, starts[1:], strict=False):
            is_kept = torch.ones(length, dtype=torch.bool)
            is_kept[dropped.get(start, rows[:0])] = False
            x, rows = x[:, is_kept[rows]], rows[is_kept[rows]]
            x = self._segment(start, end, x, rows, kv)
            ages[start:end, rows[rows < images]] = 0
            reused[start:end] = [length - len(rows)] * (end - start)
        self.reused_rows = tuple(reused)

    def _segment(self, start: int, end: int, x: Tensor, rows: Tensor, kv: Tensor) -> Tensor:
        length = rows[-1].item() + 1  # text comes last and is always computed
        cos, sin = self._network.positions(torch.arange(length)[None])
        is_last = self._policy.reuse.last_layer_kv and end == self._depth
        how = Pass(
            ScatterCache(kv, rows, length), 0, (cos[:, rows], sin[:, rows]),
            is_last_kv_only=is_last, watch=self._watch if self._is_watching else None,
        )  # fmt: skip
        return run(self._network.vlm[start:end], x, how)

    @property
    def _is_watching(self) -> bool:
        options = self._options
        wants_text = options.score == 'text' and options.task_patches > 0
        return options.ratio is None or wants_text

    def _watch(self, layer: int, query: Tensor, seen: tuple[Tensor, Tensor]) -> None:
        """Keep the entropy of a layer's attention, and what the text looks at in one layer."""
        options, weights = self._options, None
        if options.ratio is None:
            weights = torch.softmax(logits(query, seen[0]), -1).mean(1)
            self._entropies.append(float(torch.special.entr(weights).sum(-1).mean()))
        if layer == self._score_layer and options.score == 'text' and options.task_patches:
            words = seen[0].shape[1] - self.image_rows
            if weights is None:
                weights = torch.softmax(logits(query[:, -words:], seen[0]), -1).mean(1)
            self._scores.append(weights[0, -words:].mean(0))
