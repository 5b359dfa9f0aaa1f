"""[ci] The boundary certificate that blocks carry: of this checkpoint and type, or refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from reflex_ros.cli.main import main
from reflex_ros.core.clock import MS, Instant, S, SystemClock
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.param_table import ENCODER
from reflex_ros.core.params import defaults
from reflex_ros.core.probe import ClockProbe
from reflex_ros.core.types import Frame, Task
from reflex_ros.stages.assemble import make_encoder
from reflex_ros.stages.certificate import certificate_hash
from reflex_ros.stages.encoder import EncoderConfig, EncoderStage

GOOD = {'certificate_hash': 'abc', 'model_id': 'm', 'dtype': 'float32', 'refusals': []}


@pytest.fixture
def write(tmp_path):
    def make(content):
        file = tmp_path / 'certificate.json'
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(file)

    return make


def test_the_hash_of_a_fitting_certificate_is_taken(write):
    assert certificate_hash(write(GOOD), model_id='m', dtype='float32') == 'abc'
    assert certificate_hash('', model_id='m', dtype='float32') == ''


@pytest.mark.parametrize(('content', 'expected'), [
    ({**GOOD, 'model_id': 'other'}, "model_id: got 'other', expected 'm'"),
    ({**GOOD, 'dtype': 'bfloat16'}, "dtype: got 'bfloat16', expected 'float32'"),
    ({**GOOD, 'refusals': ['the image encoder depends on tau']}, 'depends on tau'),
    ({'model_id': 'm'}, 'got no certificate_hash'),
    ('[]', 'got no certificate_hash'),
    ('{', 'Correct the path'),
])
def test_one_that_does_not_fit_is_refused_by_name(write, content, expected):
    with pytest.raises(ConfigError, match=expected):
        certificate_hash(write(content), model_id='m', dtype='float32')
    with pytest.raises(ConfigError, match='no_such_file'):
        certificate_hash('no_such_file.json', model_id='m', dtype='float32')


def test_blocks_carry_the_hash_of_what_verify_wrote(tmp_path, root):
    """From the command to the block, with the shipped policy."""
    file = tmp_path / 'tiny.json'
    tiny = root / 'reflex_ros' / 'data' / 'tiny'
    assert main(['verify', str(tiny), '--json', str(file)]) == 0
    params = {**defaults(ENCODER), 'policy.certificate': str(file)}
    parts = make_encoder(params, SystemClock(), namespace=f'/c{id(file)}', shared=None)
    parts.close()
    assert parts.certificate_hash == json.loads(file.read_text())['certificate_hash']
    stage = EncoderStage(EncoderConfig(('main',), certificate_hash=parts.certificate_hash),
                         lambda _: ClockProbe(SystemClock()))
    stage.on_task(Task(1, 10 * S, 1, 'x'))
    stage.on_frame(Frame('main', 10 * S, S, np.zeros((2, 2, 3), np.uint8)))
    outputs, _ = stage.step(Instant(S + MS, 10 * S + MS))
    assert outputs[0].value.certificate_hash == parts.certificate_hash
    wrong = {**params, 'policy.certificate': str(tmp_path / 'missing.json')}
    with pytest.raises(ConfigError, match='missing.json'):
        make_encoder(wrong, SystemClock(), namespace=f'/d{id(file)}', shared=None)
