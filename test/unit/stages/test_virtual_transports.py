"""What travels between the stages of a virtual run takes the time that its costs say."""

from __future__ import annotations

import pytest

from reflex_ros.core.clock import MS
from reflex_ros.core.probe import constant_costs
from reflex_ros.study.episode import EpisodeSpec, run_episode

STAGES = {'encode': 5.0, 'denoise': 15.0}
WAYS = {'transport': 7.0, 'transport_block': 3.0, 'transport_plan': 2.0, 'transport_frame': 4.0}


def run(**ways):
    spec = EpisodeSpec(mode='async_naive', duration_s=0.6, seed=1)
    return run_episode(spec, costs=constant_costs(**STAGES, **ways)).log


def delays(log):
    """Return frame to encoding, encoding to inference and inference to acceptance, ms."""
    found = set()
    for trace in log.traces:
        stages = {stage.name: stage for stage in trace.stages}
        if trace.inference_start_ns and trace.accepted_ns:
            found.add((
                (stages['encode'].start_ns - trace.observation_stamp_ns) / MS,
                (trace.accepted_ns - stages['denoise'].end_ns) / MS))
    return found


@pytest.fixture(scope='module')
def logs():
    return run(), run(**WAYS)


def offset(log):
    tick = log.ticks[0]
    return (tick.due_ns - tick.stamp_ns) / MS


def test_a_way_takes_its_cost_and_without_one_no_time(logs):
    for log, frame_ms, chunk_ms in zip(logs, (0.0, 4.0), (0.0, 7.0), strict=True):
        assert delays(log) == {(frame_ms + offset(log), chunk_ms)}


def test_a_block_and_a_plan_arrive_later(logs):
    def soonest(log):
        return min(trace.inference_start_ns - next(
            s.end_ns for s in trace.stages if s.name == 'encode') for trace in log.traces)

    assert soonest(logs[1]) == soonest(logs[0]) + 3 * MS


def test_ways_are_part_of_the_reaction(logs):
    without, with_ways = (min(t.first_command_stamp_ns - t.newest_stamp_ns for t in log.traces
                              if t.first_command_stamp_ns) for log in logs)
    assert with_ways > without
