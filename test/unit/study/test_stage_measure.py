"""Stage times of tiny: as a file of profiles has them, and the whole window costs more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reflex_ros.study.stage_times import read_profiles

FOLDER = Path(__file__).parents[3] / 'reflex_ros' / 'data' / 'tiny'


@pytest.mark.skipif(not (FOLDER / 'model.safetensors').is_file(), reason='no weights of tiny')
def test_measured_stage_times_are_profiles(tmp_path):
    pytest.importorskip('torch')
    from reflex_ros.study.stage_measure import measure_tiny

    ticks = []
    found = measure_tiny(FOLDER, 3, lambda: ticks.append(1))
    path = tmp_path / 'times.json'
    path.write_text(json.dumps({'profiles': found}), encoding='utf-8')
    profiles = read_profiles(path)
    standard, reflex = profiles['tiny_standard'], profiles['tiny_reflex']
    assert len(ticks) == len(reflex.stages_ms['encode']) == 3
    assert standard.tag == reflex.tag == 'measured'
    assert min(standard.stages_ms['encode']) > min(reflex.stages_ms['encode'])
    assert (standard.pipeline, reflex.pipeline) == ('serial', 'two_stream')
