"""Whatever is wrong with a YAML text, readers see one kind of error."""

from __future__ import annotations

import pytest
import yaml

from reflex_ros.analysis.budgets import load_budgets
from reflex_ros.bringup.settings import parse_overrides
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.param_table import BRIDGE
from reflex_ros.core.params import load_yaml
from reflex_ros.core.yaml_text import parse_yaml
from reflex_ros.sim.faults import load_faults
from reflex_ros.study.experiment_file import load_experiment

TEXTS = ('a: 2026-99-99', 'a: !!bool x', 'a: !!int ""', 'a: !!timestamp x', 'a: !!float x',
         'a: !!set [b]', '? [a]\n: b', 'a: ' + '[' * 5000, 'a: ' + '9' * 5000, 'a: \x00', '{',
         'a: !!python/object:os.system x', '2026-01-01 10:00:00 +99:99: x',
         'a: 1\na: 2', 'b: {a: 1, a: 2}')
READERS = (lambda path: load_yaml(path, BRIDGE), load_faults, load_budgets, load_experiment)


@pytest.mark.parametrize('text', TEXTS)
def test_an_impossible_value_is_a_yaml_error(text):
    with pytest.raises(yaml.YAMLError):
        parse_yaml(text)


def test_what_is_sound_is_read():
    assert parse_yaml('a: [1, 2.5, true, null, x]') == {'a': [1, 2.5, True, None, 'x']}


@pytest.mark.parametrize('text', TEXTS)
@pytest.mark.parametrize('read', READERS)
def test_every_reader_refuses_it_in_words(tmp_path, read, text):
    path = tmp_path / 'file.yaml'
    path.write_text(text)
    with pytest.raises(ConfigError):
        read(path)


@pytest.mark.parametrize('text', TEXTS[:6])
def test_an_assignment_refuses_it_in_words(text):
    with pytest.raises(ConfigError, match='is wrong'):
        parse_overrides(['delay.injected_ms:=' + text.removeprefix('a: ')])
