"""What a checkpoint is, what it needs from the robot, and what it sees."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from reflex_ros.bag.run_folder import RunFolder
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.files import write_text
from reflex_ros.infer.checkpoint.config import read_json
from reflex_ros.study.inspect_pretrained import PretrainedSubject
from reflex_ros.study.inspect_robot import Robot, read_robot, read_run
from reflex_ros.study.inspect_sight import Glimpse, Sight
from reflex_ros.study.inspect_source import (
    Binder,
    glimpse_of_file,
    glimpse_of_graph,
    glimpse_of_run,
)
from reflex_ros.study.inspect_tiny import TinySubject

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Source:
    """Where an observation is to come from; at most one of file, run and live.

    Attributes:
        file, row: ``.npz`` in the layout of ``reflex-ros predict``, and its row.
        run, at_s: Run folder or bag, and the earliest time after its start, s.
        is_live, namespace, wait_s: Running graph, its namespace, and the longest wait, s.
        task: Instruction that wins over the source's.
        seed: Of the noise where the source has none.
    """

    file: Path | None = None
    row: int = 0
    run: Path | None = None
    at_s: float = 0.0
    is_live: bool = False
    namespace: str = ''
    wait_s: float = 10.0
    task: str | None = None
    seed: int = 0


class Subject(Binder, Protocol):
    """A checkpoint under inspection."""

    def facts(self, task: str | None = None) -> dict[str, Any]:
        """Return what can be said without an observation, in JSON types."""

    def see(self, glimpse: Glimpse, *, seed: int = 0) -> Sight:
        """Return what the policy sees of an observation, and its first chunk."""


def open_subject(folder: Path, robot: Robot, *, dtype: str | None = None) -> Subject:
    """Return a checkpoint of any family after every check.

    Args:
        folder: Checkpoint.
        robot: Parameters of the robot; none is fine.
        dtype: Type to compute in; None = the checkpoint's.

    Raises:
        ModelError: The folder is incomplete, damaged or of an unknown family.
        ConfigError: ``tiny`` is asked for another type than its own.
    """
    if read_json(folder / 'config.json').get('type') != 'tiny':
        return PretrainedSubject(folder, robot, dtype=dtype)
    if dtype not in (None, 'float32'):
        raise ConfigError(
            f'dtype cannot be used: got {dtype!r}, expected float32 (tiny). Leave it out.'
        )
    return TinySubject(folder, robot)


def robot_of(
    files: Iterable[Path], overrides: Mapping[str, object], *, run: Path | None = None
) -> Robot:
    """Return the parameters of a recorded run, parameter files and overrides, later ones winning.

    Raises:
        ConfigError: A file or an override is wrong; by name.
    """
    recorded = Robot() if run is None else read_run(RunFolder(run).params)
    return read_robot(files, overrides).over(recorded)


def look(subject: Subject, source: Source) -> Sight | None:
    """Return what a policy sees, None if there is no source.

    Raises:
        ConfigError: The source lacks something or does not fit; by name.
        ModelError: The robot does not fit. StaleError: A live topic is silent.
    """
    task = source.task
    if source.file is not None:
        glimpse = glimpse_of_file(source.file, source.row, task=task)
    elif source.run is not None:
        glimpse = glimpse_of_run(source.run, subject, at_s=source.at_s, task=task)
    elif source.is_live:
        glimpse = glimpse_of_graph(
            subject, namespace=source.namespace, wait_s=source.wait_s, task=task
        )
    else:
        return None
    return subject.see(glimpse, seed=source.seed)


def write_json(path: Path, facts: Mapping[str, Any], sight: Sight | None = None) -> None:
    """Write everything that was found, with what the policy sees if that was asked for.

    Raises:
        ConfigError: The file cannot be written.
    """
    content = {'schema': SCHEMA, **facts, 'sight': None if sight is None else sight.to_dict()}
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + '\n')
