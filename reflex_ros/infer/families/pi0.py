"""Pi0: the state is a token of the suffix, the flow time enters through the action tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from reflex_ros.infer import flow
from reflex_ros.infer.cache import PARTITIONED, Cache, StaticCache, watch_of
from reflex_ros.infer.compute import DEFAULT, Compute
from reflex_ros.infer.decoder import Pass
from reflex_ros.infer.families.action_tokens import ActionTokens
from reflex_ros.infer.families.paligemma import PaliGemma
from reflex_ros.infer.snapshot import Prefix, is_aligned, split_of, suffix_cache
from reflex_ros.infer.weights import Weights

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reflex_ros.infer.checkpoint.config import PretrainedConfig
    from reflex_ros.infer.checkpoint.sizes import Sizes
    from reflex_ros.infer.reuse import Reuse


class Pi0(PaliGemma):
    """Network of a Pi0 checkpoint, see ``snapshot.SnapshotNetwork``.

    Args:
        tensors, sizes, reuse, compute: See ``PaliGemma``.
        config: Configuration of the checkpoint.
    """

    state_rows = 1
    is_state_in_prefix = False

    def __init__(
        self, tensors: Mapping[str, Tensor], sizes: Sizes, reuse: Reuse, config: PretrainedConfig,
        compute: Compute = DEFAULT,
    ) -> None:  # fmt: skip
        super().__init__(tensors, sizes, reuse, compute)
        weights = Weights(tensors)
        self.state_in = weights.linear('state_proj')
        self.tokens = ActionTokens(weights, config)
        self.velocity_out = weights.linear('action_out_proj')
        self.chunk = config.chunk_size

    def prepare(
        self, prefix: Prefix, state: Tensor, num_steps: int, *, cache: str | Cache = PARTITIONED
    ) -> Pi0Denoiser:
        """Return the velocity field on a prefix; with ``state_once`` the state runs here."""
        return Pi0Denoiser(self, prefix, state, num_steps, cache=cache)


class Pi0Denoiser:
    """Velocity field of one call, see ``snapshot.Denoiser``.

    Behind the prefix lie the state's row and the actions' rows; the state sees no action.
    """

    def __init__(
        self, network: Pi0, prefix: Prefix, state: Tensor, num_steps: int, *, cache: str | Cache
    ) -> None:
        self._network, self._taus = network, flow.taus(num_steps)
        self._table = network.tokens.table(self._taus) if network.reuse.time_table else None
        self._state = network.state_in(state)[:, None].to(network.dtype)
        self._is_state_cached = network.reuse.state_once
        self._at = prefix.start(
            1 + network.chunk, is_aligned=is_aligned(network.reuse, cache, network.dtype)
        )
        if self._is_state_cached:
            self._cache_state(prefix)
        self._how = self._suffix(prefix, cache)

    def _cache_state(self, prefix: Prefix) -> None:
        network = self._network
        how = Pass(
            StaticCache(prefix.kv), self._at,
            network.positions(prefix.counts()[:, None], below=prefix.length + 1),
            mask=prefix.seen_by(1, None, self._at), is_last_kv_only=network.reuse.last_layer_kv,
        )  # fmt: skip
        network.expert_pass(self._state, how)

    def _suffix(self, prefix: Prefix, cache: str | Cache) -> Pass:
        network, tokens = self._network, 1 + self._network.chunk
        skip = int(self._is_state_cached)
        positions = prefix.counts()[:, None] + torch.arange(skip, tokens)
        among = torch.ones(tokens, tokens, dtype=torch.bool)
        among[0, 1:].fill_(value=False)
        all_seen = skip and prefix.valid is None
        mask = prefix.seen_by(tokens, None if all_seen else among, self._at)
        joined = suffix_cache(prefix, network.reuse, cache)
        return Pass(
            joined, self._at + skip,
            network.positions(positions, below=prefix.length + tokens),
            mask=None if mask is None else mask[:, skip:], watch=watch_of(joined),
            split=split_of(prefix, network, self._at) if skip else None,
        )  # fmt: skip

    def velocity(self, x: Tensor, k: int) -> Tensor:
        """Return the velocity of noisy actions ``x[batch, chunk, max_action_dim]`` at step k."""
        network = self._network
        added = None if self._table is None else self._table[k]
        block = network.tokens(x, self._taus[k], added).to(network.dtype)
        if not self._is_state_cached:
            block = torch.cat((self._state, block), 1)
        out = network.expert_norm(network.expert_pass(block, self._how))
        return network.velocity_out(out[:, -x.shape[1] :])
