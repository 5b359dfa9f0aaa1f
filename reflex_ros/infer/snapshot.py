"""The ``snapshot`` layout: one complete prefix, then denoising on top of it.

``[camera tokens ... | instruction] [state] [actions]``: images and language see each other and
nothing else, so their keys and values serve every denoise step and every call on the same frames.
Positions count valid tokens only; a masked camera or a padded token is the same as none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from reflex_ros.infer import flow
from reflex_ros.infer.cache import (
    PARTITIONED,
    Cache,
    JoinedCache,
    NaiveCache,
    StaticCache,
    is_naive,
)
from reflex_ros.infer.compute import NO_KERNELS, Compute
from reflex_ros.infer.decoder import Pass, Split, run
from reflex_ros.infer.guidance import Guidance, steer
from reflex_ros.infer.reuse import Reuse
from reflex_ros.infer.rope import frequencies, phases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reflex_ros.infer.checkpoint.sizes import Sizes
    from reflex_ros.infer.decoder import Layer, Phases

ROPE_BASE = 10_000.0
TILE, TILED = 32, (torch.bfloat16,)
"""Keys that an attention kernel takes at a time, a rest costing as much again; for these types."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """Keys and values of images and language.

    Attributes:
        kv: ``[layers, 2, batch, rows, kv_heads, head_dim]``; the prefix fills the first rows, the
            rest is room for state and actions.
        length: Rows that the prefix fills.
        valid: ``bool[batch, length]`` rows that count; None = all.
        has_state: The state's row is in it (SmolVLA without ``Reuse.state_once``).
    """

    kv: Tensor
    length: int
    valid: Tensor | None = None
    has_state: bool = False

    def counts(self) -> Tensor:
        """Return the number of valid rows, ``int64[batch]``."""
        if self.valid is None:
            return torch.full((self.kv.shape[2],), self.length)
        return self.valid.sum(-1)

    def seen_by(
        self, tokens: int, among: Tensor | None, at: int | None = None
    ) -> Tensor | None:
        """Return the mask ``[batch, tokens, at + keys]`` of a block behind the prefix.

        Args:
            tokens: Tokens of the block.
            among: ``bool[tokens, keys]`` what they see of each other; None = everything.
            at: Row at which the block starts, see ``start``; None = right behind the prefix.
        """
        rows = self.seen(self.length if at is None else at)
        if rows is None and among is None:
            return None
        inner = torch.ones(tokens, tokens, dtype=torch.bool) if among is None else among
        if rows is None:
            rows = torch.ones(1, self.length, dtype=torch.bool)
        outer = rows[:, None].expand(-1, tokens, -1)
        return torch.cat((outer, inner.expand(len(rows), -1, -1)), -1)

    def seen(self, end: int) -> Tensor | None:
        """Return ``bool[batch or 1, end]`` which of the first ``end`` rows count, None = all."""
        if self.valid is None and end == self.length:
            return None
        known = torch.ones(1, self.length, dtype=torch.bool) if self.valid is None else self.valid
        return F.pad(known, (0, end - self.length), value=False)

    def start(self, rows: int, *, is_aligned: bool) -> int:
        """Return the row at which ``rows`` rows of state and actions start.

        Aligned, it is the one from which they fill a whole number of the kernel's tiles, if there
        is room. All rows behind the prefix become zero then: those that are masked still enter a
        product, with weight zero.
        """
        if not is_aligned:
            return self.length
        at = whole_tiles(self.length + rows) - rows
        if at + rows > self.kv.shape[3]:
            return self.length
        self.kv[:, :, :, self.length : at + rows].zero_()
        return at


def whole_tiles(rows: int) -> int:
    """Return the next multiple of ``TILE``."""
    return -(-rows // TILE) * TILE


def room(state_rows: int, chunk: int) -> int:
    """Return the rows that a cache needs behind a prefix, wherever ``Prefix.start`` is."""
    return state_rows + chunk + TILE - 1


class Denoiser(Protocol):
    """Velocity field of one call: everything but the noisy actions is fixed."""

    def velocity(self, x: Tensor, k: int) -> Tensor:
        """Return ``v[batch, chunk, max_action_dim]`` (float32) at step ``k`` for noisy ``x``."""


class SnapshotNetwork(Protocol):
    """A family's network. Not thread-safe; encoder and policy may share the weights.

    Attributes:
        sizes, reuse, compute: Of the checkpoint, and the switches in force.
        camera_tokens: Tokens of one camera.
        state_rows: Rows of a cache that the state takes.
        is_state_in_prefix: The state is a block of the prefix; else of the suffix, or text.
    """

    sizes: Sizes
    reuse: Reuse
    compute: Compute
    camera_tokens: int
    state_rows: int
    is_state_in_prefix: bool

    @property
    def dtype(self) -> torch.dtype:
        """Type of keys and values."""

    def embed_camera(self, pixels: Tensor) -> Tensor:
        """Return ``[batch, camera_tokens, width]`` of ``pixels[batch, 3, side, side]``."""

    def embed_words(self, ids: Tensor) -> Tensor:
        """Return ``[batch, tokens, width]`` of ``ids[batch, tokens]``."""

    def new_cache(self, batch: int, rows: int) -> Tensor:
        """Return an empty ``[layers, 2, batch, rows, kv_heads, head_dim]``."""

    def encode(
        self, tokens: Tensor, valid: Tensor | None, kv: Tensor, state: Tensor | None = None
    ) -> Prefix:
        """Write keys and values of ``tokens[batch, length, width]`` into ``kv``.

        Args:
            tokens: Images, then language.
            valid: ``bool[batch, length]``, None = all.
            kv: Of ``new_cache``, with room for state and actions.
            state: Normalised state, looked at where it is part of the prefix (``Prefix``).
        """

    def prepare(
        self, prefix: Prefix, state: Tensor, num_steps: int, *, cache: str | Cache = PARTITIONED
    ) -> Denoiser:
        """Return the velocity field for a state ``float32[batch, max_state_dim]``, normalised.

        Args:
            prefix: Of ``encode``.
            state: See above.
            num_steps: Euler steps.
            cache: ``partitioned``, or ``naive`` for comparison, see ``cache.NaiveCache``; or a
                cache for this prefix.
        """


def empty_cache(sizes: Sizes, batch: int, rows: int, dtype: torch.dtype) -> Tensor:
    """Return ``dtype[layers, 2, batch, rows, kv_heads, head_dim]`` of zeros."""
    shape = (sizes.depth, 2, batch, rows, sizes.kv_heads, sizes.head_dim)
    return torch.zeros(shape, dtype=dtype)


def run_prefix(
    layers: Sequence[Layer], tokens: Tensor, valid: Tensor | None, kv: Tensor, *,
    positions: Positions, reuse: Reuse, opens: Tensor | None = None,
) -> Prefix:  # fmt: skip
    """Run a prefix through a language model and return its keys and values.

    Args:
        layers: Of the language model.
        tokens: ``[batch, length, width]`` in the type of the layers.
        valid: ``bool[batch, length]``, None = all.
        kv: Where keys and values go.
        positions, reuse: Of the network.
        opens: ``bool[length]`` tokens that open a block, see ``valid_mask``; None = one block.
    """
    length = tokens.shape[1]
    how = Pass(
        StaticCache(kv), 0, positions(positions_of(valid, length), below=length),
        mask=valid_mask(valid, opens), is_last_kv_only=reuse.last_layer_kv,
    )  # fmt: skip
    run(layers, tokens, how)
    return Prefix(kv, length, valid, has_state=opens is not None)


class Positions:
    """Phases of positions; computed in float64 once, looked up afterwards.

    Args:
        head_dim: Width of a head.
        dtype: Type of the result.
        size: First size of the table; it grows where a longer prefix needs it.
        rate_dtype: Type that the frequencies are rounded to first.
    """

    def __init__(
        self, head_dim: int, dtype: torch.dtype, *, size: int = 1024,
        rate_dtype: torch.dtype = torch.float64,
    ) -> None:  # fmt: skip
        self._rates = frequencies(head_dim, ROPE_BASE).to(rate_dtype).to(torch.float64)
        self._dtype = dtype
        self._table = self._compute(size)

    def __call__(self, positions: Tensor, *, below: int | None = None) -> Phases:
        """Return cosine and sine ``[..., 1, head_dim]`` of integer positions ``[...]``.

        Args:
            positions: Of tokens.
            below: What they are all less than, where the caller knows it: they are not looked at
                then, so nobody waits for the device that they are on.
        """
        if below is None:
            below = int(positions.max()) + 1 if positions.numel() else 0
        if below > len(self._table[0]):
            self._table = self._compute(2 * below)
        cos, sin = self._table
        return cos[positions][..., None, :], sin[positions][..., None, :]

    def _compute(self, size: int) -> Phases:
        return phases(torch.arange(size), self._rates, dtype=self._dtype)


def is_aligned(reuse: Reuse, cache: str | Cache, dtype: torch.dtype) -> bool:
    """Return whether the suffix of such a cache is to start behind a gap.

    Where the kernel takes tiles, and where the pass is a graph: prompts of different lengths then
    share one.
    """
    is_wanted = dtype in TILED or reuse.traced
    return is_wanted and reuse.aligned and reuse.static_rows and cache == PARTITIONED


def split_of(prefix: Prefix, network: SnapshotNetwork, end: int) -> Split | None:
    """Return what of a prefix counts, for kernels; None where only a mask can tell.

    Args:
        prefix: Of one observation.
        network: Without ``drop_masked``, rows in the middle may not count.
        end: Row from which on everything counts.
    """
    if network.compute.kernels == NO_KERNELS or not network.reuse.drop_masked:
        return None
    return Split(end, prefix.counts().to(torch.int32))


def suffix_cache(prefix: Prefix, reuse: Reuse, name: str | Cache = PARTITIONED) -> Cache:
    """Return the cache in which state and actions join a prefix; one that is given, as it is.

    Raises:
        ConfigError: There is no cache of that name.
    """
    if not isinstance(name, str):
        return name
    if is_naive(name):
        return NaiveCache(prefix.kv)
    return StaticCache(prefix.kv) if reuse.static_rows else JoinedCache(prefix.kv)


def valid_mask(valid: Tensor | None, opens: Tensor | None = None) -> Tensor | None:
    """Return the mask of a prefix among itself.

    Args:
        valid: ``bool[batch, length]``, None = all.
        opens: ``bool[length]`` tokens that open a new block: earlier ones do not see it.
    """
    if valid is None and opens is None:
        return None
    among = None
    if opens is not None:
        block = opens.cumsum(0)
        among = block[None, None, :] <= block[None, :, None]
    if valid is None:
        return among
    seen = valid[:, None, :] & valid[:, :, None]
    return seen if among is None else seen & among


def positions_of(valid: Tensor | None, length: int) -> Tensor:
    """Return ``int64[batch or 1, length]``: number of valid tokens before each one."""
    if valid is None:
        return torch.arange(length)[None]
    return (valid.cumsum(-1) - 1).clamp_min(0)


def denoise(
    denoiser: Denoiser, noise: Tensor, num_steps: int, *, guidance: Guidance | None = None
) -> Tensor:
    """Return the normalised actions made of noise ``[batch, chunk, max_action_dim]``.

    Args:
        denoiser: Velocity field of this call.
        noise: Start of the flow.
        num_steps: Euler steps that the field was prepared for.
        guidance: What the chunk is to continue, None for a free one.
    """
    if guidance is None:
        return flow.integrate(denoiser.velocity, noise, num_steps)
    taus = flow.taus(num_steps)

    def guided(x: Tensor, k: int) -> Tensor:
        return steer(denoiser.velocity(x, k), x, taus[k], guidance)

    return flow.integrate(guided, noise, num_steps)
