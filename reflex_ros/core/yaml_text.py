"""YAML text that anybody may have written, read with one kind of error."""

from __future__ import annotations

from typing import Any

import yaml


def parse_yaml(text: Any, loader: type[yaml.SafeLoader] = yaml.SafeLoader) -> Any:
    """Return what a YAML text, or an open file, holds; plain values only.

    PyYAML ends in many errors of its own for a value that is not what its tag says, e.g. a
    KeyError for ``!!bool x`` and a ValueError for ``2026-99-99``, and for endless nesting.

    Args:
        text: The text. ``loader``: a safe loader.

    Raises:
        yaml.YAMLError: It is no YAML, or a value of it cannot be made.
    """
    try:
        return yaml.load(text, loader)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError) as error:
        raise _as_yaml(error) from error
    except ValueError as error:
        if isinstance(error, UnicodeDecodeError):
            raise  # of the file
        raise _as_yaml(error) from error


def _as_yaml(error: Exception) -> yaml.YAMLError:
    return yaml.YAMLError(f'a value that cannot be made, {type(error).__name__}: {error}')
