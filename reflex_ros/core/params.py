"""Checks parameter files against the table and documents it.

Files have the layout of a ROS 2 parameter file, so that ``--params-file`` and this reader take
the same ones::

    /**:
      ros__parameters:
        arm: {channel: can0}
    controller_bridge:
      ros__parameters:
        control: {rate_hz: 50.0}

Types are as strict as those of ROS: ``50`` is no float. Sections of exact names win over those
with wildcards.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import yaml

from reflex_ros.core.errors import ConfigError
from reflex_ros.core.param_table import NODES, PARAMS, ParamSpec, Value
from reflex_ros.core.yaml_text import parse_yaml

__all__ = [
    'NODES',
    'PARAMS',
    'ParamSpec',
    'Value',
    'check_value',
    'defaults',
    'kind',
    'load',
    'load_yaml',
    'node_specs',
    'to_markdown',
]

_ROS_OWN = ('use_sim_time', 'start_type_description_service', 'qos_overrides')
"""First parts of the names that every ROS node takes by itself."""

_WHAT = MappingProxyType({
    'bool': 'true or false',
    'int': 'an integer',
    'float': 'a number with a decimal point',
    'str': 'a string',
    'str[]': 'a list of strings',
    'float[]': 'a list of numbers with a decimal point',
})


def node_specs(node: str) -> dict[str, ParamSpec]:
    """Return the parameters of a node by name.

    Raises:
        ConfigError: There is no such node.
    """
    if node not in NODES:
        raise ConfigError(
            f'node {node} is unknown: got {node!r}, expected one of {", ".join(NODES)}. '
            'Use the name of the node without its namespace.'
        )
    return {spec.name: spec for spec in PARAMS if node in spec.nodes}


def defaults(node: str) -> dict[str, Value]:
    """Return the default of every parameter of a node."""
    return {name: spec.default for name, spec in node_specs(node).items()}


def kind(spec: ParamSpec) -> str:
    """Return the type: ``bool``, ``int``, ``float``, ``str``, ``str[]`` or ``float[]``."""
    if isinstance(spec.default, tuple):
        is_float = bool(spec.default) and isinstance(spec.default[0], float)
        return 'float[]' if is_float else 'str[]'
    return type(spec.default).__name__


def check_value(spec: ParamSpec, value: object, *, source: str = 'parameter') -> Value:
    """Return ``value`` (a list as a tuple) if the parameter may have it.

    Args:
        spec: Parameter.
        value: Value from a file, a message or a command line.
        source: Where it came from, for the error.

    Raises:
        ConfigError: Wrong type, not finite, out of bounds, not one of the choices, or a list of
            another length.
    """
    checked = tuple(value) if isinstance(value, list) else value
    if not _has_kind(kind(spec), checked):
        raise _error(spec, value, source, _WHAT[kind(spec)])
    items = checked if isinstance(checked, tuple) else (checked,)
    if not all(_is_allowed(spec, item) for item in items):
        raise _error(spec, value, source, _constraint(spec))
    if isinstance(checked, tuple) and not _has_length(spec, len(checked)):
        raise _error(spec, value, source, _length(spec))
    return checked  # type: ignore[return-value]


def load_yaml(path: Path | str, node: str) -> dict[str, Value]:
    """Return the parameters that a file sets for a node, checked.

    Args:
        path: Parameter file.
        node: Name of the node, with its namespace if the file tells namespaces apart.

    Raises:
        ConfigError: The file is no parameter file, or a key, type, unit or value is wrong; also
            in sections of other nodes of this suite.
    """
    path = Path(path)
    full = '/' + node.strip('/')
    node_specs(full.rsplit('/', 1)[1])
    merged: dict[str, Value] = {}
    for section, body in sorted(_sections(path), key=lambda item: '*' not in item[0]):
        values = _check_section(path, section, body)
        if _matches(section, full):
            merged.update(values)
    own = node_specs(full.rsplit('/', 1)[1])
    return {name: value for name, value in merged.items() if name in own}


def load(
    paths: Iterable[Path | str], node: str, *, overrides: Mapping[str, object] | None = None
) -> dict[str, Value]:
    """Return every parameter of a node: defaults, then files in order, then ``overrides``.

    Raises:
        ConfigError: As ``load_yaml``; also for a wrong override.
    """
    specs = node_specs(node.rsplit('/', 1)[-1])
    values = {name: spec.default for name, spec in specs.items()}
    for path in paths:
        values.update(load_yaml(path, node))
    for name, value in (overrides or {}).items():
        if name not in specs:
            raise _unknown('override', name, tuple(specs))
        values[name] = check_value(specs[name], value, source='override')
    return values


def to_markdown() -> str:
    """Return the text of ``docs/parameters.md``."""
    lines = [
        '# Parameters',
        '',
        'Written from the table in `reflex_ros/core/param_table.py` by `make docs`.',
        'Units are SI. A float needs a decimal point in a file. A parameter is read when its node',
        'is configured, unless its type says `live`.',
    ]
    for group in dict.fromkeys(spec.name.split('.')[0] for spec in PARAMS):
        lines += ['', f'## {group}', '', '| name | type | default | unit | allowed | nodes |']
        lines += ['|---|---|---|---|---|---|']
        specs = [spec for spec in PARAMS if spec.name.startswith(f'{group}.')]
        lines += [_row(spec) for spec in specs]
        lines += ['', *(f'* `{spec.name}`: {spec.doc}' for spec in specs)]
    return '\n'.join(lines) + '\n'


def _has_kind(name: str, value: object) -> bool:
    if name.endswith('[]'):
        return isinstance(value, tuple) and all(_has_kind(name[:-2], item) for item in value)
    return type(value).__name__ == name


def _is_allowed(spec: ParamSpec, item: object) -> bool:
    if isinstance(item, float) and not math.isfinite(item):
        return False
    if spec.choices is not None:
        return item in spec.choices
    if spec.bounds is not None and isinstance(item, int | float):
        return spec.bounds[0] <= item <= spec.bounds[1]
    return True


def _has_length(spec: ParamSpec, length: int) -> bool:
    """Return whether a list has one number for each joint; names are at least one, or none."""
    default = cast('tuple[object, ...]', spec.default)
    return length == len(default) if kind(spec) == 'float[]' else length > 0 or not default


def _length(spec: ParamSpec) -> str:
    count = len(cast('tuple[object, ...]', spec.default))
    return f'{count} numbers' if kind(spec) == 'float[]' else 'at least one name'


def _constraint(spec: ParamSpec) -> str:
    if spec.choices is not None:
        return 'one of ' + ', '.join(spec.choices)
    if spec.bounds is not None:
        return f'{spec.bounds[0]:g} to {spec.bounds[1]:g}'
    return 'a finite number'


def _error(spec: ParamSpec, value: object, source: str, expected: str) -> ConfigError:
    unit = f' ({spec.unit})' if spec.unit else ''
    return ConfigError(
        f'{source}: {spec.name} is wrong: got {value!r}, expected {expected}{unit}. '
        f'Correct it; the default is {spec.default!r}.'
    )


def _unknown(source: str, name: str, known: tuple[str, ...]) -> ConfigError:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    return ConfigError(
        f'{source}: {name} is no parameter: got {name!r}, expected a name of docs/parameters.md. '
        f'Nearest: {near[0]}.'
    )


def _sections(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the full node name, wildcards included, and the body of every section."""
    try:
        with open(path, encoding='utf-8') as file:
            data = parse_yaml(file)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(
            f'parameter file {path} cannot be read: got {error}, expected YAML. '
            'Correct the file or the path.'
        ) from error
    yield from _walk(path, '', data)


