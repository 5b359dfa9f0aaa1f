"""Experiment files: a grid in YAML, checked to the last key, and the cells that it stands for.

A file has ``title``, ``seeds`` (``first``, ``count``), ``defaults`` for all blocks and ``grid``, a
list of blocks. A block sets what a cell has; a list of values stands for one cell each, several
lists for every combination. ``parts``, ``kinds`` and ``params`` have lists or mappings as values:
there a list of these is what varies.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from reflex_ros.core.errors import ConfigError
from reflex_ros.core.params import PARAMS, check_value
from reflex_ros.core.yaml_text import parse_yaml
from reflex_ros.study.episode_params import check_taken, clashes
from reflex_ros.study.stage_times import Profile, read_profiles

PARTS = ('index', 'command_state', 'blend', 'overlap', 'rtc')
"""Parts of ``reflex`` that can be added one by one: entry at the row that is due, the command as
the state, the seam blended away or inpainted, the inference started early."""
POLICIES = ('oracle', 'tiny', 'tiny_multi')
MODES = ('sync', 'async_naive', 'reflex')
TASKS = next(spec.choices for spec in PARAMS if spec.name == 'simulator.task')
ENTRIES = ('preset', 'restart', 'aligned')
REQUESTS = ('preset', 'continuous', 'threshold', 'overlap')
FIXED = 'fixed'
TINY_ROWS = 50
FOLLOWED = ('hold', 'reach', 'follow', 'jump')
"""Tasks of ``tiny``, which knows targets alone."""
MAX_SEEDS = 100_000


@dataclass(frozen=True, slots=True)
class Cell:
    """Everything that decides an episode but its seed.

    Attributes:
        label: Name in tables, not part of the identity.
        policy, task, mode: By name. ``kinds``: motions of the target, () for the task's own mix.
        parts: Of ``PARTS``; they replace what the mode would choose. None: the mode's own.
        entry, request: As ``chunk.entry`` and ``chunk.request``.
        execute_steps: Rows executed before replacement. ``chunk``: rows of a chunk, 0 = 50.
        window: Frames that the policy sees, 0 = all it was trained for.
        delay_ms: Injected delay. ``times``: profile of the stage times.
        duration_s: Length of an episode. ``tolerance_m``: distance that counts as followed.
        params: Further parameters by name.
    """

    label: str = ''
    policy: str = 'oracle'
    task: str = 'jump'
    mode: str = 'reflex'
    parts: tuple[str, ...] | None = None
    entry: str = 'preset'
    request: str = 'preset'
    execute_steps: int = 5
    chunk: int = 0
    window: int = 0
    delay_ms: float = 0.0
    times: str = FIXED
    kinds: tuple[str, ...] = ()
    duration_s: float = 8.0
    tolerance_m: float = 0.03
    params: Mapping[str, Any] = field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        """Return what identifies the cell, in JSON types."""
        found = {key: value for key, value in asdict(self).items() if key != 'label'}
        return json.loads(json.dumps(found))  # type: ignore[no-any-return]

    def parameters(self) -> dict[str, Any]:
        """Return the node parameters that the cell sets beside those of an episode."""
        chosen: dict[str, Any] = {'chunk.entry': self.entry, 'chunk.request': self.request}
        if self.parts is not None:
            chosen |= _of_parts(self.parts, self.request)
        if self.chunk:
            chosen['chunk.horizon'] = self.chunk
        return {**chosen, **self.params}


def _of_parts(parts: tuple[str, ...], request: str) -> dict[str, Any]:
    stitch = next((one for one in ('rtc', 'blend') if one in parts), 'replace')
    late = 'overlap' if 'overlap' in parts else 'continuous'
    return {
        'chunk.entry': 'aligned' if 'index' in parts else 'restart',
        'chunk.state_source': 'predicted' if 'command_state' in parts else 'measured',
        'chunk.stitch': stitch,
        'chunk.request': late if request == 'preset' else request,
    }


@dataclass(frozen=True, slots=True)
class Experiment:
    """One file.

    Attributes:
        name: Its stem. ``title``, ``about``: for the page.
        cells: The grid. ``seeds``: of each cell. ``profiles``: stage times by name.
    """

    name: str
    title: str
    about: str
    cells: tuple[Cell, ...]
    seeds: range
    profiles: Mapping[str, Profile]

    def key(self, cell: Cell) -> str:
        """Return the identity of a cell: its settings and the stage times it draws from."""
        profile = self.profiles[cell.times]
        text = json.dumps([cell.settings(), profile.document()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:10]


CHOICES = MappingProxyType({
    'policy': POLICIES, 'task': TASKS, 'mode': MODES, 'entry': ENTRIES,
    'request': REQUESTS,
})
TYPES = MappingProxyType({
    'label': (str,), 'policy': (str,), 'task': (str,), 'mode': (str,), 'entry': (str,),
    'request': (str,), 'times': (str,), 'execute_steps': (int,), 'chunk': (int,),
    'window': (int,), 'delay_ms': (int, float), 'duration_s': (int, float),
    'tolerance_m': (int, float), 'parts': (list,), 'kinds': (list,), 'params': (dict,),
})
BOUNDS = MappingProxyType({
    'execute_steps': (1, 1000), 'chunk': (0, 1000), 'window': (0, 64), 'delay_ms': (0, 5000),
    'duration_s': (1.5, 600), 'tolerance_m': (1e-4, 1.0),
})
FILE_KEYS = ('title', 'about', 'stage_times', 'seeds', 'defaults', 'grid')


def load_experiment(path: Path, *, seeds: int = 0) -> Experiment:
    """Return the experiment of a file.

    Args:
        path: YAML file.
        seeds: Number of seeds instead of the file's, 0 = the file's.

    Raises:
        ConfigError: Something in it is wrong; the message names file, block, key and what is
            expected.
    """
    data = _read(path)
    _check_keys(data, FILE_KEYS, str(path))
    if not isinstance(data.get('title'), str) or not data['title']:
        raise _wrong(f'{path}: title', data.get('title'), 'a text')
    times = path.parent / str(data.get('stage_times', 'stage_times.json'))
    profiles = read_profiles(times)
    base = _mapping(data.get('defaults', {}), f'{path}: defaults')
    blocks = data.get('grid')
    if not isinstance(blocks, list) or not blocks:
        raise _wrong(f'{path}: grid', blocks, 'a list of at least one block')
    cells = [cell for number, block in enumerate(blocks, 1)
             for cell in _block(base, block, f'{path}: block {number} of grid', profiles)]
    _check_unique(cells, path)
    return Experiment(path.stem, data['title'], str(data.get('about', '')), tuple(cells),
                      _seeds(data.get('seeds', {}), f'{path}: seeds', seeds), profiles)


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding='utf-8')
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f'experiment file {path}: {error}. Name a YAML file.') from error
    try:
        return _mapping(parse_yaml(text), str(path))
    except yaml.YAMLError as error:
        raise ConfigError(f'experiment file {path}: {error}. Correct the YAML.') from error


def _mapping(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise _wrong(where, value, 'keys with values')
    return value


def _check_keys(data: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    names = list(known)
    for key in data:
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1, cutoff=0.0)[0]
            raise ConfigError(f'{where}: got unknown key {key!r}, expected one of '
                              f'{", ".join(names)}. Did you mean {near!r}?')


def _seeds(value: object, where: str, count: int) -> range:
    data = _mapping(value, where)
    _check_keys(data, ('first', 'count'), where)
    first, number = data.get('first', 0), count or data.get('count', 1)
    for name, given, low in (('first', first, 0), ('count', number, 1)):
        is_whole = isinstance(given, int) and not isinstance(given, bool)
        if not is_whole or not low <= given <= MAX_SEEDS:
            raise _wrong(f'{where}: {name}', given, f'a whole number from {low} to {MAX_SEEDS}')
    return range(first, first + number)


def _block(base: Mapping[str, Any], block: object, where: str,
           profiles: Mapping[str, Profile]) -> Iterator[Cell]:
    own = _mapping(block, where)
    for part in (base, own):
        _check_keys(part, TYPES, where)
    merged = {**base, **own}
    axes = {key: _values(key, value, where) for key, value in merged.items() if key != 'label'}
    template = merged.get('label', '{mode}')
    if not isinstance(template, str):
        raise _wrong(f'{where}: label', template, 'a text')
    for combination in product(*axes.values()):
        chosen = dict(zip(axes, combination, strict=True))
        cell = Cell(**chosen)
        yield replace(_checked(cell, where, profiles), label=_label(template, cell, where))


def _values(key: str, value: object, where: str) -> list[Any]:
    """Return the values of one axis, each checked."""
    is_axis = isinstance(value, list) and (
        key not in ('parts', 'kinds') or any(isinstance(item, list) for item in value))
    items = value if is_axis else [value]
    assert isinstance(items, list)
    if not items:
        raise _wrong(f'{where}: {key}', value, 'at least one value')
    return [_value(key, item, f'{where}: {key}') for item in items]


def _value(key: str, item: object, where: str) -> Any:
    if not isinstance(item, TYPES[key]) or isinstance(item, bool):
        raise _wrong(where, item, ' or '.join(kind.__name__ for kind in TYPES[key]))
    if key in CHOICES and item not in CHOICES[key]:
        raise _wrong(where, item, f'one of {", ".join(CHOICES[key])}', near=CHOICES[key])
    if key in BOUNDS:
        low, high = BOUNDS[key]
        if not low <= item <= high:  # type: ignore[operator]
            raise _wrong(where, item, f'{low:g} to {high:g}')
        return float(item) if float in TYPES[key] else item  # type: ignore[arg-type]
    if key == 'params':
        return _params(_mapping(item, where), where)
    return tuple(item) if isinstance(item, list) else item


def _params(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    specs = {spec.name: spec for spec in PARAMS}
    _check_keys(given, specs, where)
    check_taken(given, where)
    return {name: check_value(specs[name], value, source=where) for name, value in given.items()}


def _checked(cell: Cell, where: str, profiles: Mapping[str, Profile]) -> Cell:
    """Return the cell if its settings go together."""
    if cell.times not in profiles:
        raise _wrong(f'{where}: times', cell.times, f'one of {", ".join(profiles)}',
                     near=tuple(profiles))
    parts = cell.parts or ()
    for part in parts:
        if part not in PARTS:
            raise _wrong(f'{where}: parts', part, f'some of {", ".join(PARTS)}', near=PARTS)
    faults = (
        (cell.mode == 'sync' and (cell.parts is not None or cell.request != 'preset'),
         'mode sync takes neither parts nor request'),
        ('rtc' in parts and 'blend' in parts, 'parts has rtc and blend, which exclude each other'),
        ('rtc' in parts and cell.policy == 'oracle', 'policy oracle has no flow for rtc to steer'),
        (cell.parts is not None and ('overlap' in parts) != (cell.mode == 'reflex'),
         'mode must be reflex with the part overlap, and async_naive without it'),
        (cell.window > 0 and cell.policy == 'oracle', 'policy oracle has no window'),
        (cell.policy != 'oracle' and cell.chunk > TINY_ROWS,
         f'{cell.policy} has {TINY_ROWS} rows a chunk'),
        (cell.policy == 'tiny' and cell.task not in FOLLOWED,
         f'tiny follows a target, and task {cell.task} has none'),
        (cell.execute_steps > (cell.chunk or TINY_ROWS), 'execute_steps is larger than the chunk'),
        *clashes(cell.params, policy=cell.policy, parts=cell.parts),
    )
    for is_wrong, text in faults:
        if is_wrong:
            raise ConfigError(f'{where}: {text}. Correct the block.')
    return cell


def _label(template: str, cell: Cell, where: str) -> str:
    values = {**cell.settings(), 'parts': ' + '.join(cell.parts or ()) or 'none'}
    values['delay_ms'] = f'{cell.delay_ms:g}'
    try:
        return template.format(**values)
    except (KeyError, IndexError, ValueError) as error:
        raise _wrong(f'{where}: label', template, 'names of settings in braces') from error


def _check_unique(cells: Iterable[Cell], path: Path) -> None:
    seen: set[str] = set()
    for cell in cells:
        if cell.label in seen:
            raise ConfigError(f'{path}: got two cells with the label {cell.label!r}, expected one '
                              'each. Put what varies into the label, e.g. {delay_ms}.')
        seen.add(cell.label)


def _wrong(where: str, got: object, expected: str, *, near: Iterable[str] = ()) -> ConfigError:
    text = f'{where}: got {got!r}, expected {expected}.'
    close = difflib.get_close_matches(str(got), list(near), n=1, cutoff=0.0) if near else []
    return ConfigError(text + (f' Did you mean {close[0]!r}?' if close else ' Correct the file.'))
