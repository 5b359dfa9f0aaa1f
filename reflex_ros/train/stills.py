"""Still scenes: poses of the demonstrations with the objects somewhere else.

Two frames of one film show nearly the same; a still costs as little as a frame and shows places
that no other image does. Only the vision towers learn from them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from reflex_ros.sim.cameras import CameraRig
from reflex_ros.sim.kinematics import LOWER, UPPER
from reflex_ros.sim.looks import Look
from reflex_ros.sim.mjcf import GRIPPER_RANGE_M
from reflex_ros.sim.scene import CUBE_REST_M, HIDDEN
from reflex_ros.sim.tasks.drawer import CABINET, SPREAD_M
from reflex_ros.sim.tasks.pick_place import BIN
from reflex_ros.sim.tasks.target import AMPLITUDE, CENTRE
from reflex_ros.sim.world import World
from reflex_ros.train.dataset import Demonstrations
from reflex_ros.train.poses import tool_poses
from reflex_ros.train.recording import PATH_TICKS, Recording, scene_row

if TYPE_CHECKING:
    from reflex_ros.core.types import FloatArray

FILE_STILLS = 2000
POSE_NOISE_RAD = 0.05
NEAR_M = 0.035
"""Spread of objects that are put near the tool."""
HELD, NEAR, IN_BIN, BALL_SHOWN = 0.12, 0.45, 0.08, 0.5
"""Shares of stills: cube between the fingers, cube near the tool, cube in the bin; ball."""


@dataclass(frozen=True, slots=True)
class Stills:
    """Still scenes that go to one file.

    Attributes:
        cameras: Names, in the order of the policy. seed, count: Seed and number of the scenes.
        file: Where they go. poses: Demonstrations whose poses are shown.
        colours: Whether objects are shown in several colours.
    """

    cameras: tuple[str, ...]
    seed: int
    count: int
    file: Path
    poses: tuple[Path, ...]
    colours: bool = True

    def record(self) -> int:
        """Write the file; returns 0, since none can fail."""
        rng = np.random.default_rng((self.seed, 5))
        source = self.poses[int(rng.integers(len(self.poses)))]
        known = Demonstrations.load([source], with_images=False).measured
        world = World('pick_place', seed=0)
        rig = CameraRig(world.model_xml, cameras=self.cameras, seed=self.seed)
        recording = Recording()
        for n in range(self.count):
            pose = known[int(rng.integers(len(known)))].astype(np.float64)
            if n % 50 == 0 and self.colours:
                look = Look.draw(rng)
                look.paint(rig)
            elif n == 0:
                look = Look()
            _add(recording, world, rig, self, pose=_noisy(pose, rng), look=look, number=n, rng=rng)
        recording.paths.append(np.zeros((PATH_TICKS, 7), np.float32))
        recording.write(self.file)
        rig.close()
        return 0


def stills(folder: Path, count: int, *, cameras: tuple[str, ...], seed: int,
           poses: tuple[Path, ...], colours: bool) -> list[Stills]:  # fmt: skip
    """Return the files that hold ``count`` still scenes."""
    return [
        Stills(cameras, seed + first, min(FILE_STILLS, count - first),
               folder / f'stills_{seed + first:07d}.npz', poses, colours)
        for first in range(0, count, FILE_STILLS)
    ]  # fmt: skip


def _noisy(pose: FloatArray, rng: np.random.Generator) -> FloatArray:
    joints = np.clip(pose[:6] + rng.normal(0, POSE_NOISE_RAD, 6), LOWER, UPPER)
    return np.append(joints, np.clip(pose[6], *GRIPPER_RANGE_M))


def _add(recording: Recording, world: World, rig: CameraRig, stills: Stills, *, pose: FloatArray,
         look: Look, number: int, rng: np.random.Generator) -> None:  # fmt: skip
    tips, attitudes = tool_poses(pose[:6])
    cube = _cube(tips, float(np.arctan2(attitudes[1, 1], attitudes[0, 1])), rng)
    world.scene.place_cube(cube[0], cube[1], cube[3])
    x, y = CABINET + rng.uniform(-SPREAD_M, SPREAD_M, 2)
    world.scene.place_cabinet(float(x), float(y))
    world.scene.place_target(_ball(tips, rng))
    snapshot, scene = world.snapshot(), scene_row(world)
    qpos = snapshot.qpos.copy()
    qpos[:6], qpos[6:8] = pose[:6], pose[6] / 2
    at = np.flatnonzero((qpos[:-2] == cube[0]) & (qpos[1:-1] == cube[1]))[0]
    qpos[at + 2] = scene[5] = cube[2]
    shown = dataclasses.replace(snapshot, qpos=qpos)
    images = [rig.render(shown, name, number) for name in stills.cameras]
    row = {
        'images': np.stack(images), 'command': np.float32(pose), 'measured': np.float32(pose),
        'segment': np.int64(0), 'tick': np.float64(0), 'scene': scene,
        'episode': np.int64(stills.seed + number), 'intent': np.int64(0),
        'look': np.int64(look.number), 'usable': np.bool_(False),
    }
    for name, value in row.items():
        recording.columns[name].append(np.asarray(value))


def _cube(tip: FloatArray, heading: float,
          rng: np.random.Generator) -> tuple[float, float, float, float]:  # fmt: skip
    """Return x, y, z, m, and yaw of the cube."""
    kind, yaw = rng.random(), float(rng.uniform(-np.pi / 4, np.pi / 4))
    if kind < HELD and tip[2] > 0.02:
        x, y, z = tip + rng.normal(0, 0.004, 3)
        return float(x), float(y), max(float(z), CUBE_REST_M), heading + float(rng.normal(0, 0.05))
    if kind < HELD + NEAR:
        x, y = tip[:2] + rng.normal(0, NEAR_M, 2)
    elif kind < HELD + NEAR + IN_BIN:
        x, y = BIN[:2] + rng.uniform(-0.04, 0.04, 2)
    else:
        bearing, reach = rng.uniform(-0.5, 0.55), rng.uniform(0.2, 0.43)
        x, y = reach * np.cos(bearing), reach * np.sin(bearing)
    return float(x), float(y), CUBE_REST_M, yaw


def _ball(tip: FloatArray, rng: np.random.Generator) -> FloatArray:
    if rng.random() > BALL_SHOWN:
        return np.array(HIDDEN)
    place = np.array(CENTRE) + rng.uniform(-1, 1, 3) * AMPLITUDE
    if rng.random() < 0.5:
        near = np.append(tip[:2] + rng.normal(0, NEAR_M, 2), place[2])
        return np.asarray(near)
    return np.asarray(place)
