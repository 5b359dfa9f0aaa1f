"""From the options of the command line to a report."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from reflex_ros.core.errors import ConfigError
from reflex_ros.core.files import write_text
from reflex_ros.core.param_table import NODES
from reflex_ros.core.params import load, node_specs
from reflex_ros.doctor.context import Choices, Context
from reflex_ros.doctor.host import Host
from reflex_ros.doctor.probes import Probes, this_machine
from reflex_ros.doctor.registry import CHECKS
from reflex_ros.doctor.report import Line, Screen, dump, to_json
from reflex_ros.doctor.visit import choose, exit_code, visit
from reflex_ros.stages.build import channels_from, driver_config

if TYPE_CHECKING:
    import argparse

    from reflex_ros.arm.config import DriverConfig
    from reflex_ros.core.param_table import Value

STDOUT = '-'
_BUS = re.compile(r'(?P<channel>[\w.:-]+?)(?:@(?P<host>[\w.-]+):(?P<port>\d+))?')


def examine(
    options: argparse.Namespace, files: Sequence[Path], overrides: Mapping[str, object], *,
    host: Host | None = None, probes: Probes | None = None,
) -> int:  # fmt: skip
    """Look at everything that was chosen; return the exit code.

    Args:
        options: Of ``cli/doctor.py``.
        files: Parameter files, later ones win.
        overrides: Parameters that win over them.
        host, probes: The machine; None = this one.

    Raises:
        ConfigError: An option, a file or a name is wrong.
    """
    checks = choose(options.only, options.skip)
    choices = choices_of(options, parameters(files, overrides), has_files=bool(options.files))
    _check_output(options.json)
    machine = host or Host()
    screen = Screen(None if options.json == STDOUT else sys.stdout, sys.stderr, machine.environ)
    context = Context(choices, machine, probes or this_machine(), progress=screen.measuring)
    lines: list[Line] = []
    try:
        for check, finding in visit(context, checks):
            lines.append((check, finding))
            screen.line(check, finding)
    finally:
        screen.clear()
    code = exit_code([finding.level for _, finding in lines])
    screen.summary(lines)
    _write(options.json, dump(to_json(lines, choices, code)) if options.json else '')
    return code


def listing() -> str:
    """Return a line for each check."""
    return '\n'.join(f'{check.name:<17}{check.group:<9}{check.measures}' for check in CHECKS)


def parameters(files: Sequence[Path], overrides: Mapping[str, object]) -> dict[str, Value]:
    """Return every parameter of every node by name.

    Raises:
        ConfigError: A file, a name or a value is wrong.
    """
    values: dict[str, Value] = {}
    known = {name for node in NODES for name in node_specs(node)}
    strangers = {name: value for name, value in overrides.items() if name not in known}
    for node in NODES:
        own = {name: overrides[name] for name in node_specs(node) if name in overrides}
        values.update(load(files, node, overrides={**own, **strangers}))
    return values


def choices_of(
    options: argparse.Namespace, params: Mapping[str, Value], *, has_files: bool
) -> Choices:
    """Return what is looked at.

    Args:
        options: Of ``cli/doctor.py``.
        params: Of all nodes.
        has_files: Whether the operator gave files, so that their cameras are meant.
    """
    named = driver_config(params)
    several = tuple(replace(named, prefix=f'{name}_', channel=channel)
                    for name, channel in channels_from(params).items())
    arms = tuple(_arm(text, named) for text in options.arms) or several or (named,)
    return Choices(
        arms=arms, params=params, cameras=_cameras(options.cameras, params, has_files=has_files),
        checkpoint=options.checkpoint, seconds=options.seconds, runs=options.runs,
        asks_arm=not options.listen_only, namespace=options.namespace,
    )


def _arm(text: str, named: DriverConfig) -> DriverConfig:
    found = _BUS.fullmatch(text)
    if found is None:
        raise ConfigError(
            f'--arm is wrong: got {text!r}, expected can0 or can0@127.0.0.1:29536. Correct it.')
    if found['host'] is None:
        return replace(named, channel=text, transport='socketcan')
    return replace(named, channel=found['channel'], transport='socketcand', host=found['host'],
                   port=int(found['port']))


def _cameras(
    topics: Sequence[str], params: Mapping[str, Value], *, has_files: bool
) -> dict[str, str]:
    if topics:
        return {topic: topic for topic in topics}
    if not has_files:
        return {}
    names = cast('tuple[str, ...]', params['camera.names'])
    given = cast('tuple[str, ...]', params['camera.topics'])
    masked = cast('tuple[str, ...]', params['camera.masked'])
    chosen = given or tuple(f'camera/{name}/image_raw' for name in names)
    pairs = dict(zip(names, chosen, strict=False))
    return {name: topic for name, topic in pairs.items() if name not in masked}


def _check_output(target: str | None) -> None:
    """Refuse a file that cannot be written before minutes were spent."""
    if target and target != STDOUT:
        folder = Path(target).absolute().parent
        if not folder.is_dir() or Path(target).is_dir():
            raise ConfigError(
                f'--json cannot be written {target}: got no such folder, expected a file in an '
                'existing one. Choose another place.')


def _write(target: str | None, text: str) -> None:
    if target == STDOUT:
        sys.stdout.write(text)
    elif target:
        write_text(Path(target), text)
