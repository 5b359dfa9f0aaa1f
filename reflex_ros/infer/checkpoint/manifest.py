"""SHA-256 of every file of a checkpoint: what was loaded can be named, and damage is found."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from reflex_ros.core.errors import ModelError
from reflex_ros.core.yaml_text import parse_json

MANIFEST = 'manifest.json'


def hash_file(file: Path) -> str:
    """Return the SHA-256 of a file, read in parts."""
    with file.open('rb') as stream:
        return hashlib.file_digest(stream, 'sha256').hexdigest()


def hash_folder(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below ``folder`` but the manifest, by relative name."""
    return {
        file.relative_to(folder).as_posix(): hash_file(file)
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
    recorded = _recorded(file)
    found = hash_folder(folder)
    for name in sorted(set(recorded) | set(found)):
        if recorded.get(name) != found.get(name):
            raise ModelError(
                f'checkpoint is damaged {folder / name}: got sha256 {found.get(name, "no file")}, '
                f'expected {recorded.get(name, "no such file")}. Copy the checkpoint again.'
            )
    return found


def hash_or_verify(folder: Path, files: Sequence[Path]) -> dict[str, str]:
    """Return the SHA-256 of some files of a folder, by relative name where they are inside.

    A manifest in the folder is verified: what it records must be so, and each of the files must
    be in it.

    Raises:
        ModelError: A file is missing, not recorded or has changed, or the manifest is damaged.
    """
    hashes = {_name(folder, file): hash_file(file) for file in files}
    manifest = folder / MANIFEST
    if not manifest.is_file():
        return hashes
    recorded = _recorded(manifest)
    inside = {_name(folder, file) for file in files if file.is_relative_to(folder)}
    for name in sorted({*recorded, *inside}):
        file = folder / name
        got = hashes.get(name) or (hash_file(file) if file.is_file() else 'no file')
        if recorded.get(name) != got:
            raise ModelError(
                f'checkpoint is damaged {file}: got sha256 {got}, expected '
                f'{recorded.get(name, "no such file")} ({MANIFEST}). Copy the checkpoint again.'
            )
    return hashes


def _recorded(manifest: Path) -> dict[str, str]:
    try:
        recorded = parse_json(manifest.read_text()).get('sha256')
    except (ValueError, AttributeError):
        recorded = None
    if not isinstance(recorded, dict) or any('..' in Path(name).parts for name in recorded):
        raise ModelError(
            f'checkpoint is damaged {manifest}: got no sha256 by file, expected an object of '
            'them. Copy the checkpoint again, or remove this file.'
        )
    return recorded


def _name(folder: Path, file: Path) -> str:
    return file.relative_to(folder).as_posix() if file.is_relative_to(folder) else file.name
