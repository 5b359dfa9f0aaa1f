"""Faults of the emulated arm and its bus: a strict YAML script, and what applies it.

A script reads::

    schema: 1
    seed: 7
    faults:
      - {kind: silence, start_s: 2.0, duration_s: 0.5}
      - {kind: drop, start_s: 5.0, duration_s: 3.0, probability: 0.2, ids: [0x2A5, 0x2A6]}
      - {kind: estop, start_s: 12.0}

Times count from the power-on of the emulator. ``PARAMETERS`` lists what each kind takes beyond
``kind``, ``start_s`` and ``duration_s``; anything else is refused.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import yaml

from reflex_ros.core.errors import ConfigError
from reflex_ros.core.yaml_text import parse_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SCHEMA = 1
FLAGS: Mapping[str, int] = MappingProxyType({
    'undervoltage': 0x01, 'motor_hot': 0x02, 'overcurrent': 0x04, 'driver_hot': 0x08,
    'collision': 0x10, 'driver_error': 0x20, 'stall': 0x80,
})
"""Error bits of a motor driver (0x261..266) by name; bit 6 is power and not an error."""
GRIPPER_FLAGS: Mapping[str, int] = MappingProxyType({
    'undervoltage': 0x01, 'motor_hot': 0x02, 'overcurrent': 0x04, 'driver_hot': 0x08,
    'sensor': 0x10, 'error': 0x20,
})
"""Error bits of the gripper (0x2A8) by name."""


class Kind(str, Enum):
    """What goes wrong.

    ``SILENCE``: nothing arrives from the arm, it still hears the host. ``BUS_OFF``: neither way.
    ``BUS_ERRORS``: error frames, each of which may destroy others. ``DROP``, ``DELAY``,
    ``DUPLICATE``, ``CORRUPT``: of frames, by id and direction. ``WRONG_LIMITS``: in the answers to
    limit queries. ``LEADER_MODE``, ``TEACH_MODE``: the arm ignores commands. ``ESTOP``: somebody
    stops the arm; latched. ``POWER_LOSS``: joints lose their power. ``STATUS``: status code and
    error bits of 0x2A1. ``DRIVER_FLAGS``: error bits of motor drivers. ``OVERLOAD``: joints stay
    where they are with a high current. If ``lying`` the feedback claims that they follow, and the
    reference stays wrong until a reset. ``GRIPPER_FLAGS``: error bits of the gripper.
    ``GRIPPER_STUCK``: it does not move. ``GRIPPER_POWER_LOSS``: its motor has no power and takes
    none. ``GRIPPER_ZERO_LOSS``: it reports that it does not know its zero. ``FIRMWARE``: another
    version is reported.
    ``SECOND_COMMANDER``: foreign command frames, which the arm obeys.
    """

    SILENCE = 'silence'
    BUS_OFF = 'bus_off'
    BUS_ERRORS = 'bus_errors'
    DROP = 'drop'
    DELAY = 'delay'
    DUPLICATE = 'duplicate'
    CORRUPT = 'corrupt'
    WRONG_LIMITS = 'wrong_limits'
    LEADER_MODE = 'leader_mode'
    TEACH_MODE = 'teach_mode'
    ESTOP = 'estop'
    POWER_LOSS = 'power_loss'
    STATUS = 'status'
    DRIVER_FLAGS = 'driver_flags'
    OVERLOAD = 'overload'
    GRIPPER_FLAGS = 'gripper_flags'
    GRIPPER_STUCK = 'gripper_stuck'
    GRIPPER_POWER_LOSS = 'gripper_power_loss'
    GRIPPER_ZERO_LOSS = 'gripper_zero_loss'
    FIRMWARE = 'firmware'
    SECOND_COMMANDER = 'second_commander'


class Direction(str, Enum):
    """Which frames: from the arm, or to it."""

    FEEDBACK = 'feedback'
    COMMANDS = 'commands'


ALL_JOINTS = (1, 2, 3, 4, 5, 6)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault; only the fields of its kind matter (``PARAMETERS``).

    Attributes:
        kind: What goes wrong.
        start_s: Start after power-on, or after ``FaultInjector.inject``, s.
        duration_s: Length, s; without end by default.
        ids: CAN ids; empty = all. ``joints``: 1..6.
        direction: Of the frames concerned.
        probability: Chance per frame. ``delay_s``: added delay, s. ``bits``: flipped per frame.
        lower_deg, upper_deg, speed_rad_s, acceleration_rad_s2, gripper_range_mm: Reported values,
            None = the true one.
        status: Code of 0x2A1 byte 1, 0..255. ``limit_joints``, ``comm_joints``: error bits.
        flags: Names of ``FLAGS``. ``gripper_flags``: of ``GRIPPER_FLAGS``.
        current_ma: Current of an overloaded joint. lying: Its feedback is not the truth.
        latched: Stays after the fault's end until errors are cleared.
        version: Eight characters at most.
        period_s: Between two foreign commands, or two error frames, s.
        joints_deg: What the foreign commander asks for, deg; None = the measured pose.
    """

    kind: Kind
    start_s: float = 0.0
    duration_s: float = math.inf
    ids: tuple[int, ...] = ()
    joints: tuple[int, ...] = ALL_JOINTS
    direction: Direction = Direction.FEEDBACK
    probability: float = 1.0
    delay_s: float = 0.0
    bits: int = 1
    lower_deg: float | None = None
    upper_deg: float | None = None
    speed_rad_s: float | None = None
    acceleration_rad_s2: float | None = None
    gripper_range_mm: int | None = None
    status: int = 0
    limit_joints: tuple[int, ...] = ()
    comm_joints: tuple[int, ...] = ()
    flags: tuple[str, ...] = ()
    gripper_flags: tuple[str, ...] = ()
    current_ma: int = 8000
    lying: bool = True
    latched: bool = True
    version: str = ''
    period_s: float = 0.02
    joints_deg: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class FaultScript:
    """Faults in the order of the file, and the seed of their chances."""

    faults: tuple[Fault, ...] = ()
    seed: int = 0


