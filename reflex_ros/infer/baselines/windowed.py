"""The prior methods in the ``windowed`` layout, as far as they apply to ``tiny``.

``vla_cache``: a frame is one token per camera, and frames see each other's pinned block only, so
the unit of reuse is the frame: where all of it is static, the block of the frame before is used
again and neither the image tower nor the prefix pass runs. Layers, ratio and the task's patches
have nothing to choose from. It errs only by what changed in the image, unlike in ``snapshot``.

``vl_cache``: pinned block and frames compete for the budget, as in ``vl_cache.BudgetCache``; one
choice for all heads of a layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from reflex_ros.infer import flow, rope
from reflex_ros.infer.attention import weigh
from reflex_ros.infer.baselines.budget import density, dropped_mass, kept_rows, layer_budgets
from reflex_ros.infer.baselines.choice import patch_cosines
from reflex_ros.infer.baselines.options import FrameOptions, VlOptions

if TYPE_CHECKING:
    from reflex_ros.infer.families.tiny import TinyPolicy
    from reflex_ros.infer.families.tiny_network import TinyNetwork

PATCHES_PER_SIDE = 16
"""As in the source: 14 of 224 pixels."""
Float64 = npt.NDArray[np.float64]


class FrameCache:
    """``vla_cache`` for frames of one camera stream. Not thread-safe.

    Args:
        policy: Loaded ``tiny``.
        options: Parameters.
    """

    def __init__(self, policy: TinyPolicy, options: FrameOptions) -> None:
        self._policy, self._options = policy, options
        self._before: dict[str, Tensor] | None = None
        self._block: Tensor | None = None
        self._pinned: Tensor | None = None
        self.age = 0

    def encode_frame(
        self, images: Mapping[str, npt.NDArray[np.uint8]], pinned: Tensor, out: Tensor
    ) -> bool:
        """Write the block of a frame, or that of the frame before; return whether it was reused.

        Args:
            images, pinned, out: See ``TinyPolicy.encode_frame``; another pinned block begins anew.
        """
        pixels = {n: torch.from_numpy(images[n]).permute(2, 0, 1)
                  for n in self._policy.spec.cameras}  # fmt: skip
        is_reused = self._is_static(pixels, pinned)
        self._before = pixels
        if is_reused:
            assert self._block is not None
            out.copy_(self._block)
            self.age += 1
            return True
        self._policy.encode_frame(images, pinned, out)
        self._block, self._pinned, self.age = out.clone(), pinned.clone(), 0
        return False

    def _is_static(self, pixels: Mapping[str, Tensor], pinned: Tensor) -> bool:
        options = self._options
        if self._before is None or self.age >= options.max_age:
            return False
        if self._pinned is None or not torch.equal(self._pinned, pinned):
            return False
        patch = next(iter(pixels.values())).shape[-1] // PATCHES_PER_SIDE
        cosines = torch.cat([patch_cosines(image, self._before[name], patch)
                             for name, image in pixels.items()])  # fmt: skip
        share = (cosines >= options.static_cosine).double().mean()
        return bool(share >= options.static_share)


class BudgetContext:
    """Pinned block and frames of one call with a budget; stands in for ``tiny``'s own context.

    Args:
        network: Supplies layout and rotary rates.
        pinned: ``[layers, 2, pinned_tokens, kv_heads, head_dim]``.
        frames: ``[frames, layers, 2, frame_tokens, kv_heads, head_dim]``.
        ages_steps: ``[frames]``, see ``tiny_network.Context``.
        options: Parameters.
    """

    def __init__(
        self, network: TinyNetwork, pinned: Tensor, *, frames: Tensor, ages_steps: Tensor,
        options: VlOptions,
    ) -> None:  # fmt: skip
        layout = network.config.layout
        layout.check_ages(len(frames), ages_steps)
        positions = torch.cat((layout.suffix_positions()[None],
                               layout.query_positions(ages_steps)))  # fmt: skip
        cos, sin = rope.phases(positions, network.rates, dtype=pinned.dtype)
        self._cos, self._sin = cos[:, :, None], sin[:, :, None]
        sliding = frames.permute(1, 2, 0, 3, 4, 5).flatten(2, 3)
        self._prefix = torch.cat((pinned, sliding), 2)
        tokens = layout.pinned_tokens, layout.frame_tokens
        self._part = torch.cat((torch.zeros(tokens[0], dtype=torch.long),
                                1 + torch.arange(len(frames)).repeat_interleave(tokens[1])))
        self._options = options
        self._weights: dict[int, Tensor] = {}
        self._kept: dict[int, Tensor] = {}
        self.masses: dict[int, float] = {}

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return the heads ``[1, tokens, heads, head_dim]`` of one layer's suffix tokens."""
        if layer in self._weights and not self._kept:
            self._choose()
        kept = self._kept.get(layer)
        rows = torch.arange(self._prefix.shape[2]) if kept is None else kept
        turned = rope.rotate(query, self._cos, self._sin)
        own = rope.rotate(key, self._cos[:1], self._sin[:1])
        weights = self._weigh(layer, turned, own, rows)
        if kept is None and layer not in self._weights:
            self._weights[layer] = weights[..., : len(rows)]
        elif kept is not None and self._options.is_audited:
            whole = self._weigh(layer, turned, own, torch.arange(self._prefix.shape[2]))
            self._note(layer, whole[..., : self._prefix.shape[2]])
        values = torch.cat((self._prefix[layer, 1, rows][None], value), 1)
        return weigh(weights.to(values.dtype), values).transpose(1, 2)

    def report(self) -> dict[str, float]:
        """Return kept rows, their bytes, and the largest dropped weight over all layers."""
        layers, rows = len(self._prefix), self._prefix.shape[2]
        kept = sum(len(self._kept.get(at, range(rows))) for at in range(layers))
        row_bytes = self._prefix[0, :, 0].numel() * self._prefix.element_size()
        return {
            'kept_ratio': kept / (layers * rows), 'kept_bytes': float(kept * row_bytes),
            'prefix_bytes': float(layers * rows * row_bytes),
            'dropped_mass': max(self.masses.values(), default=0.0),
        }

    def _weigh(self, layer: int, turned: Tensor, own: Tensor, rows: Tensor) -> Tensor:
        """Return the weights ``[1, heads, tokens, rows + tokens]``, each row at its own age."""
        keys, groups = self._prefix[layer, 0, rows], turned.shape[2] // own.shape[2]
        per_head, own = keys.repeat_interleave(groups, 1), own.repeat_interleave(groups, 2)
        scores = torch.cat((
            torch.einsum('kthd,khd->htk', turned[self._part[rows]], per_head),
            torch.einsum('thd,khd->htk', turned[0], own[0]),
        ), -1)  # fmt: skip
        wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
        return torch.softmax(wide * turned.shape[-1] ** -0.5, -1)[None]

    def _choose(self) -> None:
        options, slots = self._options, sorted(self._weights)
        budgets = layer_budgets(
            [density(self._weights[slot], options.threshold) for slot in slots], options)
        for slot, budget in zip(slots, budgets, strict=True):
            scores = self._weights[slot][0].mean(0).sum(0)
            self._kept[slot] = kept_rows(scores, budget, options.protect)
            self._note(slot, self._weights[slot])

    def _note(self, layer: int, weights: Tensor) -> None:
        mass = float(dropped_mass(weights, self._kept[layer]).max())
        self.masses[layer] = max(self.masses.get(layer, 0.0), mass)


