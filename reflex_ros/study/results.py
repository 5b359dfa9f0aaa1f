"""Result files: what was measured, on what, with which code; the source of every figure."""

from __future__ import annotations

import json
import math
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from reflex_ros.core.files import write_text
from reflex_ros.core.machine import describe_machine

SCHEMA = 1
LIBRARIES = ('numpy', 'torch', 'mujoco', 'piper_sdk', 'python-can', 'rosbags')


@dataclass(frozen=True, slots=True)
class Revision:
    """Commit of the sources, 40 hex digits, and whether they had uncommitted changes."""

    sha: str
    is_dirty: bool


def journal_of(name: str, revision: Revision) -> Path:
    """Return where a bench keeps what is done: rows of other sources are not gone on with."""
    changed = '-dirty' if revision.is_dirty else ''
    return Path('runs') / f'{name}-{revision.sha[:7]}{changed}.jsonl'


def write_result(folder: Path, bench: str, *, config: Mapping[str, Any], summary: Any, unit: str,
                 n: int, revision: Revision, tag: str = 'simulated', warmup: int = 0,
                 samples: Sequence[Any] = (), gpu: str | None = None) -> Path:
    """Write ``<utc>-<sha7>.json`` and return its path.

    Args:
        folder: Folder of the bench, made if missing.
        bench: Name of the bench.
        config: What was asked for.
        summary: What was found; not-a-number becomes null.
        unit: Unit of the main figure. ``n``: its sample count. ``warmup``: samples left out.
        revision: Of ``read_revision``, read before the work: the sources may change under it.
        tag: ``measured``, ``simulated`` or ``paper``.
        samples: Raw samples where they are few, or a mapping for each episode.
        gpu: Name of the GPU that was measured, None for none.
    """
    sha, is_dirty = revision.sha, revision.is_dirty
    now = datetime.now(UTC)
    data = {
        'schema': SCHEMA, 'bench': bench, 'tag': tag, 'utc': now.strftime('%Y-%m-%dT%H:%M:%SZ'),
        'sha': sha, 'dirty': is_dirty, 'machine': describe_machine(), 'gpu': gpu,
        'versions': _versions(), 'config': config, 'n': n, 'warmup': warmup, 'unit': unit,
        'summary': _plain(summary), 'samples': list(samples),
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f'{now:%Y%m%dT%H%M%SZ}-{sha[:7]}.json'
    write_text(path, json.dumps(data, indent=1) + '\n')
    return path


def newest(folder: Path) -> Path | None:
    """Return the newest result file of a bench, None if there is none."""
    return max(folder.glob('*.json'), default=None, key=lambda path: path.name)


def load_newest(folder: Path) -> tuple[Path, Mapping[str, Any]] | None:
    """Return the newest result file of a bench and what it says, None if there is none."""
    path = newest(folder)
    return None if path is None else (path, json.loads(path.read_text(encoding='utf-8')))


def _plain(value: Any) -> Any:
    """Return ``value`` in JSON types, nan as None."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _versions() -> dict[str, str]:
    found = {'python': platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def read_revision() -> Revision:
    """Return the commit of the sources as they are now; results and documents are none."""
    def git(*args: str) -> str:
        done = subprocess.run(['git', *args], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ''

    made = (':(top,exclude)results', ':(top,exclude)docs')
    is_dirty = bool(git('status', '--porcelain', '-uno', '--', ':(top)', *made))
    return Revision(git('rev-parse', 'HEAD') or '0' * 40, is_dirty)
