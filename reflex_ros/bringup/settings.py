"""Parameter files: where the shipped ones are, and the one that says what a run really used."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from reflex_ros.core.errors import ConfigError
from reflex_ros.core.files import make_folder, write_text
from reflex_ros.core.params import NODES, PARAMS, load, node_specs
from reflex_ros.core.yaml_text import parse_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from reflex_ros.core.params import Value

Parameters = dict[str, dict[str, 'Value']]
"""Values by node and name."""


def config_file(name: str) -> Path:
    """Return a shipped configuration file.

    Looks beside the package (a checkout), then where the package was installed.

    Raises:
        ConfigError: It is nowhere.
    """
    folders = [Path(__file__).resolve().parents[2] / 'config']
    prefixes = [sys.prefix, *os.environ.get('AMENT_PREFIX_PATH', '').split(os.pathsep)]
    folders += [Path(prefix) / 'share' / 'reflex_ros' / 'config' for prefix in prefixes if prefix]
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    raise ConfigError(
        f'configuration file {name} is missing: got none, expected it in '
        f'{" or ".join(str(folder) for folder in folders)}. Install the package again.'
    )


def effective(files: Iterable[Path | str], overrides: Mapping[str, object]) -> Parameters:
    """Return every parameter of every node.

    Args:
        files: Parameter files, later ones win.
        overrides: Values by name, for every node that takes them.

    Raises:
        ConfigError: A file, a name or a value is wrong.
    """
    files = list(files)
    known = {spec.name for spec in PARAMS}
    strangers = {name: value for name, value in overrides.items() if name not in known}
    values: Parameters = {}
    for node in NODES:
        own = {name: overrides[name] for name in node_specs(node) if name in overrides}
        values[node] = load(files, node, overrides={**own, **strangers})
    return values


def write_params(path: Path, values: Parameters, *, namespace: str = '') -> None:
    """Write a ROS parameter file with one complete section for each node.

    An empty list is left out: ROS cannot tell its type, and it is the default anyway.

    Raises:
        ConfigError: It cannot be written.
    """
    prefix = f'/{namespace.strip("/")}/' if namespace.strip('/') else ''
    document: dict[str, Any] = {}
    for node, parameters in values.items():
        groups: dict[str, dict[str, Any]] = {}
        for name, value in parameters.items():
            if value != ():
                group, key = name.split('.', 1)
                groups.setdefault(group, {})[key] = _plain(value)
        document[prefix + node] = {'ros__parameters': groups}
    make_folder(path.parent)
    header = '# Every parameter of this run. Start it again with --params-file.\n'
    text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=99)
    write_text(path, header + text)


def parse_overrides(assignments: Iterable[str]) -> dict[str, object]:
    """Return ``group.name:=value`` assignments; values are read as YAML.

    Raises:
        ConfigError: An assignment has no ``:=`` or its value is no YAML.
    """
    values: dict[str, object] = {}
    for assignment in assignments:
        name, found, text = assignment.partition(':=')
        try:
            value = parse_yaml(text)
        except yaml.YAMLError:
            found = ''
        if not found or not name:
            raise ConfigError(
                f'parameter {assignment!r} is wrong: got no name and value, expected '
                'group.name:=value. Quote it for the shell.'
            )
        values[name.strip()] = value
    return values


def _plain(value: Value) -> Any:
    return [*value] if isinstance(value, tuple) else value


class _Dumper(yaml.SafeDumper):
    """Quotes every string value, so that no reader takes one for a number or a truth value."""

    def represent_data(self, data: Any) -> Any:
        if isinstance(data, str):
            return self.represent_scalar('tag:yaml.org,2002:str', data, style='"')
        return super().represent_data(data)

    def represent_mapping(self, tag: str, mapping: Any, flow_style: Any = None) -> Any:
        node = super().represent_mapping(tag, mapping, flow_style=False)
        for key, _ in node.value:
            key.style = None
        return node
