"""What parameter files and a run's own parameters say of the robot that a policy is put on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from reflex_ros.core import params
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.param_table import BRIDGE, ENCODER, PARAMS, POLICY
from reflex_ros.infer.processing.robot import RobotMap, robot_map
from reflex_ros.study.inspect_memory import Ring


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
    def cameras(self) -> dict[str, str]:
        """Image topic of each camera by the robot's name of it; empty where none is set.

        Raises:
            ConfigError: Not as many topics as names.
        """
        names = tuple(self.values.get('camera.names', ()))
        topics = tuple(self.values.get('camera.topics', ())) or tuple(map(default_topic, names))
        if len(names) != len(topics):
            raise ConfigError(
                f'camera.topics: got {len(topics)} topics, expected {len(names)}, one for each '
                'of camera.names. Correct the list.'
            )
        return dict(zip(names, topics, strict=True))

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
        document = yaml.safe_load(file.read_text(encoding='utf-8')) or {}
        groups = [section['ros__parameters'] for section in document.values()]
        values = {f'{group}.{key}': value for section in groups
                  for group, keys in section.items() if isinstance(keys, dict)
                  for key, value in keys.items()}  # fmt: skip
    except (yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
        raise ConfigError(
            f'parameters of a run cannot be read {file}: got {error!r}, expected a parameter '
            'file. Give the folder of a run.'
        ) from error
    known = {spec.name for spec in PARAMS}
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
