"""Open-loop quality of a policy on demonstrations it was not trained on.

The flow loss says little (``objective.draw_tau``); what is watched is the distance of the tool
from where the expert would have it, and how much of the chunk the first denoise step knows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from reflex_ros.infer import flow
from reflex_ros.infer.families.tiny_network import TinyNetwork
from reflex_ros.train import objective, poses
from reflex_ros.train.objective import FlowBatch

ROWS = (0, 24, 49)


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Median distance of the tool from the expert's, and the first step's error.

    Attributes:
        tip_mm: One value per row of ``ROWS``. ``moving_tip_mm``: only where the expert's chunk
            moves the tool by more than 80 mm.
        first_step: Error of the actions read off at tau = 0.99, as a share of their spread.
        samples: Number of chunks.
    """

    tip_mm: tuple[float, ...]
    moving_tip_mm: tuple[float, ...]
    first_step: float
    samples: int

    def __str__(self) -> str:
        """Return one line."""
        tip = '/'.join(f'{value:.1f}' for value in self.tip_mm)
        moving = '/'.join(f'{value:.1f}' for value in self.moving_tip_mm)
        return f'tip {tip} mm, moving {moving} mm, first step {self.first_step:.3f}'


def tip_positions(joints_rad: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Return tool points ``float64[..., 3]`` (m) of joints ``[..., >= 6]`` by the DH table."""
    return poses.tool_poses(joints_rad)[0]


@torch.inference_mode()
def sample_actions(network: TinyNetwork, batch: FlowBatch, noise: Tensor) -> Tensor:
    """Return normalised chunks ``[B, horizon, 7]`` after ten steps from ``noise``."""

    def velocity(x: Tensor, k: int) -> Tensor:
        tau = torch.full((len(x),), flow.taus(10)[k], dtype=torch.float64, device=x.device)
        return objective.predict(network, batch, x, tau)

    return flow.integrate(velocity, noise, 10)


@torch.inference_mode()
def first_step_error(network: TinyNetwork, batch: FlowBatch, noise: Tensor) -> float:
    """Return the error of the actions read off at tau = 0.99, over the arm's joints."""
    tau = torch.full((len(noise),), 0.99, dtype=torch.float64, device=noise.device)
    noisy = 0.99 * noise + 0.01 * batch.actions
    read = noisy - 0.99 * objective.predict(network, batch, noisy, tau)
    error = (read - batch.actions)[..., :-1].square().mean().sqrt()
    return float(error / batch.actions[..., :-1].std())


def open_loop(
    positions: npt.NDArray[np.float64], wanted: npt.NDArray[np.float32], first_step: float
) -> OpenLoop:
    """Return the figures of chunks ``[B, horizon, 7]`` against the expert's."""
    rows = list(ROWS)
    tip, goal = tip_positions(positions[:, rows]), tip_positions(wanted[:, rows])
    error = 1e3 * np.linalg.norm(tip - goal, axis=-1)
    moving = np.linalg.norm(goal[:, -1] - goal[:, 0], axis=-1) > 0.08
    medians = [tuple(float(v) for v in np.median(part, 0)) for part in (error, error[moving])]
    return OpenLoop(medians[0], medians[1], first_step, len(error))
