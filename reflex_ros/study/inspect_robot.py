"""What parameter files and a run's own parameters say of the robot that a policy is put on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from reflex_ros.core import params
from reflex_ros.core.errors import ConfigError, ReflexError
from reflex_ros.core.param_table import BRIDGE, ENCODER, PARAMS, POLICY
from reflex_ros.core.yaml_text import parse_yaml
from reflex_ros.infer.processing.binding import EMPTY
from reflex_ros.infer.processing.robot import UNDECLARED, RobotMap, robot_map
from reflex_ros.stages.build import execute_steps_from
from reflex_ros.stages.snapshot_load import AUTO, check_cameras
from reflex_ros.study.inspect_memory import Ring

NOT_OF_A_RUN = ('policy.name', 'policy.checkpoint')
"""A run may be looked at with another policy than that which it was made with."""


@dataclass(frozen=True, slots=True)
class Fit:
    """How a robot's parameters suit a policy.

    Attributes:
        cameras: Image topic by the policy's name of the camera.
        execute_steps: Rows that are executed before a chunk is replaced.
        refusals: Why the nodes would not start, in words.
    """

    cameras: Mapping[str, str]
    execute_steps: int
    refusals: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Robot:
    """Parameters by name, only those that were set; nothing is taken from a default.

    Attributes:
        values: Checked values.
        origin: Where they were read, in words.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    origin: str = ''

    @property
    def is_given(self) -> bool:
        """Whether anything was set."""
        return bool(self.values)

    @property
    def map(self) -> RobotMap:
        """Names, units and gripper range."""
        return robot_map(self.values)

    @property
    def ring(self) -> Ring:
        """Readers and leases of the ring; one each where they are not set."""
        return Ring(self.values.get('ring.readers', 1), self.values.get('ring.leases', 1))

    @property
    def dtype(self) -> str | None:
        """Type to compute in; None = the checkpoint's."""
        name = self.values.get('policy.dtype', AUTO)
        return None if name == AUTO else str(name)

    @property
    def step_period_s(self) -> float | None:
        """Time between two rows of a chunk, s; None where it is not set."""
        return float(self.values.get('policy.step_period_s', 0.0)) or None

    @property
    def denoise_steps(self) -> int | None:
        """Denoise steps; None = what the checkpoint says."""
        return int(self.values.get('policy.num_denoise_steps', 0)) or None

    def cameras(self, wanted: Sequence[str]) -> dict[str, str]:
        """Return the image topic of each camera that a policy gets, in the policy's order.

        Args:
            wanted: Cameras of the policy; all of them are there if the robot names none.

        Raises:
            ConfigError: A camera is missing, unknown or out of order, or there are not as many
                topics as names; by name.
        """
        names = tuple(self.values.get('camera.names', ()))
        if not names:
            return {name: default_topic(name) for name in wanted if not name.startswith(EMPTY)}
        masked = self.values.get('camera.masked', ())
        check_cameras(wanted, {'camera.names': names, 'camera.masked': masked})
        topics = tuple(self.values.get('camera.topics', ())) or tuple(map(default_topic, names))
        if len(names) != len(topics):
            raise ConfigError(
                f'camera.topics: got {len(topics)} topics, expected {len(names)}, one for each '
                'of camera.names. Correct the list.'
            )
        return dict(zip(names, topics, strict=True))

    def fit(self, family: str, cameras: Sequence[str], *, most: int) -> Fit:
        """Return how these parameters suit a policy; joints and units are not looked at.

        Args:
            family: Of the policy. cameras: Its cameras. most: Rows that it means to be executed.
        """
        refusals: list[str] = []
        topics: dict[str, str] = {}
        steps, values = most, {'chunk.execute_steps': 0, **self.values}
        try:
            steps = execute_steps_from(values, family, most=most)
        except ReflexError as error:
            refusals.append(str(error))
        try:
            topics = self.cameras(cameras) if self.is_given else {}
        except ReflexError as error:
            refusals.append(str(error))
        if (name := self.values.get('policy.name', family)) != family:
            refusals.append(f'policy.name: got {name!r}, expected {family!r}, which is the type '
                            'of this checkpoint. Correct one of them.')  # fmt: skip
        return Fit(topics, steps, tuple(refusals))

    def unset(self, *, has_names: bool) -> tuple[str, ...]:
        """Return the parameters that a pretrained policy does not run without.

        Args:
            has_names: The checkpoint stores the names of its columns.
        """
        needed = ['camera.names', 'policy.joint_unit', 'policy.gripper_unit',
                  'policy.step_period_s', *([] if has_names else ['policy.joint_names'])]
        return tuple(name for name in needed
                     if self.values.get(name) in (None, UNDECLARED, 0.0, ()))  # fmt: skip

    def over(self, base: Robot) -> Robot:
        """Return both, these values winning."""
        origins = [origin for origin in (base.origin, self.origin) if origin]
        return Robot({**base.values, **self.values}, ', '.join(dict.fromkeys(origins)))


def default_topic(camera: str) -> str:
    """Return the image topic of a camera that none is set for."""
    return f'camera/{camera}/image_raw'


def read_robot(files: Iterable[Path], overrides: Mapping[str, object] | None = None) -> Robot:
    """Return what parameter files set, later ones and ``overrides`` winning.

    Raises:
        ConfigError: A file or an override is wrong; by name.
    """
    files, values = tuple(files), {}
    for file in files:
        for node in (BRIDGE, ENCODER, POLICY):
            values |= params.load_yaml(file, node)
    values |= _checked(overrides or {}, 'override')
    origins = [*map(str, files), *(['-p'] if overrides else [])]
    return Robot(values, ', '.join(origins))


def read_run(file: Path) -> Robot:
    """Return the parameters that the nodes of a run were given; nothing without the file.

    Raises:
        ConfigError: The file is no parameter file.
    """
    if not file.is_file():
        return Robot()
    try:
        document = parse_yaml(file.read_text(encoding='utf-8')) or {}
        groups = [section['ros__parameters'] for section in document.values()]
        values = {f'{group}.{key}': value for section in groups
                  for group, keys in section.items() if isinstance(keys, dict)
                  for key, value in keys.items()}  # fmt: skip
    except (yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
        raise ConfigError(
            f'parameters of a run cannot be read {file}: got {error!r}, expected a parameter '
            'file. Give the folder of a run.'
        ) from error
    known = {spec.name for spec in PARAMS}.difference(NOT_OF_A_RUN)
    return Robot(_checked({n: v for n, v in values.items() if n in known}, str(file)), str(file))


def _checked(values: Mapping[str, object], source: str) -> dict[str, Any]:
    specs = {spec.name: spec for spec in PARAMS}
    for name in values:
        if name not in specs:
            raise ConfigError(
                f'parameter {name}: got no such name, expected one of docs/parameters.md. '
                'Correct it.'
            )
    return {name: params.check_value(specs[name], value, source=source)
            for name, value in values.items()}  # fmt: skip
