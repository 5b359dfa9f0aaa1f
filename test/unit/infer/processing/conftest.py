"""Parity data, and processings of changed copies of its checkpoints."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from reflex_ros.infer.checkpoint.config import read_pretrained_config
from reflex_ros.infer.checkpoint.weights import open_weights
from reflex_ros.infer.processing.build import Sources, build_processing
from reflex_ros.infer.processing.legacy import legacy_statistics

PARITY = Path(__file__).parents[3] / 'data' / 'parity'
VOCABULARY = 512


class Folder:
    """A checkpoint folder of a test's own."""

    def __init__(self, path):
        self.path = path

    def json(self, name, edit):
        """Edit a JSON file in place."""
        content = json.loads((self.path / name).read_text())
        edit(content)
        (self.path / name).write_text(json.dumps(content))

    def step(self, side, name, **config):
        """Change the configuration of a step of ``pre`` or ``post``."""

        def edit(content):
            steps = {step['registry_name']: step for step in content['steps']}
            steps[name]['config'].update(config)

        self.json(f'policy_{side}processor.json', edit)

    def tensors(self, name, edit):
        """Edit a safetensors file in place."""
        content = load_file(self.path / name)
        edit(content)
        save_file({k: v.clone().contiguous() for k, v in content.items()}, self.path / name)

    def statistics(self, edit, sides=('pre', 'post')):
        """Edit the statistics."""
        for side in sides:
            self.tensors(next(self.path.glob(f'policy_{side}processor_*.safetensors')).name, edit)

    def modes(self, mode):
        """Set the mode of state and action in both processors."""
        norm_map = {'VISUAL': 'IDENTITY', 'STATE': mode, 'ACTION': mode}
        self.step('pre', 'normalizer_processor', norm_map=norm_map)
        self.step('post', 'unnormalizer_processor', norm_map=norm_map)

    def processing(self, **options):
        """Return the folder's processing."""
        config = read_pretrained_config(self.path)
        weights = open_weights(self.path)
        sources = Sources(self.path, weights.files[-1], legacy_statistics(weights), VOCABULARY)
        return build_processing(config, sources, **options)


@pytest.fixture(name='copy')
def copy_fixture(tmp_path):
    def copy(family='pi0'):
        return Folder(shutil.copytree(PARITY / family / 'checkpoint', tmp_path / family))

    return copy


@pytest.fixture(scope='session', name='parity')
def parity_fixture():
    return PARITY
