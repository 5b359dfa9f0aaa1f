"""Everything a report needs of one run, read from its folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from PIL import Image

from reflex_ros.bag import values
from reflex_ros.bag.read import BagReader
from reflex_ros.bag.repair import needs_repair, repair
from reflex_ros.bag.run_folder import RunFolder
from reflex_ros.core.errors import ConfigError, LayoutError
from reflex_ros.core.ledger import LedgerReader, RecordArray, to_records
from reflex_ros.core.types import JOINT_NAMES, ByteArray, ChunkTrace, SimEvent, SimTruth
from reflex_ros.core.yaml_text import parse_yaml

T = TypeVar('T')

STRIP_FRAMES = 12
REACTION_EVENTS = ('jump',)
"""Simulated events that the policy is meant to react to."""
_DEFAULT_PERIOD_NS = 20_000_000


@dataclass(frozen=True, slots=True)
class Run:
    """One run.

    Attributes:
        records: Ledger records, oldest first. ``period_ns``: control period.
        joint_names: Columns of their ``command`` and ``measured``.
        traces, truths: Recorded chunk traces and simulated truths, in the order of their stamps.
        execute_steps: As the chunks say; None if none was recorded.
        settings: Parameters of the nodes by name; empty where there is no file.
        frames: (ROS time, ``uint8[H, W, 3]`` RGB) of a few camera frames.
        left_out: What of the bags was left out because it is damaged, in words.
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

    @property
    def events(self) -> list[SimEvent]:
        """Events that the policy is meant to react to."""
        return [e for t in self.truths for e in t.events if e.name in REACTION_EVENTS]

    @property
    def duration_s(self) -> float:
        """Length of the ledger."""
        return int(self.records['count'].sum()) * self.period_ns / 1e9


def load_run(folder: Path | str) -> Run:
    """Read a run; bags whose recorder was killed are repaired first.

    Raises:
        ConfigError: The folder has neither a ledger nor recorded ticks.
        LayoutError: They are of another version.
    """
    paths = RunFolder(Path(folder))
    recorded = _Recorded()
    for bag in paths.bags:
        if needs_repair(bag):
            repair(bag)
        with BagReader(bag) as reader:
            recorded.take(reader)
    records, period_ns, names = _ticks(paths, recorded)
    return Run(
        records, period_ns, names,
        traces=_in_order(recorded.traces), truths=_in_order(recorded.truths),
        execute_steps=recorded.execute_steps, settings=read_settings(paths.params),
        frames=_strip(paths.strip) or tuple(recorded.frames), left_out=tuple(recorded.left_out),
    )


def read_settings(path: Path) -> dict[str, Any]:
    """Return the parameters of all nodes by ``group.name``, {} without a file."""
    if not path.is_file():
        return {}
    document = parse_yaml(path.read_text(encoding='utf-8')) or {}
    settings: dict[str, Any] = {}
    for section in document.values():
        for group, keys in section.get('ros__parameters', {}).items():
            for key, value in keys.items() if isinstance(keys, dict) else ():
                settings[f'{group}.{key}'] = value
    return settings


class _Recorded:
    """What the bags of a run hold."""

    def __init__(self) -> None:
        self.ticks: list[Any] = []
        self.traces: list[ChunkTrace] = []
        self.truths: list[SimTruth] = []
        self.frames: list[tuple[int, ByteArray]] = []
        self.execute_steps: int | None = None
        self.left_out: list[str] = []

    def take(self, bag: BagReader) -> None:
        """Add a bag."""
        self.ticks += _decoded(bag, 'control_tick', values.control_tick, self.left_out)
        self.traces += _decoded(bag, 'chunk_trace', values.chunk_trace, self.left_out)
        self.truths += _decoded(bag, 'sim_truth', values.sim_truth, self.left_out)
        chunks = bag.find('action_chunk')
        if chunks is not None:
            for _, _, chunk in bag.values(chunks):
                self.execute_steps = int(chunk.execute_steps)
                break
        self.frames += _bag_frames(bag)


def _decoded(bag: BagReader, name: str, decode: Callable[[Any], T],
             left_out: list[str]) -> list[T]:
    """Return the values of a topic, less the damaged ones, which are counted and named."""
    topic = bag.find(name)
    found: list[T] = []
    errors: list[LayoutError] = []
    for message in bag.messages(topic) if topic is not None else ():
        try:
            found.append(decode(bag.decode(message)))
        except LayoutError as error:
            errors.append(error)
    if errors and not found:
        raise errors[0]
    if errors:
        left_out.append(f'{topic}: {len(errors)} messages are left out: {errors[0]}')
    return found


def _bag_frames(bag: BagReader) -> list[tuple[int, ByteArray]]:
    """Return a few frames of the first recorded camera, evenly spread."""
    names = [
        name for name, info in bag.topics.items()
        if info.type in ('sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage')
        and info.messages
    ]
    if not names:
        return []
    step = max(1, -(-bag.topics[names[0]].messages // STRIP_FRAMES))
    frames = []
    for index, message in enumerate(bag.messages(names[0])):
        if index % step == 0:
            value = bag.decode(message)
            image = values.image(value)
            if image is not None:
                frames.append((values.stamp_of(value.header.stamp), image))
    return frames


def _strip(folder: Path) -> tuple[tuple[int, ByteArray], ...]:
    found = sorted((int(p.stem), p) for p in folder.glob('*.png') if p.stem.isdigit())
    frames = []
    for stamp_ns, path in found:
        with Image.open(path) as image:
            frames.append((stamp_ns, np.asarray(image.convert('RGB'))))
    return tuple(frames)


def _ticks(paths: RunFolder, recorded: _Recorded) -> tuple[RecordArray, int, tuple[str, ...]]:
    if paths.ledger.is_file():
        ledger = LedgerReader(paths.ledger)
        header = ledger.header
        return ledger.records(), header.period_ns, header.joint_names
    ticks = sorted(recorded.ticks, key=lambda tick: tick.index)
    if not ticks:
        raise ConfigError(
            f'run folder {paths.path} has no ticks: got neither {paths.ledger.name} nor a bag '
            'with control_tick, expected one of them. Give the folder of a run.'
        )
    return to_records(ticks), _period(ticks), JOINT_NAMES


def _period(ticks: Sequence[Any]) -> int:
    first, last = ticks[0], ticks[-1]
    steps = last.index - first.index
    return round((last.due_ns - first.due_ns) / steps) if steps else _DEFAULT_PERIOD_NS


def _in_order(items: list[T]) -> tuple[T, ...]:
    return tuple(sorted(items, key=lambda item: item.stamp_ns))  # type: ignore[attr-defined]
