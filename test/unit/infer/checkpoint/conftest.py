"""Copies of the small pretrained checkpoints, to be damaged."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

PARITY = Path(__file__).parents[3] / 'data' / 'parity'
WEIGHTS = 'model.safetensors'


@dataclass
class Folder:
    """A checkpoint folder of a test's own."""

    path: Path

    def json(self, name, edit):
        """Edit a JSON file; ``edit`` changes the object or returns another."""
        content = json.loads((self.path / name).read_text())
        changed = edit(content)
        (self.path / name).write_text(json.dumps(content if changed is None else changed))

    def tensors(self, edit, name=WEIGHTS):
        """Edit a safetensors file; ``edit`` changes the dict or returns another."""
        content = load_file(self.path / name)
        changed = edit(content)
        content = changed if isinstance(changed, dict) else content
        save_file({k: v.clone() for k, v in content.items()}, self.path / name)

    def statistics(self, side, edit):
        """Edit the statistics of ``pre`` or ``post``."""
        self.tensors(edit, next(self.path.glob(f'policy_{side}processor_*.safetensors')).name)


@pytest.fixture(name='copy')
def copy_fixture(tmp_path):
    def copy(family='pi0'):
        path = shutil.copytree(PARITY / family / 'checkpoint', tmp_path / family)
        return Folder(path)

    return copy


@pytest.fixture(scope='session', name='parity')
def parity_fixture():
    return PARITY
