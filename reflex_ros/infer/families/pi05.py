"""Pi0.5: the state is text of the prefix, the flow time conditions every norm of the expert."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from reflex_ros.core.errors import ConfigError
from reflex_ros.infer import flow
from reflex_ros.infer.cache import PARTITIONED, Cache, watch_of
from reflex_ros.infer.compute import DEFAULT, Compute
from reflex_ros.infer.decoder import Modulation, Norm, Pass
from reflex_ros.infer.families.action_tokens import embed_taus
from reflex_ros.infer.families.paligemma import PaliGemma
from reflex_ros.infer.snapshot import Prefix, is_aligned, split_of, suffix_cache
from reflex_ros.infer.weights import Weights

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reflex_ros.infer.checkpoint.config import PretrainedConfig
    from reflex_ros.infer.checkpoint.sizes import Sizes
    from reflex_ros.infer.reuse import Reuse


class Pi05(PaliGemma):
    """Network of a Pi0.5 checkpoint, see ``snapshot.SnapshotNetwork``.

    Args:
        tensors, sizes, reuse, compute: See ``PaliGemma``.
        config: Configuration of the checkpoint.
    """

    state_rows = 0
    is_state_in_prefix = False

    def __init__(
        self, tensors: Mapping[str, Tensor], sizes: Sizes, reuse: Reuse, config: PretrainedConfig,
        compute: Compute = DEFAULT,
    ) -> None:  # fmt: skip
        super().__init__(tensors, sizes, reuse, compute)
        weights = Weights(tensors)
        self.actions_in = weights.linear('action_in_proj')
        self.velocity_out = weights.linear('action_out_proj')
        self.chunk, self._config = config.chunk_size, config
        self.trained_delay = config.trained_delay
        self._time = weights.linear('time_mlp_in'), weights.linear('time_mlp_out')
        self._tables: dict[tuple[float, ...], tuple[Tensor, ...]] = {}

    @cached_property
    def _norms(self) -> Sequence[Norm]:
        return (*(norm for layer in self.expert for norm in layer.norms), self.expert_norm)

    def modulation_table(self, taus: tuple[float, ...]) -> tuple[Tensor, ...]:
        """Return ``[steps, 3 * width]`` for each norm: all that the flow time does, ever."""
        if taus not in self._tables:
            self._tables[taus] = self.condition(taus)
        return self._tables[taus]

    def condition(self, taus: Sequence[float]) -> tuple[Tensor, ...]:
        """Return ``[len(taus), 3 * width]`` for each norm of the expert, in order."""
        x = embed_taus(taus, self._time[0].weight.shape[1], self._config)
        for linear in self._time:
            x = F.silu(linear(x))
        return tuple(norm.dense(x) for norm in self._norms if norm.dense is not None)

    def prepare(
        self, prefix: Prefix, state: Tensor, num_steps: int, *, cache: str | Cache = PARTITIONED
    ) -> Pi05Denoiser:
        """Return the velocity field on a prefix; the state is in the prefix's text already."""
        return Pi05Denoiser(self, prefix, num_steps, cache=cache)


class Pi05Denoiser:
    """Velocity field of one call, see ``snapshot.Denoiser``.

    A checkpoint that was trained for it takes its first rows as committed: clean actions, at flow
    time 0, while the others are still noise (``commit``).
    """

    def __init__(
        self, network: Pi05, prefix: Prefix, num_steps: int, *, cache: str | Cache
    ) -> None:
        self._network, self._taus = network, flow.taus(num_steps)
        self._clean: tuple[Tensor, ...] | None = None
        self._committed = 0
        positions = prefix.counts()[:, None] + torch.arange(network.chunk)
        joined = suffix_cache(prefix, network.reuse, cache)
        aligned = is_aligned(network.reuse, cache, network.dtype)
        at = prefix.start(network.chunk, is_aligned=aligned)
        self._how = Pass(
            joined, at, network.positions(positions, below=prefix.length + network.chunk),
            mask=prefix.seen_by(network.chunk, None, at), watch=watch_of(joined),
            split=split_of(prefix, network, at),
        )  # fmt: skip

    def commit(self, rows: int) -> None:
        """Give the first ``rows`` rows the flow time 0 from now on.

        Raises:
            ConfigError: The checkpoint was not trained for so many.
        """
        most = self._network.trained_delay
        if not 0 <= rows <= most:
            raise ConfigError(
                f'rows cannot be committed: got {rows}, expected 0 to {most} (rtc_training_max_'
                'delay of the checkpoint). Use guided inpainting instead.'
            )
        self._clean = self._network.condition([0.0]) if rows else None
        self._committed = rows

    def velocity(self, x: Tensor, k: int) -> Tensor:
        """Return the velocity of noisy actions ``x[batch, chunk, max_action_dim]`` at step k."""
        network = self._network
        *layers, last = self._modulations(k)
        block = network.actions_in(x).to(network.dtype)
        out = network.expert_norm(network.expert_pass(block, self._how, layers), last)
        return network.velocity_out(out)

    def _modulations(self, k: int) -> list[Modulation]:
        if self._network.reuse.time_table:
            now = [rows[k : k + 1] for rows in self._network.modulation_table(self._taus)]
        else:
            now = list(self._network.condition([self._taus[k]]))
        if self._clean is None:
            return [Modulation.of(rows) for rows in now]
        chunk, clean = self._network.chunk, self._committed
        return [
            Modulation.of(torch.cat((c.expand(clean, -1), n.expand(chunk - clean, -1)))[None])
            for c, n in zip(self._clean, now, strict=True)
        ]
