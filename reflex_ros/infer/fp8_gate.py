"""The gate of the 8-bit prefix: how far actions move, measured on the loaded weights.

Rounded keys and values are of no interest by themselves; what counts is where the arm goes. Both
prefixes are made of the same seeded scenes, the same noise is denoised on each, and the largest
difference of any row decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from reflex_ros.core.errors import ModelError
from reflex_ros.infer.flow import chunk_noise
from reflex_ros.infer.snapshot import denoise

if TYPE_CHECKING:
    from reflex_ros.infer.policy import SnapshotPolicy

SCENES = 4
TEXT = 'pick up the object'
BLOCK = 8
"""Pixels of a patch of one colour."""
METRES_OF_RAD = 0.1
"""A gripper may err by so many m where a joint may by one rad."""


@dataclass(frozen=True, slots=True)
class ActionError:
    """How far actions moved.

    Attributes:
        worst: Largest difference of each column, in the units of the arm.
        names: Of the columns, gripper last of each arm.
        scenes: How many were compared.
    """

    worst: npt.NDArray[np.float64]
    names: tuple[str, ...]
    scenes: int

    def excess(self, bound_rad: float) -> str:
        """Return what is beyond the bound, '' if nothing is."""
        allowed = [bound_rad * (METRES_OF_RAD if is_gripper(n) else 1) for n in self.names]
        found = [f'{name} {value:.4g} (allowed {most:.4g} {"m" if is_gripper(name) else "rad"})'
                 for name, value, most in zip(self.names, self.worst, allowed, strict=True)
                 if not value <= most]
        return ', '.join(found)

    def __str__(self) -> str:
        """Return the words for a log."""
        at = int(np.nanargmax(self.worst)) if np.isfinite(self.worst).any() else 0
        return (f'largest action error {self.worst[at]:.4g} at {self.names[at]}, '
                f'{self.scenes} scenes')


def is_gripper(name: str) -> bool:
    """Return whether a column is an opening in m."""
    return name.endswith('gripper')


def action_error(
    exact: SnapshotPolicy, rounded: SnapshotPolicy, *, names: Sequence[str],
    to_arm: Callable[[npt.NDArray[np.float32]], Any], scenes: int = SCENES,
) -> ActionError:  # fmt: skip
    """Return how far the actions of two policies of the same checkpoint are apart.

    Args:
        exact, rounded: The policies.
        names: Columns of what ``to_arm`` returns.
        to_arm: From columns of the checkpoint to the arm's, in rad and m.
        scenes: How many are compared.
    """
    worst = np.zeros(len(names))
    for seed in range(scenes):
        pair = [np.asarray(to_arm(actions_on(policy, seed)), np.float64)
                for policy in (exact, rounded)]
        worst = np.maximum(worst, np.abs(pair[0] - pair[1]).max(0))
    return ActionError(worst, tuple(names), scenes)


def require_small(error: ActionError, bound_rad: float) -> None:
    """Refuse an 8-bit prefix that moves the actions too far.

    Raises:
        ModelError: Names joints, errors and bounds.
    """
    if excess := error.excess(bound_rad):
        raise ModelError(
            f'fp8 prefix cannot be used: got action errors of {excess} in {error.scenes} scenes, '
            f'expected at most {bound_rad:g} rad (policy.fp8_max_error_rad). Set '
            'policy.prefix_dtype to auto.'
        )


def actions_on(policy: SnapshotPolicy, seed: int) -> npt.NDArray[np.float32]:
    """Return the physical actions ``[chunk, action_dim]`` of a scene."""
    config, processing = policy.config, policy.processing
    made = torch.Generator().manual_seed(seed)
    side = policy.network.sizes.image
    drawn = 2 * torch.rand(1, config.state_dim, generator=made) - 1
    raw = processing.state_normaliser.restore(drawn)
    views = {name: policy.view(_picture(side, made)) for name in policy.cameras}
    ids = processing.token_ids(TEXT, processing.normalised_state(raw)[0])
    prefix = policy.encode(views, [ids])
    noise = chunk_noise(seed, 0, shape=(1, config.chunk_size, config.max_action_dim))
    with torch.inference_mode(), policy.placed():
        denoiser = policy.prepare(prefix, processing.state(raw))
        start = torch.from_numpy(noise).to(policy.device, policy.wide)
        actions = denoise(denoiser, start, config.num_steps)
    return np.asarray(processing.actions(actions.cpu(), raw)[0].numpy())


def _picture(side: int, made: torch.Generator) -> Tensor:
    """Return ``uint8[1, 3, side, side]`` of coloured patches."""
    patches = torch.rand(1, 3, -(-side // BLOCK), -(-side // BLOCK), generator=made)
    whole = F.interpolate(patches, scale_factor=BLOCK, mode='nearest')[..., :side, :side]
    return (255 * whole).to(torch.uint8)
