"""Bytes of a context: what is computed is what is measured, and a wrong size would show."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

import pytest

from reflex_ros.infer.families.tiny_network import TinyConfig
from reflex_ros.infer.policy import SnapshotPolicy
from reflex_ros.study.bench_subject import FAMILIES, random_subject
from reflex_ros.study.context_memory import (
    BENCH,
    FULL,
    JOINED,
    METHODS,
    OURS,
    PUBLISHED,
    measure_snapshot,
    measure_tiny,
    snapshot_shape,
    tiny_shape,
)

SMALL = TinyConfig(
    image_size=16, vision_layers=1, layers=2, width=12, heads=2, kv_heads=1, head_dim=6,
    gate_hidden=8, horizon=10, rows_per_token=5, instruction_tokens=4, vocabulary=11, tau_dim=6,
)  # fmt: skip
PAGE = 4096


def kept(found):
    return {method: bytes_[0] for method, bytes_ in found.items()}


@pytest.mark.parametrize(('frames', 'words'), [(1, 4), (3, 9)])
def test_computed_is_measured_for_the_small_policy(frames, words):
    found = measure_tiny(SMALL, frames, words)
    assert kept(found) == expected_tiny(tiny_shape(SMALL), frames, words)


def expected_tiny(shape, frames, words):
    return shape.kept(frames, words)


@pytest.mark.parametrize('family', FAMILIES)
def test_computed_is_measured_for_a_snapshot(family):
    subject = random_subject(family, 'tiny', seed=0)
    shape = snapshot_shape(SnapshotPolicy(subject.pretrained))
    assert kept(measure_snapshot(subject, 2, 11)) == shape.kept(2, 11)


def test_equal_bytes_can_fail():
    shape = replace(tiny_shape(SMALL), frame_tokens=2)
    assert kept(measure_tiny(SMALL, 3, 9)) != expected_tiny(shape, 3, 9)


def test_published_prefixes_have_the_known_sizes():
    """Three images of 256 and a prompt of 48 tokens are 816 rows: 15 MB for Pi0."""
    assert PUBLISHED['pi0'].kept(3, 48)[JOINED] == 18 * 2 * 816 * 256 * 2
    assert PUBLISHED['smolvla'].kept(3, 48)[JOINED] == 16 * 2 * 240 * 5 * 64 * 2


def test_peaks_are_above_what_is_kept_and_concatenation_grows_with_the_context():
    few, many = measure_tiny(SMALL, 1, 4), measure_tiny(SMALL, 12, 4)
    for found in (few, many):
        assert all(peak > size for size, peak in found.values())
    grown = [(many[m][1] - many[m][0]) - (few[m][1] - few[m][0]) for m in (JOINED, OURS, FULL)]
    assert grown[2] > grown[0] > grown[1] - PAGE


def test_rows_lines_and_picture():
    options = argparse.Namespace(frames=[1, 3], words=[4, 8], families=['smolvla'], seed=0,
                                 config=SMALL)
    ticks = []
    found = json.loads(json.dumps(BENCH.run(options, lambda: ticks.append(1))))
    assert len(ticks) == BENCH.total(options)
    assert {row['method'] for row in found['rows']} == set(METHODS)
    assert {row['source'] for row in found['rows']} == {'measured', 'computed'}
    assert all((row['peak'] is None) == (row['source'] == 'computed') for row in found['rows'])
    text = '\n'.join(BENCH.lines(found))
    assert '| smolvla | computed | prompt of 8 |' in text
    assert len(BENCH.draw(found).axes) == 2
