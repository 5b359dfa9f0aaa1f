"""A loaded checkpoint of the ``snapshot`` layout: from pixels, state and text to actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from reflex_ros.core.errors import ConfigError
from reflex_ros.infer import plan
from reflex_ros.infer.cache import PARTITIONED, Cache
from reflex_ros.infer.checkpoint.pretrained import Pretrained, open_pretrained
from reflex_ros.infer.compute import DEFAULT, Compute
from reflex_ros.infer.device import placed
from reflex_ros.infer.families.registry import build_network
from reflex_ros.infer.reuse import Reuse
from reflex_ros.infer.snapshot import room
from reflex_ros.infer.tokens import compact_tokens, padded_tokens, reference_padding

if TYPE_CHECKING:
    from reflex_ros.infer.snapshot import Denoiser, Prefix, SnapshotNetwork

REUSE = Reuse()


class SnapshotPolicy:
    """Network and processing of one checkpoint. Not thread-safe.

    Args:
        pretrained: Checked content of a folder.
        dtype: Type that the language model computes in; None = the checkpoint's.
        reuse, compute: Switches.
        device: ``cpu`` or ``cuda``: where the weights are and everything is computed.
    """

    def __init__(
        self, pretrained: Pretrained, *, dtype: str | None = None, reuse: Reuse = REUSE,
        device: str = 'cpu', compute: Compute = DEFAULT,
    ) -> None:  # fmt: skip
        self.pretrained, self.config = pretrained, pretrained.config
        self.processing, self.reuse, self.compute = pretrained.processing, reuse, compute
        self.dtype = plan.dtype_named(dtype or pretrained.config.dtype or 'float32')
        self.device = device
        weights = plan.CastWeights(pretrained.weights, self.dtype, device=device)
        with self.placed():
            self.network: SnapshotNetwork = build_network(
                weights, pretrained.sizes, reuse, pretrained.config, compute
            )

    @classmethod
    def load(
        cls, folder: str | Path, *, dtype: str | None = None, reuse: Reuse = REUSE
    ) -> SnapshotPolicy:
        """Return the policy of a checkpoint folder; everything in it is checked.

        Raises:
            ModelError: The folder is incomplete, damaged or of another network.
            ConfigError: There is no such dtype.
        """
        return cls(open_pretrained(Path(folder)), dtype=dtype, reuse=reuse)

    @property
    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras, in the checkpoint's order."""
        return self.config.cameras

    def placed(self) -> AbstractContextManager[object]:
        """Let tensors that are made inside lie where the weights are."""
        return placed(self.device)

    @torch.inference_mode()
    def view(self, image: Tensor) -> Tensor:
        """Return the tokens ``[batch, camera_tokens, width]`` of one camera.

        Args:
            image: ``uint8[batch, 3, height, width]`` RGB.

        Raises:
            ConfigError: The checkpoint does not resize, and the image has another size.
        """
        pixels = self.pixels(image)
        with self.placed():
            return self.network.embed_camera(pixels)

    @torch.inference_mode()
    def pixels(self, image: Tensor) -> Tensor:
        """Return one camera as the image tower wants it, ``[batch, 3, side, side]``.

        Args:
            image: As for ``view``.

        Raises:
            ConfigError: See ``view``.
        """
        pixels = self.processing.image(image.to(self.device))
        side = self.pretrained.sizes.image
        if tuple(pixels.shape[-2:]) != (side, side):
            raise ConfigError(
                f'image cannot be used: got {pixels.shape[-1]} x {pixels.shape[-2]}, expected '
                f'{side} x {side} (pixels), since the checkpoint does not resize images '
                '(resize_imgs_with_padding). Resize it.'
            )
        return self._wide(pixels)

    @torch.inference_mode()
    def encode(
        self,
        views: Mapping[str, Tensor],
        ids: Sequence[Sequence[int]],
        state: Tensor | None = None,
        *,
        out: Tensor | None = None,
    ) -> Prefix:
        """Return the prefix of views and text.

        Args:
            views: Tokens of the cameras that are present, by name.
            ids: Token ids of each row of the batch; one row if ``reuse.drop_masked``.
            state: Normalised state, needed where it is part of the prefix.
            out: Where keys and values go, see ``SnapshotNetwork.new_cache``; None = a new one.

        Raises:
            ConfigError: No camera, an unknown one, or several rows without padding.
        """
        ordered = self._ordered(views)
        with self.placed():
            tokens, valid = self._tokens(ordered, ids)
            rows = tokens.shape[1] + room(self.network.state_rows, self.config.chunk_size)
            kv = self.network.new_cache(len(ids), rows) if out is None else out
            return self.network.encode(tokens, valid, kv, state)

    @torch.inference_mode()
    def prepare(
        self, prefix: Prefix, state: Tensor, num_steps: int | None = None, *,
        cache: str | Cache = PARTITIONED,
    ) -> Denoiser:  # fmt: skip
        """Return the velocity field of one call.

        Args:
            prefix: Of ``encode``; state and actions are written behind it.
            state: ``float32[batch, max_state_dim]`` normalised.
            num_steps: Euler steps, None = the checkpoint's.
            cache: ``partitioned``, or ``naive`` for comparison, see ``cache.NaiveCache``; or a
                cache for this prefix.

        Raises:
            ConfigError: There is no such cache.
        """
        steps = num_steps or self.config.num_steps
        with self.placed():
            return self.network.prepare(prefix, self._wide(state), steps, cache=cache)

    @property
    def wide(self) -> torch.dtype:
        """Type of what is not kept small: pixels, state, noise and actions."""
        return torch.float64 if self.dtype is torch.float64 else torch.float32

    def _wide(self, x: Tensor) -> Tensor:
        return x.to(self.device, self.wide)

    def _tokens(
        self, views: Mapping[str, Tensor], ids: Sequence[Sequence[int]]
    ) -> tuple[Tensor, Tensor | None]:
        if self.reuse.drop_masked:
            if len(ids) != 1:
                raise ConfigError(
                    f'prefix cannot be encoded: got {len(ids)} rows, expected 1 without padding. '
                    'Encode them one by one.'
                )
            return compact_tokens(self.network, views, ids[0]), None
        padding = reference_padding(self.config, len(views), ids)
        return padded_tokens(self.network, views, ids, padding=padding)

    def _ordered(self, views: Mapping[str, Tensor]) -> dict[str, Tensor]:
        known = [name for name in self.cameras if name in views]
        if not known or len(known) != len(views):
            raise ConfigError(
                f'prefix cannot be encoded, cameras: got {sorted(views)}, expected some of '
                f'{list(self.cameras)}. Name them as the checkpoint does.'
            )
        return {name: views[name] for name in known}
