"""Everything a summary and a picture need of one run, read from its folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from reflex_ros.analysis.collect import read_settings
from reflex_ros.analysis.run import REACTION_EVENTS, RecordedRun
from reflex_ros.analysis.run import load_run as read_run
from reflex_ros.analysis.straight import straighten
from reflex_ros.bag.repair import needs_repair, repair
from reflex_ros.bag.run_folder import RunFolder
from reflex_ros.core.clock_steps import ClockSteps
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.ledger import RecordArray
from reflex_ros.core.types import JOINT_NAMES, ByteArray, ChunkTrace, SimEvent, SimTruth

__all__ = ['STRIP_FRAMES', 'Run', 'load_run', 'read_settings', 'strip_files']

STRIP_FRAMES = 12


@dataclass(frozen=True, slots=True)
class Run:
    """One run, on an axis without the steps of ROS time.

    Attributes:
        records: Ledger records, oldest first. ``period_ns``: control period.
        joint_names: Columns of their ``command`` and ``measured``.
        traces, truths: Recorded chunk traces and simulated truths, in the order of their stamps.
        execute_steps: As the chunks say; None if none was recorded.
        settings: Parameters of the nodes by name; empty where there is no file.
        frames: (ROS time, ``uint8[H, W, 3]`` RGB) of a few camera frames.
        left_out: What the figures are made without, in words.
        lost_events: Events that are left out, so that no other figure stands in for reactions.
    """

    records: RecordArray
    period_ns: int
    joint_names: tuple[str, ...] = JOINT_NAMES
    traces: tuple[ChunkTrace, ...] = ()
    truths: tuple[SimTruth, ...] = ()
    execute_steps: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    frames: tuple[tuple[int, ByteArray], ...] = ()
    left_out: tuple[str, ...] = ()
    lost_events: int = 0

    @property
    def events(self) -> list[SimEvent]:
        """Events that the policy is meant to react to."""
        return [e for t in self.truths for e in t.events if e.name in REACTION_EVENTS]

    @property
    def duration_s(self) -> float:
        """Length of the ledger."""
        return int(self.records['count'].sum()) * self.period_ns / 1e9


def load_run(folder: Path | str) -> Run:
    """Read a run as a report reads it; bags whose recorder was killed are repaired first.

    Raises:
        ConfigError: The folder has neither a ledger nor recorded ticks, or those of two runs.
        LayoutError: They are of another version.
    """
    paths = RunFolder(Path(folder))
    if not (paths.ledger.is_file() or paths.bags):
        raise ConfigError(
            f'run folder {paths.path} has no ticks: got neither {paths.ledger.name} nor a bag '
            'with control_tick, expected one of them. Give the folder of a run.'
        )
    for bag in paths.bags:
        if needs_repair(bag):
            repair(bag)
    run = straighten(read_run(paths.path))
    return Run(
        run.records, run.period_ns, run.joint_names, run.traces,
        tuple(sorted(run.recorded.truths, key=lambda truth: truth.stamp_ns)),
        run.execute_steps, run.settings, _strip(run) or _bag_frames(run), run.left_out,
        run.lost_events)


def strip_files(folder: Path | None, steps: ClockSteps | None) -> list[tuple[int, Path]]:
    """Return (ROS time without steps, file) of the frames that a run folder keeps, in order.

    A frame was only kept if it was later than the one before, so that of two clocks that showed
    its stamp the first did.
    """
    found = []
    for path in folder.glob('*.png') if folder is not None else ():
        if path.stem.isdecimal():
            places = steps.places(int(path.stem)) if steps is not None else []
            found.append((places[0][1] if places else int(path.stem), path))
    return sorted(found)


def _strip(run: RecordedRun) -> tuple[tuple[int, ByteArray], ...]:
    frames = []
    for stamp_ns, path in strip_files(run.strip, run.steps):
        with Image.open(path) as image:
            frames.append((stamp_ns, np.asarray(image.convert('RGB'))))
    return tuple(frames)


def _bag_frames(run: RecordedRun) -> tuple[tuple[int, ByteArray], ...]:
    """Return a few frames of the camera with most of them, evenly spread."""
    images = run.recorded.images
    topic = max(sorted(images), key=lambda name: len(images[name]), default='')
    stamps = sorted(set(images.get(topic, ())))
    wanted = set(stamps[:: max(1, -(-len(stamps) // STRIP_FRAMES))])
    return tuple(sorted(dict(run.frames(wanted, topic)).items()))
