"""Message definitions for a bag: the original ``.msg`` texts and their RIHS01 hashes.

A text found in a share folder is stored with its comments and defaults. Common types that no
share folder has come from the store of ``rosbags``, which knows those of ROS 2 Jazzy.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from reflex_ros.core.errors import ConfigError

SEPARATOR = '=' * 80
"""Line between the parts of a concatenated definition."""

PRIMITIVES = frozenset({
    'bool', 'byte', 'char', 'float32', 'float64', 'int8', 'uint8', 'int16', 'uint16', 'int32',
    'uint32', 'int64', 'uint64', 'string', 'wstring',
})
_FIELD = re.compile(r'^(?P<type>[A-Za-z][\w/]*)(<=\d+)?(\[(<=)?\d*\])?\s+[A-Za-z]')


@dataclass(frozen=True, slots=True)
class Schema:
    """Definition of one message type.

    Attributes:
        type: Name, e.g. ``reflex_msgs/msg/Plan``.
        text: Its ``.msg`` text, then those of the types it contains.
        rihs01: Type hash, ``RIHS01_`` and 64 hexadecimal digits.
    """

    type: str
    text: str
    rihs01: str


def default_shares() -> tuple[Path, ...]:
    """Return the share folders of the ROS prefixes, of this Python, and the source checkout."""
    prefixes = os.environ.get('AMENT_PREFIX_PATH', '').split(os.pathsep)
    shares = [Path(prefix, 'share') for prefix in (*prefixes, sys.prefix) if prefix]
    return (*dict.fromkeys(shares), Path(__file__).resolve().parents[2])


def find_schema(type_name: str, *, shares: Sequence[Path] | None = None) -> Schema:
    """Return the definition of a type, ``package/msg/Name``.

    Args:
        type_name: Name of the type.
        shares: Folders with ``<package>/msg/<Name>.msg``; None for ``default_shares``.

    Raises:
        ConfigError: Neither a share folder nor the store of ``rosbags`` has the type.
    """
    folders = default_shares() if shares is None else tuple(shares)
    texts = {type_name: _text(type_name, folders)}
    waiting = [type_name]
    while waiting:
        for name in contained_types(waiting[0], texts[waiting.pop(0)]):
            if name not in texts:
                texts[name] = _text(name, folders)
                waiting.append(name)
    parts = [texts.pop(type_name).rstrip('\n')]
    parts += [f'{SEPARATOR}\nMSG: {_short(name)}\n{text}'.rstrip('\n')
              for name, text in texts.items()]
    text = '\n'.join(parts) + '\n'
    return Schema(type_name, text, _installed_hash(type_name, folders) or hash_of(type_name, text))


def contained_types(owner: str, text: str) -> list[str]:
    """Return the message types that the fields of a ``.msg`` text name, in order."""
    names: list[str] = []
    for line in text.splitlines():
        found = _FIELD.match(line.split('#', 1)[0].strip())
        if found and found['type'] not in PRIMITIVES:
            names.append(_full(found['type'], owner.split('/', 1)[0]))
    return list(dict.fromkeys(names))


def hash_of(type_name: str, text: str) -> str:
    """Return the RIHS01 hash of a concatenated definition."""
    return str(typestore_of([(type_name, text)]).hash_rihs01(type_name))


def typestore_of(definitions: Iterable[tuple[str, str]]) -> Any:
    """Return a ``rosbags`` type store with the given (type, concatenated text) pairs.

    Raises:
        ConfigError: A text is no ``.msg`` definition.
    """
    return _typestore(tuple(definitions))


@lru_cache(maxsize=32)
def _typestore(definitions: tuple[tuple[str, str], ...]) -> Any:
    """Return a store; nobody writes to it, and making one takes longer than a short bag."""
    store = get_typestore(Stores.EMPTY)
    for name, text in definitions:
        try:
            store.register(get_types_from_msg(text, name))
        except Exception as error:
            raise ConfigError(
                f'message definition {name} cannot be used: got {error}, expected a .msg text '
                'that agrees with the others. Take the definitions of one release.'
            ) from error
    return store


@cache
def _jazzy() -> Any:
    return get_typestore(Stores.ROS2_JAZZY)


def _text(type_name: str, shares: Sequence[Path]) -> str:
    for share in shares:
        path = share / f'{type_name}.msg'
        if path.is_file():
            return path.read_text(encoding='utf-8')
    if type_name in _jazzy().fielddefs:
        text: str = _jazzy().generate_msgdef(type_name, ros_version=2)[0]
        return text.split(SEPARATOR, 1)[0]
    raise ConfigError(
        f'message type {type_name} is unknown: got no {type_name}.msg in '
        f'{len(shares)} share folders, expected it in one. Build and source reflex_msgs.'
    )


def _installed_hash(type_name: str, shares: Sequence[Path]) -> str:
    """Return the hash beside the first text of the type; '' if there is none."""
    owner = next((share for share in shares if (share / f'{type_name}.msg').is_file()), None)
    path = None if owner is None else owner / f'{type_name}.json'
    if path is None or not path.is_file():
        return ''
    hashes = json.loads(path.read_text(encoding='utf-8'))['type_hashes']
    return next((str(h['hash_string']) for h in hashes if h['type_name'] == type_name), '')


def _full(name: str, package: str) -> str:
    if '/' not in name:
        return f'{package}/msg/{name}'
    return name if name.count('/') == 2 else name.replace('/', '/msg/')


def _short(name: str) -> str:
    return name.replace('/msg/', '/')
