"""YAML and JSON text that anybody may have written, read with one kind of error each."""

from __future__ import annotations

import json
from typing import Any

import yaml


class _UniqueLoader(yaml.SafeLoader):
    """A safe loader that refuses a key given twice, where YAML would take the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        # a list may be tagged as a mapping or a set, which the base class refuses
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        found: set[Any] = set()
        for name, _ in pairs:
            if name.tag == 'tag:yaml.org,2002:merge':  # <<: keys of it may be given again
                continue
            key = self.construct_object(name, deep=True)
            if key in found:
                raise yaml.YAMLError(f'key {key!r} twice{name.start_mark}')
            found.add(key)
        return super().construct_mapping(node, deep)


def parse_yaml(text: Any) -> Any:
    """Return what a YAML text, or an open file, holds; plain values only.

    PyYAML ends in many errors of its own for a value that is not what its tag says, e.g. a
    KeyError for ``!!bool x`` and a ValueError for ``2026-99-99``, and for endless nesting.

    Raises:
        yaml.YAMLError: It is no YAML, a value of it cannot be made, or a mapping has a key twice.
    """
    try:
        return yaml.load(text, _UniqueLoader)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError) as error:
        raise _as_yaml(error) from error
    except ValueError as error:
        if isinstance(error, UnicodeDecodeError):
            raise  # of the file
        raise _as_yaml(error) from error


def parse_json(text: str | bytes) -> Any:
    """Return what a JSON text holds.

    Raises:
        ValueError: It is no JSON, or nested without end.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError('nested too deeply') from error


def _as_yaml(error: Exception) -> yaml.YAMLError:
    return yaml.YAMLError(f'a value that cannot be made, {type(error).__name__}: {error}')