PARAMETERS: Mapping[Kind, frozenset[str]] = MappingProxyType({
    Kind.SILENCE: frozenset({'ids'}),
    Kind.BUS_OFF: frozenset(),
    Kind.BUS_ERRORS: frozenset({'period_s', 'probability'}),
    Kind.DROP: frozenset({'ids', 'direction', 'probability'}),
    Kind.DELAY: frozenset({'ids', 'direction', 'delay_s'}),
    Kind.DUPLICATE: frozenset({'ids', 'direction', 'probability'}),
    Kind.CORRUPT: frozenset({'ids', 'direction', 'probability', 'bits'}),
    Kind.WRONG_LIMITS: frozenset({'joints', 'lower_deg', 'upper_deg', 'speed_rad_s',
                                  'acceleration_rad_s2', 'gripper_range_mm'}),
    Kind.LEADER_MODE: frozenset(),
    Kind.TEACH_MODE: frozenset(),
    Kind.ESTOP: frozenset(),
    Kind.POWER_LOSS: frozenset({'joints'}),
    Kind.STATUS: frozenset({'status', 'limit_joints', 'comm_joints', 'latched'}),
    Kind.DRIVER_FLAGS: frozenset({'joints', 'flags', 'latched'}),
    Kind.OVERLOAD: frozenset({'joints', 'current_ma', 'lying'}),
    Kind.GRIPPER_FLAGS: frozenset({'gripper_flags', 'latched'}),
    Kind.GRIPPER_STUCK: frozenset(),
    Kind.GRIPPER_POWER_LOSS: frozenset(),
    Kind.GRIPPER_ZERO_LOSS: frozenset(),
    Kind.FIRMWARE: frozenset({'version'}),
    Kind.SECOND_COMMANDER: frozenset({'period_s', 'joints_deg'}),
})
REQUIRED: Mapping[Kind, frozenset[str]] = MappingProxyType({
    Kind.DELAY: frozenset({'delay_s'}),
    Kind.DRIVER_FLAGS: frozenset({'flags'}),
    Kind.GRIPPER_FLAGS: frozenset({'gripper_flags'}),
    Kind.FIRMWARE: frozenset({'version'}),
})
INSTANT = frozenset({Kind.ESTOP, Kind.POWER_LOSS})
"""Kinds that happen at one moment and take no ``duration_s``."""


