"""Passes of the small policy as traced graphs, which run without Python's global lock.

A denoise call is about a thousand small operations. Run one by one from Python, each may wait for
the lock until another thread of the process (images, messages, the other stage) lets go of it; a
graph takes the lock once. The graph holds the very operations that were traced: results are equal
bit for bit, for every number of frames.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from reflex_ros.infer import flow
from reflex_ros.infer.cache import PARTITIONED
from reflex_ros.infer.families.tiny_network import Context, Gammas, TinyNetwork
from reflex_ros.infer.trace import trace


@dataclass(frozen=True, slots=True)
class Call:
    """What one denoise call depends on beside the noise.

    Attributes:
        condition: ``[1, state_dim]`` normalised state.
        pinned: ``[layers, 2, pinned_tokens, kv_heads, head_dim]``.
        frames: ``[frames, layers, 2, frame_tokens, kv_heads, head_dim]``.
        ages_steps: ``float64[frames]`` control steps.
    """

    condition: Tensor
    pinned: Tensor
    frames: Tensor
    ages_steps: Tensor


class DenoiseGraph:
    """All Euler steps of one call.

    Args:
        network: Weights; later changes of them are not seen.
        num_steps: Euler steps.
    """

    def __init__(self, network: TinyNetwork, num_steps: int) -> None:
        self.num_steps = num_steps

        def whole(noise: Tensor, *inputs: Tensor) -> Tensor:
            denoiser = prepare(network, Call(*inputs), num_steps)
            return flow.integrate(denoiser.velocity, noise, num_steps)

        self._graph = trace(whole, _example(network))

    def __call__(self, noise: Tensor, call: Call) -> Tensor:
        """Return the normalised actions ``[1, horizon, joints]``; inputs were checked before."""
        return self._graph(noise, call.condition, call.pinned, call.frames, call.ages_steps)


class FrameGraph:
    """Vision tower and prefix of one frame.

    Args:
        network: Weights; later changes of them are not seen.
    """

    def __init__(self, network: TinyNetwork) -> None:
        sizes, pinned = network.config, _example(network)[2]
        side, cameras = sizes.image_size, len(sizes.cameras)
        pixels = torch.zeros(cameras, side, side, 3, dtype=torch.uint8)
        self._graph = trace(partial(encode_frame, network), (pixels, pinned))

    def __call__(self, pixels: Tensor, pinned: Tensor) -> Tensor:
        """Return the block of one frame; arguments as ``encode_frame`` of this module."""
        return self._graph(pixels, pinned)


class TinyDenoiser:
    """Velocity field of one call, see ``snapshot.Denoiser``."""

    def __init__(self, network: TinyNetwork, gammas: Gammas, context: Context) -> None:
        self._network, self._gammas, self._context = network, gammas, context

    def velocity(self, x: Tensor, k: int) -> Tensor:
        """Return ``v[1, horizon, joints]`` at step ``k`` for noisy ``x``."""
        layers, last = self._gammas
        now = tuple((first[k : k + 1], second[k : k + 1]) for first, second in layers)
        return self._network.velocity(x, (now, last[k : k + 1]), self._context)


def prepare(
    network: TinyNetwork, call: Call, num_steps: int, *, cache: str = PARTITIONED
) -> TinyDenoiser:
    """Return the velocity field of one call.

    Raises:
        ConfigError: There is no such cache, or so many steps.
    """
    context = Context(
        network, call.pinned, frames=call.frames, ages_steps=call.ages_steps, cache=cache
    )
    times = torch.tensor(flow.taus(num_steps), dtype=torch.float64)
    gammas = network.gammas(times, call.condition.expand(num_steps, -1))
    return TinyDenoiser(network, gammas, context)


def encode_frame(network: TinyNetwork, pixels: Tensor, pinned: Tensor) -> Tensor:
    """Return the block ``[layers, 2, frame_tokens, kv_heads, head_dim]`` of one frame.

    Args:
        network: Weights.
        pixels: ``uint8[cameras, H, W, 3]`` in the order of the network's cameras.
        pinned: ``[layers, 2, pinned_tokens, kv_heads, head_dim]``.
    """
    images = pixels.permute(0, 3, 1, 2).to(pinned.dtype) / 127.5 - 1
    return network.encode_tokens(network.see(images)[None], pinned[None])[0]


def _example(network: TinyNetwork) -> tuple[Tensor, ...]:
    """Return the noise and the fields of ``Call`` for a full window."""
    sizes, dtype = network.config, network.camera.dtype
    layout, heads = sizes.layout, (sizes.kv_heads, sizes.head_dim)
    return (
        torch.zeros(1, sizes.horizon, sizes.action_dim, dtype=dtype),
        torch.zeros(1, sizes.state_dim, dtype=dtype),
        torch.zeros(sizes.layers, 2, layout.pinned_tokens, *heads, dtype=dtype),
        torch.zeros(sizes.window, sizes.layers, 2, layout.frame_tokens, *heads, dtype=dtype),
        torch.arange(sizes.window, dtype=torch.float64),
    )
