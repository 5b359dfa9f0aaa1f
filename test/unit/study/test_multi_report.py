"""The table of the policy for several tasks says of how many, and leaves out what was not run."""

from __future__ import annotations

from reflex_ros.study.multi_report import AS_TRAINED, COLOUR, multi_lines


def cell(task, condition, successes, judged, error=None):
    return {'task': task, 'condition': condition, 'episodes': judged, 'judged': judged,
            'successes': successes, 'success': successes / judged, 'success_low': 0.1,
            'success_high': 0.9, 'mean_error_mm': error}


def lines(*cells):
    config = {'first_seed': 5000, 'tolerance_m': 0.05}
    return multi_lines({'summary': list(cells), 'config': config})


def test_every_task_has_a_row_with_share_interval_and_count():
    found = lines(cell('jump', AS_TRAINED, 30, 40, 21.4), cell('jump', COLOUR, 1, 4),
                  cell('drawer', AS_TRAINED, 0, 10))
    assert '| `jump` | 75 (10 to 90; 40) |  |  | 25 (10 to 90; 4) |  | 21 |' in found
    assert '| `drawer` | 0 (10 to 90; 10) |  |  |  |  |  |' in found
    assert 'seed 5000' in found[0] and '50 mm' in found[0]


def test_a_changed_share_can_fail():
    assert lines(cell('jump', AS_TRAINED, 30, 40)) != lines(cell('jump', AS_TRAINED, 31, 40))
