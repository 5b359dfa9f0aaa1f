"""What disturbs a demonstration, so that the arm also visits states that no expert would see.

Noise on the command, pushes of a few centimetres, and a gripper that does the opposite for a
moment. The expert's own stream of commands stays clean: it is the path that labels lead back to.
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from reflex_ros.core.types import FloatArray

NOISE_RAD = (0.004, 0.012, 0.03)
"""Strength of the command noise; one is drawn per episode."""
NOISE_MEMORY = 0.9
NOISE_SHARE = 0.3

GAINS = MappingProxyType({
    'hover': 1.0, 'carry': 1.0, 'retreat': 1.0, 'above': 1.0,
    'descend': 0.4, 'lower': 0.4, 'pull': 0.3,
})  # fmt: skip
"""How much of it reaches the arm in a phase; none where fingers and object touch."""
GAIN_STEP = 0.3

PUSH_RATE, PUSH_RAD, PUSH_TICKS = 0.006, 0.07, (15, 35)
"""Chance per tick of a push, its size per joint and its length."""
GLITCH_RATE, GLITCH_TICKS, GLITCH_AT_START = 0.002, (8, 25), 0.3
"""Chance per tick of a gripper that does the opposite, its length, chance at the start."""
GLITCH_PHASES = frozenset({'hover', 'carry', 'above', 'descend'})
OPEN_M = 0.07


class CommandNoise:
    """Ornstein-Uhlenbeck noise of six joints.

    Args:
        rng: Source of every draw.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng, self._strength = rng, float(rng.choice(NOISE_RAD))
        self._noise = np.zeros(6)

    def step(self) -> FloatArray:
        """Return the offset of the next command, float64[6] rad."""
        fresh = self._rng.normal(0, self._strength, 6) * (1 - NOISE_MEMORY**2) ** 0.5
        self._noise = NOISE_MEMORY * self._noise + fresh
        return NOISE_SHARE * self._noise


class Disturbance:
    """Everything that disturbs one episode of a manipulation task.

    Args:
        rng: Source of every draw.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng, self._noise, self._gain = rng, CommandNoise(rng), 0.0
        self._push, self._pushed, self._push_ticks = np.zeros(6), 0, 0
        at_start = rng.random() < GLITCH_AT_START
        self._glitch_ticks = int(rng.integers(*GLITCH_TICKS)) if at_start else 0

    def apply(self, command: FloatArray, phase: str) -> tuple[FloatArray, bool]:
        """Return what is sent for ``command``, float64[7], and whether something new began."""
        began = self._begin(phase)
        self._gain += GAIN_STEP * (GAINS.get(phase, 0.0) - self._gain)
        sent = command.copy()
        sent[:6] += self._gain * (self._noise.step() + self._pushing())
        if self._glitch_ticks > 0:
            self._glitch_ticks -= 1
            sent[6] = OPEN_M - command[6]
        return sent, began

    def _begin(self, phase: str) -> bool:
        began = False
        if self._pushed >= self._push_ticks and self._rng.random() < PUSH_RATE:
            self._push = self._rng.normal(0, PUSH_RAD, 6)
            self._pushed, self._push_ticks = 0, int(self._rng.integers(*PUSH_TICKS))
            began = True
        if self._rng.random() < GLITCH_RATE and phase in GLITCH_PHASES:
            self._glitch_ticks = int(self._rng.integers(*GLITCH_TICKS))
            began = True
        return began

    def _pushing(self) -> FloatArray:
        if self._pushed >= self._push_ticks:
            return np.zeros(6)
        self._pushed += 1
        return np.asarray(self._push * np.sin(np.pi * self._pushed / self._push_ticks) ** 2)
