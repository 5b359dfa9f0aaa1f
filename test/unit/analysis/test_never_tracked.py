"""A run in which the arm never followed a plan is not one without a fault: it says why."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from reflex_ros.analysis.figures import analyse
from reflex_ros.cli.main import main
from reflex_ros.report.page import page

LENGTH_S = 1.4


def no_camera(scene):
    scene.run._camera = lambda: None


def no_inference_ends(scene):
    scene.run.policy_worker._finish = lambda outputs: None


def every_chunk_is_bad(scene):
    offer = scene.run.bridge.offer

    def spoil(chunk, now):
        return offer(replace(chunk, positions=np.full_like(chunk.positions, np.nan)), now)

    scene.run.bridge.offer = spoil


def nothing(scene):
    pass


@pytest.fixture(scope='module')
def bag_of(recorded_scene, tmp_path_factory):
    """Return the maker of bags of short runs to which something happens before they begin."""
    made = {}

    def make(happens):
        if happens not in made:
            scene = recorded_scene(seed=3, duration_s=LENGTH_S)
            happens(scene)
            folder = tmp_path_factory.mktemp(happens.__name__) / 'bag'
            made[happens] = scene.finish().write(folder, images=False, is_brief=True)
        return made[happens]

    return make


@pytest.mark.parametrize(('happens', 'cause', 'said'), [
    (no_camera, 'camera_late', 'Camera main had given no frame yet'),
    (no_inference_ends, 'denoise_late', 'policy was at work for'),
    (every_chunk_is_bad, 'chunk_rejected', 'was rejected on its way'),
], ids=lambda value: getattr(value, '__name__', None))
def test_it_says_what_happened_and_why(bag_of, happens, cause, said):
    found = analyse(bag_of(happens))
    assert found.faults['never_tracked'] == 1 and cause in found.faults
    text = page(found)
    assert 'no fault' not in text and '<h2>The arm never followed a plan</h2>' in text
    assert said in text and 'The arm never followed a plan for 1.' in text
    assert 'It was ' in text and 'holding for' in text


def test_a_run_that_tracked_can_fail_it(bag_of):
    """The same run to which nothing happens has moved, and no fault."""
    found = analyse(bag_of(nothing))
    assert found.never_tracked is None and found.faults == {}
    assert 0 < found.figures['start_s'].value < 1
    assert 'never followed' not in page(found) and 'no fault' in page(found)


def test_the_table_and_the_json_say_it(bag_of, capsys):
    bag = str(bag_of(no_camera))
    assert main(['report', bag]) == 0
    out = capsys.readouterr().out
    assert 'Faults: the arm never followed a plan (camera_late)' in out and 'no fault' not in out
    assert main(['report', bag, '--json', '-']) == 0
    document = json.loads(capsys.readouterr().out)
    assert document['never_tracked'] == 'camera_late'
    assert document['stalls'][0]['kind'] == 'start' and document['stalls'][0]['is_fault']


def test_compare_fails_it_with_and_without_budgets(bag_of, tmp_path, capsys):
    good, still = str(bag_of(nothing)), str(bag_of(no_camera))
    lenient = tmp_path / 'b.yaml'
    lenient.write_text('budgets: {unexplained_ticks: 5, gap_ticks: 5}\n')
    assert main(['compare', still, '--budgets', str(lenient)]) == 5
    assert 'OVER gap_ticks: the arm never followed a plan' in capsys.readouterr().out
    assert main(['compare', good, still]) == 5
    assert 'not comparable: the arm of this run never followed a plan' in capsys.readouterr().out
    assert main(['compare', good, '--budgets', str(lenient)]) == 0


def test_a_fault_that_delays_the_start_is_named(recorded_scene, tmp_path, monkeypatch):
    monkeypatch.setattr('reflex_ros.analysis.stalls.LONG_START_NS', 400_000_000)
    scene = recorded_scene(seed=3, duration_s=2.2)
    camera, scene.run._camera = scene.run._camera, lambda: None

    def plug_in(scene):
        scene.run._camera = camera
        camera()

    scene.at(1.2, plug_in)
    found = analyse(scene.finish().write(tmp_path / 'bag', images=False, is_brief=True))
    assert found.never_tracked is None and found.faults == {'camera_late': 1}
    assert found.stalls[0].kind == 'start' and found.stalls[0].ended_by


def test_a_usual_start_is_no_stall(bag_of):
    """A start that takes no longer than usual is none of the stalls."""
    assert [s.kind for s in analyse(bag_of(nothing)).stalls] == []
