"""Real-time chunking: a new chunk that continues the running one.

While a chunk is being computed the robot executes the rows of the one before. These *frozen* rows
cannot be changed any more, so the velocity is steered until the new chunk repeats them, strongly
at first and fading out behind them (guided inpainting). Everything happens in the network's own
normalised space at its padded width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from reflex_ros.core.errors import ConfigError
from reflex_ros.infer import flow

Schedule = Literal['exp', 'linear', 'ones', 'zeros']
Jacobian = Literal['identity', 'exact']
SCHEDULES: tuple[Schedule, ...] = ('exp', 'linear', 'ones', 'zeros')


@dataclass(frozen=True, slots=True)
class Guidance:
    """What a chunk is steered to.

    Attributes:
        target: ``[chunk, columns]`` normalised; rows behind the old chunk's end repeat its last
            row, never zeros: zero is a position like any other. Columns of the network beyond
            these (its padding) are left alone.
        weights: ``[chunk]`` in 0..1, see ``row_weights``.
        max_weight: Bound of the gain; equal to the number of Euler steps it makes the first step
            land exactly on the target.
    """

    target: Tensor
    weights: Tensor
    max_weight: float


class CommittingDenoiser(Protocol):
    """Velocity field of a checkpoint that takes its first rows as committed."""

    def velocity(self, x: Tensor, k: int) -> Tensor:
        """Return the velocity at step ``k``."""

    def commit(self, rows: int) -> None:
        """Give the first rows the flow time 0."""


def denoise_committed(
    denoiser: CommittingDenoiser, noise: Tensor, num_steps: int, rows: Tensor
) -> Tensor:
    """Return actions whose first rows are given, as a checkpoint trained for it makes them.

    Args:
        denoiser: Velocity field of this call.
        noise: ``[batch, chunk, max_action_dim]``.
        num_steps: Euler steps that the field was prepared for.
        rows: ``[committed, columns]`` normalised; columns of padding are zero, as in training.
    """
    count = len(rows)
    given = F.pad(rows.to(noise), (0, noise.shape[-1] - rows.shape[-1]))
    denoiser.commit(count)

    def put(x: Tensor) -> Tensor:
        return torch.cat((given.expand(len(x), -1, -1), x[:, count:]), 1)

    free = flow.integrate(lambda x, k: denoiser.velocity(put(x), k), noise, num_steps)
    return put(free)


def row_weights(frozen: int, soft_end: int, rows: int, *, schedule: Schedule = 'exp') -> Tensor:
    """Return how much each row is held to the old chunk, ``float64[rows]``.

    Args:
        frozen: Rows that will have been executed before the new chunk can take over: weight 1.
        soft_end: First row that is free: weight 0. Between them the weight falls.
        rows: Rows of the chunk.
        schedule: How it falls; ``zeros`` drops at once, ``ones`` does not fall.

    Raises:
        ConfigError: Not ``0 <= frozen <= soft_end <= rows``, or an unknown schedule.
    """
    if not 0 <= frozen <= soft_end <= rows:
        raise ConfigError(
            f'guidance cannot be used: got {frozen} frozen rows and a soft end of {soft_end}, '
            f'expected 0 <= frozen <= soft end <= {rows} rows. Execute fewer rows, or use a '
            'longer chunk.'
        )
    if schedule not in SCHEDULES:
        raise ConfigError(
            f'guidance cannot be used: got schedule {schedule!r}, expected one of '
            f'{", ".join(SCHEDULES)}. Correct it.'
        )
    index = torch.arange(rows, dtype=torch.float64)
    share = ((soft_end - index) / (soft_end - frozen + 1)).clamp(0, 1)
    falling = {
        'exp': share * torch.expm1(share) / math.expm1(1.0),
        'linear': share,
        'ones': torch.ones_like(share),
        'zeros': torch.zeros_like(share),
    }[schedule]
    weights = torch.where(index < frozen, torch.ones_like(share), falling)
    return torch.where(index < soft_end, weights, torch.zeros_like(share))


def gain(tau: float, max_weight: float) -> float:
    """Return the weight of the correction at flow time ``tau`` (1 = noise), at most the bound."""
    if tau <= 0.0 or tau >= 1.0:
        return max_weight
    return min(max_weight, ((1 - tau) ** 2 + tau**2) / (tau * (1 - tau)))


def steer(velocity: Tensor, x: Tensor, tau: float, guidance: Guidance) -> Tensor:
    """Return the velocity that leads towards the target, with the identity as Jacobian.

    Args:
        velocity: ``[batch, chunk, dim]`` of the network at ``x`` and ``tau``.
        x: Noisy actions, same shape.
        tau: Flow time.
        guidance: Target and weights.
    """
    columns = guidance.target.shape[-1]
    clean = (x - tau * velocity)[..., :columns]
    error = (guidance.target.to(x) - clean) * guidance.weights.to(x)[:, None]
    padded = F.pad(error, (0, x.shape[-1] - columns))
    return velocity - gain(tau, guidance.max_weight) * padded


def hold_last(rows: Tensor, count: int) -> Tensor:
    """Return ``count`` rows: the given ones, then the last one again and again.

    Raises:
        ConfigError: There is no row.
    """
    if not len(rows):
        raise ConfigError(
            'guidance cannot be used: got a plan without rows, expected at least one. '
            'Start a chunk without guidance.'
        )
    padding = rows[-1:].expand(max(0, count - len(rows)), -1)
    return torch.cat((rows, padding))[:count]
