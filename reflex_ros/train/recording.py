"""Rows of recorded episodes on their way to a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from reflex_ros.sim.experts.manipulation import yaw_of
from reflex_ros.sim.looks import Look

if TYPE_CHECKING:
    from reflex_ros.core.types import FloatArray
    from reflex_ros.sim.cameras import CameraRig
    from reflex_ros.sim.world import World

FIELDS = ('images', 'command', 'measured', 'segment', 'tick', 'scene', 'episode', 'intent',
          'look', 'usable')  # fmt: skip
"""Columns of a file; see ``dataset.Demonstrations``."""

TICK_NS = 20_000_000
FRAME_TICKS = 2
"""Control ticks between two frames: 40 ms."""

PATH_TICKS = 400
SEGMENT_TICKS = 320
"""Length of a stored path, and of the part that frames refer to; the rest is horizon."""

SURPRISE_TICKS = 40
"""Frames so shortly before something unforeseeable have labels that foresee it."""


@dataclass(slots=True)
class Recording:
    """Rows of finished episodes, and of one that is being recorded."""

    columns: dict[str, list[npt.NDArray[np.generic]]] = field(
        default_factory=lambda: {name: [] for name in FIELDS}
    )
    paths: list[npt.NDArray[np.float32]] = field(default_factory=list)

    def write(self, file: Path) -> None:
        """Write everything to ``file`` (.npz) by way of a temporary name."""
        arrays = {name: np.stack(rows) for name, rows in self.columns.items()}
        draft = file.with_suffix('.part.npz')
        np.savez(draft, paths=np.stack(self.paths), **arrays)  # type: ignore[arg-type]
        draft.rename(file)


@dataclass(slots=True)
class EpisodeRows:
    """Frames of one episode; nothing reaches the recording before ``finish``.

    Attributes:
        into: Receives the rows. rig: Renders. cameras: Names, in the order of the policy.
        seed: Number of the episode. intent: Number of what is done in it. look: Its colours.
    """

    into: Recording
    rig: CameraRig
    cameras: Sequence[str]
    seed: int
    intent: int
    look: Look
    rows: list[tuple[npt.NDArray[np.generic], ...]] = field(default_factory=list)
    ticks: list[int] = field(default_factory=list)

    def add(self, world: World, k: int, command: FloatArray, *, segment: int,
            tick: float) -> npt.NDArray[np.uint8]:  # fmt: skip
        """Record the frame of control tick ``k``, in which ``command`` float64[7] is in force.

        Returns:
            uint8[cameras, H, W, 3] its images.
        """
        snapshot, number = world.snapshot(), self.seed * 1000 + k
        images = np.stack([self.rig.render(snapshot, name, number) for name in self.cameras])
        measured = world.joint_state()[0].astype(np.float32)
        row = (images, np.float32(command), measured, np.int64(segment), np.float64(tick),
               scene_row(world), np.int64(self.seed), np.int64(self.intent),
               np.int64(self.look.number), np.bool_(True))  # fmt: skip
        self.rows.append(tuple(np.asarray(value) for value in row))
        self.ticks.append(k)
        return images

    def finish(self, paths: Sequence[npt.NDArray[np.float32]], surprises: Sequence[int], *,
               without: Sequence[int] = ()) -> None:  # fmt: skip
        """Hand over the episode.

        Args:
            paths: ``float32[PATH_TICKS, 7]`` each.
            surprises: Ticks at which something unforeseeable began.
            without: Ticks of frames that have no path.
        """
        at = np.array(self.ticks)
        usable = ~np.isin(at, without)
        for tick in surprises:
            usable &= (at > tick) | (at < tick - SURPRISE_TICKS)
        base = len(self.into.paths)
        for row, use in zip(self.rows, usable, strict=True):
            for name, value in zip(FIELDS, row, strict=True):
                shifted = value + base if name == 'segment' else value
                self.into.columns[name].append(np.bool_(use) if name == 'usable' else shifted)
        self.into.paths += paths


def scene_row(world: World) -> npt.NDArray[np.float32]:
    """Return float32[10]: ball x, y, z, cube x, y, z, yaw, handle x, y, z; m and rad."""
    objects = world.scene.objects()
    cube = objects['cube']
    return np.float32([*world.scene.target, *cube[:3], yaw_of(cube), *objects['handle'][:3]])


def cut(stream: Sequence[FloatArray]) -> list[npt.NDArray[np.float32]]:
    """Return the overlapping paths of a stream of commands float64[7], its last one held."""
    whole = np.array(stream, np.float32)
    index = np.arange(0, len(whole), SEGMENT_TICKS)[:, None] + np.arange(PATH_TICKS)
    return list(whole[np.minimum(index, len(whole) - 1)])
