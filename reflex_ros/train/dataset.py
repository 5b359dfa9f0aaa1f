"""Demonstrations in memory, and the samples that are drawn from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reflex_ros.core.errors import ConfigError
from reflex_ros.sim.experts import follow
from reflex_ros.train import labels

Ints = npt.NDArray[np.int64]
Float32 = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]

ARM_JOINTS = 6
FRAME_TICKS = 2
"""Control ticks between two frames: 40 ms."""
OPEN_GRIPPER_M = 0.07
DISTURBANCE_RAD = (0.01, 0.04, 0.12)
"""Spread of the noise on predicted states. Far beyond what prediction errs: a state that the image
already tells would be ignored, and a policy that ignores it drifts on its own predictions."""
FIELDS = ('images', 'command', 'measured', 'segment', 'tick', 'target', 'episode')


@dataclass(frozen=True, slots=True)
class Demonstrations:
    """Recorded frames; one row per camera frame, episodes one after the other.

    Attributes:
        images: ``uint8[F, H, W, 3]``.
        command, measured: ``float32[F, 6]`` joints commanded and measured at the frame, rad.
        segment: ``int64[F]`` row of ``paths``.
        tick: ``float64[F]`` ticks since that segment began.
        target: ``float32[F, 3]`` target position, m.
        episode: ``int64[F]``, unique.
        paths: ``float32[S, ticks, 6]`` reference joints of every segment, without later jumps.
    """

    images: npt.NDArray[np.uint8]
    command: Float32
    measured: Float32
    segment: Ints
    tick: npt.NDArray[np.float64]
    target: Float32
    episode: Ints
    paths: Float32

    @classmethod
    def load(cls, files: Sequence[Path], *, with_images: bool = True) -> Demonstrations:
        """Return the demonstrations of all files, in order.

        Args:
            files: As ``demonstrations.generate`` returned them.
            with_images: False leaves ``images`` empty, which saves 12 kB a frame.

        Raises:
            ConfigError: No file was given.
        """
        if not files:
            raise ConfigError(
                'demonstrations cannot be read: got no file, expected at least one .npz. '
                'Generate demonstrations first.'
            )
        parts: dict[str, list[npt.NDArray[np.generic]]] = {name: [] for name in FIELDS}
        paths: list[Float32] = []
        for file in files:
            with np.load(file, allow_pickle=False) as data:
                shift = sum(len(p) for p in paths)
                for name in FIELDS[0 if with_images else 1 :]:
                    parts[name].append(data[name] + shift if name == 'segment' else data[name])
                paths.append(data['paths'])
        if not with_images:
            parts['images'] = [np.empty((0, 0, 0, 3), np.uint8)]
        arrays = {name: np.concatenate(values) for name, values in parts.items()}
        return cls(**arrays, paths=np.concatenate(paths))  # type: ignore[arg-type]

    def history(self) -> Ints:
        """Return, per frame, how many earlier frames of its episode exist."""
        first = np.flatnonzero(np.diff(self.episode, prepend=self.episode[0] - 1))
        starts = np.repeat(first, np.diff(np.append(first, len(self.episode))))
        return np.arange(len(self.episode)) - starts


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples as the network sees them, positions still in rad and m.

    Attributes:
        frames: ``int64[B, N]`` rows of the demonstrations, oldest first, newest last.
        present: ``bool[B, N]`` whether a frame is inside the window.
        ages: ``float64[B, N]`` control steps from each frame to the instant of row 0.
        state: ``float32[B, 7]``. ``actions``: ``float32[B, horizon, 7]`` absolute positions.
    """

    frames: Ints
    present: Bools
    ages: npt.NDArray[np.float64]
    state: Float32
    actions: Float32


