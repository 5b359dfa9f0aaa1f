"""Demonstrations of the follow tasks: the expert, disturbed, in the simulated world.

The command carries Ornstein-Uhlenbeck noise, so that the arm also visits states that a perfect
expert would never see; labels are rolled from wherever it is (``dataset.Sampler``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reflex_ros.sim.cameras import CameraRig
from reflex_ros.sim.experts import follow
from reflex_ros.sim.tasks import Follow, Jump
from reflex_ros.sim.world import World
from reflex_ros.train.dataset import FIELDS, FRAME_TICKS, OPEN_GRIPPER_M

TICK_NS = 20_000_000
EPISODE_S = 8.0
PATH_TICKS = 280
"""Longest segment plus delay plus horizon, in ticks."""
FILE_EPISODES = 50
START_SPREAD_RAD = 0.15
NOISE_RAD = (0.004, 0.012, 0.03)
"""Strength of the command noise; one is drawn per episode."""
NOISE_MEMORY = 0.9


@dataclass(slots=True)
class Recording:
    """Rows of finished episodes, in the columns of ``Demonstrations``."""

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


def record_episode(rig: CameraRig | None, seed: int, into: Recording) -> CameraRig:
    """Run one episode and append it.

    Args:
        rig: Camera rig of an earlier episode, None for the first; its noise is keyed by frame.
        seed: Seed of the world and of the disturbance; also the episode's number.
        into: Receives the rows.

    Returns:
        The rig to hand to the next call.
    """
    rng = np.random.default_rng((seed, 1))
    task = Jump(duration_s=EPISODE_S, home_noise_rad=START_SPREAD_RAD)
    world = World(task, seed=seed)
    rig = rig or CameraRig(world.model_xml, seed=seed)
    base = len(into.paths)
    into.paths += reference_paths(task)
    command = world.joint_state()[0][:6]
    noise, strength = np.zeros(6), rng.choice(NOISE_RAD)
    starts = np.array([segment.start_s for segment in task.segments])
    for k in range(round(EPISODE_S * 1e9) // TICK_NS):
        now_s = k * TICK_NS / 1e9
        active = int(np.searchsorted(starts, now_s, side='right')) - 1
        tick = (now_s - starts[active]) * 1e9 / TICK_NS
        if k % FRAME_TICKS == 0:
            image = rig.render(world.snapshot(), 'main', seed * 1000 + k)
            measured = world.joint_state()[0][:6].astype(np.float32)
            target = task.segments[active].position(now_s).astype(np.float32)
            row = (image, command.astype(np.float32), measured, np.int64(base + active),
                   np.float64(tick), target, np.int64(seed))  # fmt: skip
            for name, value in zip(FIELDS, row, strict=True):
                into.columns[name].append(np.asarray(value))
        noise = NOISE_MEMORY * noise + rng.normal(0, strength, 6) * (1 - NOISE_MEMORY**2) ** 0.5
        references = _interpolate(into.paths[base + active], tick)
        command = follow.roll((command + 0.3 * noise)[None], references[None])[0, 0]
        world.command(command, OPEN_GRIPPER_M)
        world.advance((k + 1) * TICK_NS)
    return rig


def reference_paths(task: Follow) -> list[npt.NDArray[np.float32]]:
    """Return the reference joints of each segment, as if its target never jumped."""
    times = np.arange(PATH_TICKS) * TICK_NS / 1e9
    return [
        follow.reference(segment.position(segment.start_s + times)).astype(np.float32)
        for segment in task.segments
    ]


def _interpolate(path: npt.NDArray[np.float32], tick: float) -> npt.NDArray[np.float64]:
    """Return the references of this tick and the next, ``float64[2, 6]``."""
    below, share = int(tick), tick % 1.0
    window = path[below : below + 3].astype(np.float64)
    return window[:-1] * (1 - share) + window[1:] * share


def record_file(seed: int, episodes: int, file: Path) -> None:
    """Write ``episodes`` episodes with seeds from ``seed`` upwards to ``file``."""
    recording, rig = Recording(), None
    for episode in range(episodes):
        rig = record_episode(rig, seed + episode, recording)
    recording.write(file)
    if rig is not None:
        rig.close()


def generate(folder: Path, *, episodes: int, seed: int, workers: int) -> list[Path]:
    """Write demonstrations to ``folder``, leaving out files that are already there.

    Blocks; each worker process has its own world and cameras. An interrupted run is continued by
    calling it again.

    Returns:
        All files, in order of their seeds.
    """
    folder.mkdir(parents=True, exist_ok=True)
    starts = range(seed, seed + episodes, FILE_EPISODES)
    jobs = [
        (first, min(FILE_EPISODES, seed + episodes - first), folder / f'demo_{first:07d}.npz')
        for first in starts
    ]
    missing = [job for job in jobs if not job[2].exists()]
    if missing:
        with get_context('spawn').Pool(max(1, workers)) as pool:
            pool.starmap(record_file, missing, chunksize=1)
    return [job[2] for job in jobs]