class BudgetDenoiser:
    """Velocity field of one call of ``tiny`` with a budget, see ``snapshot.Denoiser``.

    Args:
        policy: Loaded ``tiny``.
        pinned, frames, ages_steps, state, num_steps: See ``TinyPolicy.denoise``.
        options: Parameters.
    """

    def __init__(
        self, policy: TinyPolicy, pinned: Tensor, frames: Sequence[Tensor], ages_steps: Float64, *,
        state: Float64, num_steps: int, options: VlOptions,
    ) -> None:  # fmt: skip
        network, dtype = policy.network, policy.dtype
        self._network = network
        self.context = BudgetContext(
            network, pinned.to(dtype), frames=torch.stack(list(frames)).to(dtype),
            ages_steps=torch.from_numpy(np.asarray(ages_steps, np.float64)), options=options,
        )  # fmt: skip
        near = torch.from_numpy(policy.scalings.state.normalise(state)).to(dtype)[None]
        times = torch.tensor(flow.taus(num_steps), dtype=torch.float64)
        self._gammas = network.gammas(times, near.expand(num_steps, -1))

    @torch.inference_mode()
    def velocity(self, x: Tensor, k: int) -> Tensor:
        """Return ``v[1, horizon, joints]`` at step ``k`` for noisy ``x``."""
        layers, last = self._gammas
        now = tuple((first[k : k + 1], second[k : k + 1]) for first, second in layers)
        return self._network.velocity(x, (now, last[k : k + 1]), self.context)
