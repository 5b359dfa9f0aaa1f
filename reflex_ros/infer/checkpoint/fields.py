"""Fields of a JSON object, read by kind; a value of another kind is refused by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reflex_ros.core.errors import ModelError

LARGEST, MOST_LAYERS = 1 << 20, 1000
"""Bounds of any number and of a number of layers: beyond them a file is damaged, and a table of
that size would take the memory of the machine before anything could be checked."""


@dataclass(frozen=True, slots=True)
class Fields:
    """Typed view of a JSON object.

    An absent or null field has its default.

    Attributes:
        file: Where it was read. content: The object. prefix: Put before names in messages.
    """

    file: Path
    content: Mapping[str, Any]
    prefix: str = ''

    def refuse(self, name: str, expected: str) -> ModelError:
        """Return the error for a field."""
        return ModelError(
            f'checkpoint does not fit {self.file} {self.prefix}{name}: got '
            f'{self.content.get(name)!r}, expected {expected}. Use a complete checkpoint.'
        )

    def has(self, name: str) -> bool:
        """Whether a field is there and not null."""
        return self.content.get(name) is not None

    def integer(
        self, name: str, default: int, *, low: int | None = None, high: int = LARGEST
    ) -> int:
        """Return a whole number, at least ``low`` and at most ``high``."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.refuse(name, 'a whole number')
        if low is not None and value < low:
            raise self.refuse(name, f'at least {low}')
        if value > high:
            raise self.refuse(name, f'at most {high}')
        return value

    def real(self, name: str, default: float) -> float:
        """Return a positive number."""
        value = self._value(name, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or value <= 0:
            raise self.refuse(name, 'a positive number')
        return float(value)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a truth value."""
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise self.refuse(name, 'true or false')
        return value

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        """Return one of the choices."""
        value = self._value(name, default)
        if value not in choices:
            raise self.refuse(name, f'one of {", ".join(filter(None, choices))}')
        return str(value)

    def strings(self, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """Return a list of strings."""
        value = self._value(name, default)
        if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
            raise self.refuse(name, 'a list of strings')
        return tuple(value)

    def pair(self, name: str, default: tuple[int, int] | None) -> tuple[int, int] | None:
        """Return two positive whole numbers; a null that is written out is None."""
        if name in self.content and self.content[name] is None:
            return None
        value = self._value(name, default)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or len(value) != 2 or not all(map(_size, value)):
            raise self.refuse(name, 'two positive whole numbers')
        return int(value[0]), int(value[1])

    def mapping(self, name: str) -> Mapping[str, Any]:
        """Return a nested object."""
        value = self._value(name, {})
        if not isinstance(value, Mapping):
            raise self.refuse(name, 'an object')
        return value

    def objects(self, name: str) -> tuple[Mapping[str, Any], ...]:
        """Return a list of nested objects."""
        value = self._value(name, ())
        if not isinstance(value, list | tuple) or not all(isinstance(v, Mapping) for v in value):
            raise self.refuse(name, 'a list of objects')
        return tuple(value)

    def features(self, name: str, kind: str) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the features of a kind, by name, in the file's order."""
        found = {}
        for key, feature in self.mapping(name).items():
            if not isinstance(feature, Mapping):
                raise self.refuse(name, f'an object as {key}')
            shape = feature.get('shape')
            if feature.get('type') != kind:
                continue
            if not isinstance(shape, list | tuple) or not shape or not all(map(_size, shape)):
                raise self.refuse(name, f'a shape of positive whole numbers as {key}.shape')
            found[key] = tuple(shape)
        return found

    def width(self, name: str, key: str, kind: str, default: int) -> int:
        """Return the length of a vector feature."""
        shape = self.features(name, kind).get(key, (default,))
        if len(shape) != 1:
            raise self.refuse(name, f'a shape of one dimension as {key}.shape')
        return shape[0]

    def _value(self, name: str, default: Any) -> Any:
        value = self.content.get(name)
        return default if value is None else value


def _size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
