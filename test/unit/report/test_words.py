"""A stall in a sentence names what was late: stage, chunk, node or camera."""

from __future__ import annotations

import numpy as np
import pytest

from reflex_ros.analysis.figures import analyse
from reflex_ros.analysis.intervals import NOTHING, Estimate
from reflex_ros.report.words import duration, faults_text, figure, interval, sentence


@pytest.fixture
def told(recorded_scene, tmp_path):
    def tell(inject):
        scene = recorded_scene(seed=6, duration_s=2.8, cameras=('main', 'wrist'))
        scene.at(1.1, inject)
        bag = scene.finish().write(tmp_path / 'bag', images=False, is_brief=True)
        return sentence(next(s for s in analyse(bag).stalls if s.is_fault))

    return tell


def test_the_camera_that_is_silent_is_named(told):
    def silence(scene):
        on_frame = scene.run.encoder.on_frame
        scene.run.encoder.on_frame = lambda f: on_frame(f) if f.camera == 'main' else None

    text = told(silence)
    assert '(camera_late)' in text and 'Camera wrist had given no frame for' in text
    assert 'Camera main' not in text


def test_the_camera_that_repeats_itself_is_named(told):
    still = np.zeros((12, 16, 3), np.uint8)

    def freeze(scene):
        fresh = scene.picture
        scene.picture = lambda camera: still if camera == 'wrist' else fresh(camera)

    text = told(freeze)
    assert '(camera_frozen)' in text and 'held although a chunk was live' in text
    assert 'Camera wrist had repeated its picture' in text and 'Camera main' not in text


def test_a_sentence_tells_the_stage_that_took_long(stalled_bag):
    text = sentence(analyse(stalled_bag).stalls[0])
    assert 'policy was at work for' in text and 'was rejected on its way' in text
    assert 'ended it: frame' in text


def test_figures_have_units_and_open_ends_are_said():
    assert figure(Estimate(0.0123, 0, 1, 5), 'share') == '1.23 %'
    assert figure(NOTHING, 'ms') == 'none' and interval(NOTHING, 'ms') == ''
    assert interval(Estimate(4.0, 3.0, float('inf'), 9), 'ms') == '3.0 to open'
    assert (duration(1234), duration(12.3), duration(1.23)) == ('1.23 s', '12 ms', '1.2 ms')
    assert faults_text({}) == 'no fault'
    assert faults_text({'transport': 2, 'clock': 1}) == 'transport (2 times), clock (1 time)'
