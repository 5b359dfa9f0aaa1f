"""What a replay starts from: a bag, the parameters of its run, and what is changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from reflex_ros.bag.files import METADATA
from reflex_ros.bag.repair import needs_repair
from reflex_ros.bag.run_folder import RunFolder
from reflex_ros.bringup.settings import config_file, effective
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.param_table import BRIDGE, ENCODER, PARAMS, POLICY
from reflex_ros.core.types import Mode
from reflex_ros.stages.replay import check_source
from reflex_ros.stages.replay_inject import Injections, check_injections
from reflex_ros.stages.replay_source import Recorded, read_recorded

if TYPE_CHECKING:
    from reflex_ros.bringup.settings import Parameters
    from reflex_ros.core.param_table import Value

_DISOBEDIENT = ('safety.max_tracking_error_rad', 'safety.contact_error_rad')
"""Bounds that judge whether the arm obeys, which a recorded one cannot."""


@dataclass(frozen=True, slots=True)
class ReplaySpec:
    """What is to be replayed, and how.

    Attributes:
        source: Run folder, or one bag. ``output``: new run folder, None to keep nothing.
        seed: Of the noise, of drawn latencies and lost frames; None for the recorded one.
        overrides: Parameters by name; they win over the recorded ones.
        injections: Changes of latencies and frames.
        is_timed: Whether latencies repeat when they were recorded; else they are drawn.
        is_arm_recorded: Whether the arm is where it was recorded; else it obeys. None: recorded,
            but for ``sync``, which waits until the arm rests where it was sent.
        params_file: Parameters of the run, None for those beside the bag.
    """

    source: Path
    output: Path | None = None
    seed: int | None = None
    overrides: Mapping[str, object] = field(default_factory=dict)
    injections: Injections = field(default_factory=Injections)
    is_timed: bool = True
    is_arm_recorded: bool | None = None
    params_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A bag and the parameters that belong to it.

    Attributes:
        recorded: The bag. ``parameters``: of every node. ``values``: those of the stages.
        is_arm_recorded: Whether the arm is where it was recorded.
    """

    recorded: Recorded
    parameters: Parameters
    values: dict[str, Value]
    is_arm_recorded: bool


def find_bag(source: Path) -> Path:
    """Return the bag of a run folder, or the bag itself.

    Raises:
        ConfigError: There is none, it is incomplete, or there are several.
    """
    bags = RunFolder(source).bags if source.is_dir() else ()
    folder = source if (source / METADATA).is_file() or not bags else bags[0]
    if folder.is_dir() and needs_repair(folder):
        raise ConfigError(
            f'bag {folder} is incomplete: got no {METADATA} or a file without an end, expected a '
            f'closed bag. Run reflex-ros repair {folder}.'
        )
    if folder != source and len(bags) > 1:
        raise ConfigError(
            f'run folder {source} has several bags: got {", ".join(b.name for b in bags)}, '
            'expected one, since the recorder was restarted. Name one of them.'
        )
    return folder


def open_source(spec: ReplaySpec) -> Source:
    """Read a bag and the parameters of its run.

    Raises:
        ConfigError: The bag or a parameter cannot be used.
    """
    bag = find_bag(spec.source)
    path = spec.params_file or RunFolder(bag.parent).params
    recorded = read_recorded(bag)
    if not path.is_file():
        if spec.params_file is not None:
            raise ConfigError(f'parameter file {path}: got no file, expected one. Correct it.')
        names = ('sim.yaml',) if recorded.has_truth else ('robots/piper.yaml', 'robot.yaml')
        files = [config_file(name) for name in names]
    else:
        files = [path]
    overrides: dict[str, object] = {'run.autostart': True, 'run.folder': '', **spec.overrides}
    if spec.seed is not None:
        overrides['policy.seed'] = spec.seed
    parameters = effective(files, overrides)
    is_recorded = spec.is_arm_recorded
    if is_recorded is None:
        is_recorded = parameters[BRIDGE]['chunk.mode'] != Mode.SYNC.value
    if is_recorded:
        loose: dict[str, object] = {
            entry.name: entry.bounds[1] for entry in PARAMS
            if entry.name in _DISOBEDIENT and entry.bounds
        }
        parameters = effective(files, {**loose, **overrides})
    values: dict[str, Value] = {}
    for node in (ENCODER, POLICY, BRIDGE):
        values.update(parameters[node])
    names_of = cast('tuple[str, ...]', values['camera.names'])
    topics = cast('tuple[str, ...]', values['camera.topics'])
    if topics:
        recorded = read_recorded(bag, cameras=dict(zip(names_of, topics, strict=True)))
    check_source(recorded, policy=str(values['policy.name']), cameras=names_of)
    check_injections(spec.injections, policy=str(values['policy.name']),
                     cameras=recorded.cameras or names_of)
    return Source(recorded, parameters, values, is_recorded)