def _walk(path: Path, prefix: str, data: object) -> Iterator[tuple[str, dict[str, Any]]]:
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise ConfigError(
            f'parameter file {path} is wrong at {prefix or "the top"}: got '
            f'{type(data).__name__}, expected node names. '
            'Write `<node>: ros__parameters: <group>: <name>: <value>`.'
        )
    for key, body in data.items():
        if key == 'ros__parameters':
            yield prefix, body or {}
        else:
            yield from _walk(path, f'{prefix}/{key.strip("/")}', body)


def _check_section(path: Path, section: str, body: object) -> dict[str, Value]:
    """Return the checked values of a section; under a wildcard every node's names are good."""
    node = section.rsplit('/', 1)[-1]
    source = f'{path}, {section.strip("/") if "*" not in section else section}'
    if '*' in node:
        specs = {spec.name: spec for spec in PARAMS}
    elif node in NODES:
        specs = node_specs(node)
    else:
        raise _unknown_node(source, node)
    values: dict[str, Value] = {}
    for name, value in _flatten('', body, source):
        if name.split('.')[0] in _ROS_OWN:
            continue
        if name not in specs:
            raise _misplaced(source, name, tuple(specs))
        values[name] = check_value(specs[name], value, source=source)
    return values


def _unknown_node(source: str, node: str) -> ConfigError:
    near = difflib.get_close_matches(node, NODES, n=1, cutoff=0.0)
    return ConfigError(
        f'{source}: there is no such node: got {node!r}, expected one of {", ".join(NODES)}. '
        f'Nearest: {near[0]}.'
    )


def _misplaced(source: str, name: str, known: tuple[str, ...]) -> ConfigError:
    homes = [spec.nodes for spec in PARAMS if spec.name == name]
    if not homes:
        return _unknown(source, name, known)
    return ConfigError(
        f'{source}: {name} is not taken by this node: got {name!r}, expected it under '
        f'{" or ".join(homes[0])}. Move it there, or under /**.'
    )


def _flatten(prefix: str, body: object, source: str) -> Iterator[tuple[str, object]]:
    if not isinstance(body, dict):
        yield prefix, body
        return
    for key, value in body.items():
        if not isinstance(key, str):
            raise ConfigError(
                f'{source}: {prefix or "ros__parameters"} has a wrong key: got {key!r}, expected '
                'a name. Quote it or correct it.'
            )
        yield from _flatten(f'{prefix}.{key}' if prefix else key, value, source)


def _matches(section: str, full: str) -> bool:
    """Whether a section name, in which ``*`` is one part and ``**`` any number, names a node."""
    if section == '/**':
        return True
    name = '/' + full.rsplit('/', 1)[1]
    pattern = re.escape(section).replace(r'/\*\*', '(/.*)?').replace(r'\*', '[^/]*')
    return any(re.fullmatch(pattern, candidate) for candidate in {full, name})


def _row(spec: ParamSpec) -> str:
    allowed = '' if spec.choices is None and spec.bounds is None else _constraint(spec)
    live = '' if spec.read_only else ', live'
    default = _text(spec.default)
    cells = (f'`{spec.name}`', kind(spec) + live, default, spec.unit, allowed)
    return '| ' + ' | '.join((*cells, ', '.join(spec.nodes))) + ' |'


def _text(value: Value) -> str:
    if isinstance(value, tuple):
        return '`[' + ', '.join(str(item) for item in value) + ']`'
    if isinstance(value, bool):
        return f'`{str(value).lower()}`'
    return f'`{value}`' if value != '' else '`""`'