@dataclass(frozen=True, slots=True)
class Sampler:
    """Draws samples of both kinds that the policy meets.

    *Measured*: state and row 0 at the newest frame's stamp. *Predicted*: state is the command
    expected ``d`` ticks after it, and row 0 belongs to that instant, so every frame is ``d``
    older. The predicted state is disturbed and the label is rolled from where it then is.

    Attributes:
        data: Demonstrations. ``window``: most frames. ``horizon``: rows of a chunk.
        predicted_share: Share of predicted samples.
        max_delay_ticks: Largest ``d``.
    """

    data: Demonstrations
    window: int = 4
    horizon: int = 50
    predicted_share: float = 0.5
    max_delay_ticks: int = 15

    def draw(self, size: int, rng: np.random.Generator, *, delay: float | None = None) -> Batch:
        """Return a random batch; ``delay`` forces all samples to it (0 = measured), ticks."""
        newest = rng.integers(0, len(self.data.episode), size)
        return self.at(newest, rng, delay=delay)

    def at(self, newest: Ints, rng: np.random.Generator, *, delay: float | None = None) -> Batch:
        """Return the samples whose newest frames are ``newest``."""
        frames, present = self._windows(newest, rng)
        delays = self._delays(len(newest), rng, delay)
        state, actions = self._labels(newest, delays, rng)
        ages = FRAME_TICKS * (newest[:, None] - frames) + delays[:, None]
        return Batch(frames, present, ages.astype(np.float64), state, actions)

    def _windows(self, newest: Ints, rng: np.random.Generator) -> tuple[Ints, Bools]:
        size = len(newest)
        gaps = 1 + (rng.random((size, self.window)) < 0.05)
        gaps[:, -1] = 0
        behind = np.cumsum(gaps[:, ::-1], 1)[:, ::-1]
        partly = rng.integers(1, self.window + 1, size)
        wanted = np.where(rng.random(size) < 0.7, self.window, partly)
        history = self.data.history()[newest]
        rank = np.arange(self.window)[::-1]
        present = (rank < wanted[:, None]) & (behind <= history[:, None])
        return np.where(present, newest[:, None] - behind, newest[:, None]), present

    def _delays(
        self, size: int, rng: np.random.Generator, delay: float | None
    ) -> npt.NDArray[np.float64]:
        if delay is not None:
            return np.full(size, float(delay))
        predicted = rng.random(size) < self.predicted_share
        return np.where(predicted, rng.uniform(0, self.max_delay_ticks, size), 0.0)

    def _labels(
        self, newest: Ints, delays: npt.NDArray[np.float64], rng: np.random.Generator
    ) -> tuple[Float32, Float32]:
        data = self.data
        paths, tick = data.paths[data.segment[newest]], data.tick[newest].astype(np.float64)
        command, state = data.command[newest].copy(), data.measured[newest].copy()
        late = np.flatnonzero(delays > 0)
        if len(late):
            ahead = labels.references_at(paths[late], tick[late], rows=self.max_delay_ticks + 3)
            expected = self._between(follow.roll(command[late], ahead), delays[late])
            spread = rng.choice(DISTURBANCE_RAD, (len(late), 1))
            expected = expected + rng.normal(0, 1, expected.shape) * spread
            command[late] = state[late] = expected
        start = tick + delays + (delays > 0)
        references = labels.references_at(paths, start, rows=self.horizon + 1)
        actions = follow.roll(command, references)
        # A predicted state is itself the command of row 0's instant.
        actions[late] = np.concatenate((command[late][:, None], actions[late][:, :-1]), 1)
        return with_gripper(state), with_gripper(actions)

    @staticmethod
    def _between(rolled: Float32, delays: npt.NDArray[np.float64]) -> Float32:
        """Return the command due ``delays`` ticks after the first row, linear between ticks."""
        below = np.floor(delays).astype(np.int64)
        share = (delays - below).astype(np.float32)[:, None]
        rows = np.arange(len(rolled))
        return rolled[rows, below] * (1 - share) + rolled[rows, below + 1] * share


def with_gripper(joints: Float32) -> Float32:
    """Return ``[..., 7]``: the arm's joints and an open gripper."""
    opening = np.full((*joints.shape[:-1], 1), OPEN_GRIPPER_M, np.float32)
    return np.concatenate((joints, opening), -1)
