"""The ``windowed`` layout: ``[pinned instruction | FIFO of N frames | dynamic suffix]``.

Block-causal: frames see the pinned block and themselves, the suffix sees everything. A frame is
encoded once, at the same local positions whatever its turn, so evicting another frame cannot
change it. Its age enters where it is used, by moving the suffix queries of that partition.

Positions count control steps on the suffix side: row ``r`` lies ``r`` behind the frames' local
block, and a frame of age ``a`` steps is met by queries moved by ``+a``, so that the distance of
row and frame is the time between them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from reflex_ros.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class WindowedLayout:
    """Sizes of the three blocks.

    Attributes:
        pinned_tokens: Tokens of the instruction block.
        frame_tokens: Tokens of one frame (all cameras).
        suffix_tokens: Action tokens.
        rows_per_token: Control steps that one action token covers.
        window: Largest number of frames.
    """

    pinned_tokens: int
    frame_tokens: int
    suffix_tokens: int
    rows_per_token: int
    window: int

    def pinned_positions(self) -> Tensor:
        """Return ``float64[pinned_tokens]``: 0, 1, ..."""
        return torch.arange(self.pinned_tokens, dtype=torch.float64)

    def frame_positions(self) -> Tensor:
        """Return the local positions that every frame is encoded at, ``float64[frame_tokens]``."""
        return self.pinned_tokens + torch.arange(self.frame_tokens, dtype=torch.float64)

    def suffix_positions(self) -> Tensor:
        """Return ``float64[suffix_tokens]``, one rows_per_token apart, behind the frame block."""
        steps = torch.arange(self.suffix_tokens, dtype=torch.float64) * self.rows_per_token
        return self.pinned_tokens + self.frame_tokens + steps

    def query_positions(self, ages_steps: Tensor) -> Tensor:
        """Return ``float64[..., frames, suffix_tokens]``: suffix positions moved by each age.

        Args:
            ages_steps: ``[..., frames]`` time from a frame's stamp to the instant of row 0, in
                control steps; fractions and negative values (a newer frame) are allowed.
        """
        return self.suffix_positions() + ages_steps.to(torch.float64)[..., None]

    def check_ages(self, frames: int, ages_steps: Tensor) -> None:
        """Refuse an empty or overfull window and ages that do not match it.

        Raises:
            ConfigError: Wrong number of frames or ages, or an age that is not finite.
        """
        if not 1 <= frames <= self.window:
            raise ConfigError(
                f'window cannot be used: got {frames} frames, expected 1..{self.window}. '
                'Wait for the first frame, evict the oldest.'
            )
        if ages_steps.shape != (frames,) or not bool(torch.isfinite(ages_steps).all()):
            raise ConfigError(
                f'ages cannot be used: got {ages_steps.tolist()}, expected {frames} finite values '
                '(control steps). Give one age for each frame, oldest first.'
            )
