"""Demonstrations in memory, and the samples that are drawn from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reflex_ros.core.errors import ConfigError
from reflex_ros.sim.experts import follow
from reflex_ros.train import labels
from reflex_ros.train.recording import FIELDS, FRAME_TICKS

Ints = npt.NDArray[np.int64]
Float32 = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]

ARM_JOINTS = 6
DISTURBANCE_RAD = (0.01, 0.04, 0.12)
"""Spread of the noise on predicted states. Far beyond what prediction errs: a state that the image
already tells would be ignored, and a policy that ignores it drifts on its own predictions."""


@dataclass(frozen=True, slots=True)
class Demonstrations:
    """Recorded frames; one row per camera frame, episodes one after the other.

    Attributes:
        images: ``uint8[F, cameras, H, W, 3]``.
        command, measured: ``float32[F, 7]`` positions commanded and measured at the frame, rad, m.
        segment: ``int64[F]`` row of ``paths``.
        tick: ``float64[F]`` ticks since that path began.
        scene: ``float32[F, 10]`` of ``recording.scene_row``.
        episode: ``int64[F]``, unique.
        intent, look: ``int64[F]`` numbers of what is done and of the colours.
        usable: ``bool[F]`` whether its label foresees nothing that the frame cannot show.
        paths: ``float32[S, ticks, 7]`` what the command is led back to.
    """

    images: npt.NDArray[np.uint8]
    command: Float32
    measured: Float32
    segment: Ints
    tick: npt.NDArray[np.float64]
    scene: Float32
    episode: Ints
    intent: Ints
    look: Ints
    usable: Bools
    paths: Float32

    @classmethod
    def load(cls, files: Sequence[Path], *, with_images: bool = True) -> Demonstrations:
        """Return the demonstrations of all files, in order.

        Args:
            files: As ``demonstrations.generate`` returned them.
            with_images: False leaves ``images`` empty, which saves 12 kB a frame and camera.

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
            parts['images'] = [np.empty((0, 0, 0, 0, 3), np.uint8)]
        arrays = {name: np.concatenate(values) for name, values in parts.items()}
        return cls(**arrays, paths=np.concatenate(paths))  # type: ignore[arg-type]

    def take(self, rows: Ints) -> Demonstrations:
        """Return these frames only, without images."""
        names = FIELDS[1:]
        return Demonstrations(
            np.empty((0, 0, 0, 0, 3), np.uint8), **{n: getattr(self, n)[rows] for n in names},
            paths=self.paths)  # fmt: skip

    def history(self) -> Ints:
        """Return, per frame, how many earlier frames of its episode exist."""
        first = np.flatnonzero(np.diff(self.episode, prepend=self.episode[0] - 1))
        starts = np.repeat(first, np.diff(np.append(first, len(self.episode))))
        return np.arange(len(self.episode)) - starts


@dataclass(frozen=True, slots=True)
class View:
    """Every so many frames of one camera.

    Attributes:
        images: ``uint8[n, H, W, 3]``. rows: ``int64[n]`` rows of the demonstrations.
    """

    images: npt.NDArray[np.uint8]
    rows: Ints

    @classmethod
    def load(cls, files: Sequence[Path], camera: int, *, every: int = 1) -> View:
        """Read the images of one camera, counted in the order of the policy."""
        images, rows, first = [], [], 0
        for file in files:
            with np.load(file, allow_pickle=False) as data:
                stored = data['images']
            taken = np.arange(-first % every, len(stored), every)
            images.append(stored[taken, camera])
            rows.append(first + taken)
            first += len(stored)
        return cls(np.concatenate(images), np.concatenate(rows))


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
        shares: Part of the samples by intent; () draws every usable frame as often.
    """

    data: Demonstrations
    window: int = 4
    horizon: int = 50
    predicted_share: float = 0.5
    max_delay_ticks: int = 15
    shares: tuple[float, ...] = ()
    _pools: list[Ints] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        """Sort the usable frames by intent, once."""
        usable = np.flatnonzero(self.data.usable)
        if not self.shares:
            self._pools.append(usable)
        for intent in range(len(self.shares)):
            self._pools.append(usable[self.data.intent[usable] == intent])

    def draw(self, size: int, rng: np.random.Generator, *, delay: float | None = None,
             intent: int | None = None) -> Batch:  # fmt: skip
        """Return a random batch.

        Args:
            size: Number of samples. rng: Source of every draw.
            delay: Forces all samples to it (0 = measured), ticks.
            intent: Forces all samples to it, an index of ``shares``.

        Raises:
            ConfigError: No frame of an intent is usable.
        """
        shares = [1.0] if not self.shares or intent is not None else self.shares
        pools = self._pools if intent is None else [self._pools[intent]]
        if not all(len(pool) for pool in pools):
            raise ConfigError(
                f'samples cannot be drawn: got {[len(pool) for pool in pools]} usable frames, '
                'expected some of each kind. Generate more demonstrations.'
            )
        edges = np.round(np.cumsum([0.0, *shares]) / sum(shares) * size).astype(int)
        newest = np.concatenate([
            pool[rng.integers(0, len(pool), count)]
            for pool, count in zip(pools, np.diff(edges), strict=True)
        ])
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
        joints = slice(ARM_JOINTS)
        command, state = data.command[newest, joints].copy(), data.measured[newest].copy()
        late = np.flatnonzero(delays > 0)
        if len(late):
            rows = self.max_delay_ticks + 3
            ahead = labels.references_at(paths[late, :, joints], tick[late], rows=rows)
            expected = self._between(follow.roll(command[late], ahead), delays[late])
            spread = rng.choice(DISTURBANCE_RAD, (len(late), 1))
            expected = expected + rng.normal(0, 1, expected.shape) * spread
            command[late] = state[late, joints] = expected
        start = tick + delays + (delays > 0)
        references = labels.references_at(paths, start, rows=self.horizon + 1)
        actions = follow.roll(command, references[..., joints])
        # A predicted state is itself the command of row 0's instant.
        actions[late] = np.concatenate((command[late][:, None], actions[late][:, :-1]), 1)
        # The fingers open and close at once: nothing between two ticks.
        issued = np.rint(tick + delays + (delays == 0))
        opening = labels.references_at(paths[..., ARM_JOINTS:], issued, rows=self.horizon)
        state[late, ARM_JOINTS:] = opening[late, 0]
        return state, np.concatenate((actions, opening), -1)

    @staticmethod
    def _between(rolled: Float32, delays: npt.NDArray[np.float64]) -> Float32:
        """Return the command due ``delays`` ticks after the first row, linear between ticks."""
        below = np.floor(delays).astype(np.int64)
        share = (delays - below).astype(np.float32)[:, None]
        rows = np.arange(len(rolled))
        return rolled[rows, below] * (1 - share) + rolled[rows, below + 1] * share
