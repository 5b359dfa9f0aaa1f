"""Colours of the cube and of the ball: what demonstrations show, and what is held out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from reflex_ros.sim.cameras import CameraRig

Rgba = tuple[float, float, float, float]

COLOURS: Mapping[str, Rgba] = MappingProxyType({
    'blue': (0.1, 0.35, 0.9, 1.0),
    'pink': (0.95, 0.1, 0.75, 1.0),
    'red': (0.85, 0.1, 0.1, 1.0),
    'yellow': (0.9, 0.8, 0.1, 1.0),
    'purple': (0.45, 0.15, 0.75, 1.0),
    'cyan': (0.1, 0.8, 0.85, 1.0),
    'orange': (0.95, 0.5, 0.1, 1.0),
    'white': (0.95, 0.95, 0.95, 1.0),
})  # fmt: skip
"""By name; blue is the scene's cube and pink its ball."""

CUBE_SHARES = MappingProxyType({'blue': 0.55, 'red': 0.15, 'yellow': 0.15, 'purple': 0.15})
BALL_SHARES = MappingProxyType({'pink': 0.6, 'cyan': 0.2, 'orange': 0.2})
"""How often a demonstration shows each colour."""

UNSEEN_CUBES, UNSEEN_BALLS = ('cyan', 'orange'), ('purple', 'yellow')
"""Colours that no demonstration shows on that object."""


@dataclass(frozen=True, slots=True)
class Look:
    """Colours of one episode, names of ``COLOURS``."""

    cube: str = 'blue'
    ball: str = 'pink'

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Look:
        """Draw the colours of a demonstration."""
        cube = rng.choice(list(CUBE_SHARES), p=list(CUBE_SHARES.values()))
        ball = rng.choice(list(BALL_SHARES), p=list(BALL_SHARES.values()))
        return cls(str(cube), str(ball))

    @property
    def number(self) -> int:
        """The colours as one number, see ``of``."""
        names = list(COLOURS)
        return names.index(self.cube) * len(names) + names.index(self.ball)

    @classmethod
    def of(cls, number: int) -> Look:
        """Return the look of a ``number``."""
        cube, ball = divmod(number, len(COLOURS))
        return cls(list(COLOURS)[cube], list(COLOURS)[ball])

    def paint(self, rig: CameraRig) -> None:
        """Show the objects in these colours from now on."""
        rig.paint('cube', COLOURS[self.cube])
        rig.paint('target', COLOURS[self.ball])
