"""SHA-256 of every file of a checkpoint: what was loaded can be named, and damage is found."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from reflex_ros.core.errors import ModelError

MANIFEST = 'manifest.json'


def hash_folder(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below ``folder`` but the manifest, by relative name."""
    return {
        file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob('*'))
        if file.is_file() and file.name != MANIFEST
    }


def model_id(hashes: dict[str, str]) -> str:
    """Return one hash over all files; two folders with the same id hold the same bytes."""
    return hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()


def write_manifest(folder: Path) -> None:
    """Record the hashes of the folder as it is."""
    text = json.dumps({'sha256': hash_folder(folder)}, indent=2, sort_keys=True)
    (folder / MANIFEST).write_text(text + '\n')


def verify_manifest(folder: Path) -> dict[str, str]:
    """Return the hashes of the folder after comparing them with its manifest.

    Raises:
        ModelError: No manifest; a file is missing, was added or has changed.
    """
    file = folder / MANIFEST
    if not file.is_file():
        raise ModelError(
            f'checkpoint is incomplete {file}: got no file, expected the hashes of the others. '
            'Use a complete checkpoint.'
        )
    recorded: dict[str, str] = json.loads(file.read_text()).get('sha256', {})
    found = hash_folder(folder)
    for name in sorted(set(recorded) | set(found)):
        if recorded.get(name) != found.get(name):
            raise ModelError(
                f'checkpoint is damaged {folder / name}: got sha256 {found.get(name, "no file")}, '
                f'expected {recorded.get(name, "no such file")}. Copy the checkpoint again.'
            )
    return found