def load_faults(path: Path | str) -> FaultScript:
    """Read a fault script.

    Raises:
        ConfigError: The file, a key, a type or a value is wrong; names file, fault and key.
    """
    try:
        text = Path(path).read_text(encoding='utf-8')
        tree = parse_yaml(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(
            f'Fault script {path}: got {error}, expected a readable YAML file. Correct the file.'
        ) from error
    return parse_faults(tree, source=str(path))


def parse_faults(tree: object, *, source: str = 'faults') -> FaultScript:
    """Check a script that is already a tree of dictionaries and lists; see ``load_faults``."""
    top = _mapping(tree, source)
    _keys(top, {'schema', 'seed', 'faults'}, source)
    if top.get('schema') != SCHEMA:
        raise _wrong(source, 'schema', top.get('schema'), f'{SCHEMA}')
    seed = _parse(_whole(0, 2**63 - 1), top.get('seed', 0), source, 'seed')
    entries = top.get('faults', [])
    if not isinstance(entries, list):
        raise _wrong(source, 'faults', entries, 'a list of faults')
    faults = tuple(_fault(entry, f'{source} fault {n}') for n, entry in enumerate(entries, 1))
    return FaultScript(faults, seed)


def _fault(entry: object, where: str) -> Fault:
    values = _mapping(entry, where)
    kinds = [kind.value for kind in Kind]
    if values.get('kind') not in kinds:
        raise _wrong(where, 'kind', values.get('kind'), f'one of {", ".join(kinds)}'
                     + _nearest(values.get('kind'), kinds))
    kind = Kind(values['kind'])
    where = f'{where} ({kind.value})'
    allowed = PARAMETERS[kind] | {'kind', 'start_s'}
    _keys(values, allowed if kind in INSTANT else allowed | {'duration_s'}, where)
    for key in sorted(REQUIRED.get(kind, frozenset()) - values.keys()):
        raise _wrong(where, key, None, _FIELDS[key][1])
    parsed = {key: _parse(_FIELDS[key], value, where, key)
              for key, value in values.items() if key != 'kind'}
    return Fault(kind, **parsed)


_Field = tuple['Callable[[Any], Any]', str]


def _parse(field: _Field, value: object, where: str, key: str) -> Any:
    convert, expected = field
    try:
        return convert(value)
    except (TypeError, ValueError):
        raise _wrong(where, key, value, expected) from None


def _real(low: float, high: float, unit: str) -> _Field:
    def convert(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError
        if not low <= value <= high:
            raise ValueError
        return float(value)
    return convert, f'a number {low:g} .. {high:g} ({unit})'


def _whole(low: int, high: int) -> _Field:
    def convert(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError
        if not low <= value <= high:
            raise ValueError
        return value
    return convert, f'a whole number {low} .. {high}'


def _items(field: _Field, count: int | None = None) -> _Field:
    convert_one, expected = field

    def convert(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or (count is not None and len(value) != count):
            raise TypeError
        if not value or (count is None and len(set(value)) != len(value)):
            raise ValueError
        return tuple(convert_one(item) for item in value)
    return convert, f'a list of {count or "different"} items, each {expected}'


def _choice(options: Mapping[str, Any]) -> _Field:
    def convert(value: Any) -> Any:
        if not isinstance(value, str) or value not in options:
            raise ValueError
        return options[value]
    return convert, f'one of {", ".join(options)}'


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _version(value: Any) -> str:
    if not isinstance(value, str) or not value.isascii() or not 1 <= len(value) <= 8:
        raise ValueError
    return value


_JOINT_LIST = _items(_whole(1, 6))
_DEG = _real(-3276.8, 3276.7, 'deg')
_FIELDS: Mapping[str, _Field] = MappingProxyType({
    'start_s': _real(0.0, 1e6, 's'),
    'duration_s': _real(0.01, 1e6, 's'),
    'ids': _items(_whole(0, 0x7FF)),
    'joints': _JOINT_LIST,
    'direction': _choice({item.value: item for item in Direction}),
    'probability': _real(0.0, 1.0, 'chance per frame'),
    'delay_s': _real(1e-3, 10.0, 's'),
    'bits': _whole(1, 64),
    'lower_deg': _DEG,
    'upper_deg': _DEG,
    'speed_rad_s': _real(0.0, 65.535, 'rad/s'),
    'acceleration_rad_s2': _real(0.0, 655.35, 'rad/s²'),
    'gripper_range_mm': _whole(0, 255),
    'status': _whole(0, 255),
    'limit_joints': _JOINT_LIST,
    'comm_joints': _JOINT_LIST,
    'flags': _items(_choice({name: name for name in FLAGS})),
    'gripper_flags': _items(_choice({name: name for name in GRIPPER_FLAGS})),
    'current_ma': _whole(0, 32_767),
    'latched': (_flag, 'true or false'),
    'lying': (_flag, 'true or false'),
    'version': (_version, '1 to 8 ASCII characters, e.g. S-V1.8-3'),
    'period_s': _real(1e-3, 10.0, 's'),
    'joints_deg': _items(_real(-360.0, 360.0, 'deg'), count=6),
})


def _mapping(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ConfigError(
            f'Fault script {where}: got {value!r:.80}, expected keys with values. '
            'See the head of reflex_ros/sim/faults.py for an example.'
        )
    return value


def _keys(values: dict[str, Any], allowed: set[str] | frozenset[str], where: str) -> None:
    for key in values:
        if key not in allowed:
            raise ConfigError(
                f'Fault script {where}: got key {key!r}, expected one of '
                f'{", ".join(sorted(allowed))}{_nearest(key, sorted(allowed))}. '
                'Correct or remove it.'
            )


def _nearest(value: object, options: list[str]) -> str:
    near = difflib.get_close_matches(str(value), options, n=1)
    return f' (did you mean {near[0]!r}?)' if near else ''


def _wrong(where: str, key: str, value: object, expected: str) -> ConfigError:
    return ConfigError(
        f'Fault script {where}: got {key} {value!r:.80}, expected {expected}. Correct it.'
    )
