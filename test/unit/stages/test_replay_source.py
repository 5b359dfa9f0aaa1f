"""One damaged message costs a replay that message, and is named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reflex_ros.bag.encode import TOPICS, Encoder, topic_of
from reflex_ros.bag.encode_flow import FlowEncoder
from reflex_ros.bag.files import BagFiles, BagTopic
from reflex_ros.core.clock import S
from reflex_ros.core.errors import ConfigError
from reflex_ros.core.types import JOINT_NAMES
from reflex_ros.stages.replay_source import read_recorded
from reflex_ros.study.episode import EpisodeSpec, run_episode


@pytest.fixture(scope='module')
def log():
    return run_episode(EpisodeSpec(duration_s=1.5, seed=1)).log


@pytest.fixture(scope='module')
def encoders():
    return Encoder(), FlowEncoder()


@pytest.fixture
def read(log, encoders, tmp_path):
    """Return what a replay reads of a bag whose ticks, traces and states were changed."""
    encoder, flow = encoders

    def read(*, tick=lambda tick: tick, trace=lambda trace: trace, joint=lambda ns, row: (ns, row),
             cut=()):
        topics = [BagTopic(name, encoder.schemas[kind.__name__]) for kind, name in TOPICS]
        topics.append(BagTopic('/joint_states', flow.schemas['JointState']))
        files = BagFiles(tmp_path / 'bag', topics)
        files.open()
        for value in log.ticks:
            changed = tick(value)
            data = encoder.encode(changed)
            files.write('/control_tick', value.stamp_ns,
                        data[:60] if value.number in cut else data)
            at_ns, row = joint(value.stamp_ns, value.measured)
            files.write('/joint_states', value.stamp_ns, flow.joint_state(at_ns, JOINT_NAMES, row))
        for value in log.traces:
            files.write(topic_of(value), value.stamp_ns, encoder.encode(trace(value)))
        files.close()
        return read_recorded(tmp_path / 'bag')

    return read


def tenth(**fields):
    return lambda tick: replace(tick, **fields) if tick.number == 10 else tick


def test_a_whole_bag_is_read_whole(read, log):
    recorded = read()
    assert recorded.notes == ()
    assert len(recorded.ticks) == len(log.ticks) and len(recorded.states.at_ns) == len(log.ticks)
    assert recorded.stop_ns - recorded.start_ns == len(log.ticks) * 20_000_000


@pytest.mark.parametrize('fields', [
    {'index': 2**40}, {'index': 2**63}, {'due_ns': -2**63}, {'chunk_id': 2**63}], ids=str)
def test_a_tick_with_a_number_that_none_has_is_left_out_and_named(read, log, fields):
    recorded = read(tick=tenth(**fields))
    assert [tick.number for tick in recorded.ticks] == [
        tick.number for tick in log.ticks if tick.number != 10]
    (note,) = recorded.notes
    assert note.startswith('/control_tick: 1 messages are left out: ')
    assert f'got {next(iter(fields))} ' in note


@pytest.mark.parametrize('fields', [
    {'index': 400_000}, {'due_ns': 2**62}, {'due_ns': 3600 * S}, {'stamp_ns': 2**31 * S - 1},
    {'stamp_ns': 0}, {'index': 30_000_000, 'due_ns': 600_001 * S},
], ids=str)
def test_one_absurd_tick_is_left_out_and_named(read, log, fields):
    recorded = read(tick=tenth(**fields))
    assert [tick.number for tick in recorded.ticks] == [
        tick.number for tick in log.ticks if tick.number != 10]
    assert recorded.notes == (
        f'control_tick: 1 of {len(log.ticks)} ticks are left out: their instants do not fit '
        'their indices, or lie far from all others',)
    assert recorded.stop_ns - recorded.start_ns == len(log.ticks) * 20_000_000


def test_a_torn_tick_is_left_out_and_named(read, log):
    recorded = read(cut=(10, 11))
    assert len(recorded.ticks) == len(log.ticks) - 2
    assert recorded.notes == (
        '/control_tick: 2 messages are left out: they cannot be decoded',)


def test_a_bag_of_torn_ticks_only_is_an_error(read, log):
    with pytest.raises(ConfigError, match='no control_tick'):
        read(cut=range(len(log.ticks) + 1))


def test_states_with_absurd_stamps_or_values_are_left_out_and_named(read, log):
    """A single one from the future would else hide all that follow."""
    def joint(at_ns, row):
        number = (at_ns - log.ticks[0].stamp_ns) // 20_000_000
        if number == 5:
            return at_ns + 10**6 * S, row
        return at_ns, row * np.nan if number == 7 else row

    recorded = read(joint=joint)
    assert len(recorded.states.at_ns) == len(log.ticks) - 2
    assert recorded.notes == (
        '/joint_states: 1 messages are left out: their stamps lie far from their receipt',
        '/joint_states: 1 states are left out: they do not have a finite position of each joint')


def test_a_stage_that_lasts_for_years_is_left_out_and_named(read, log):
    number = next(t.number for t in log.traces if t.stages)

    def trace(value):
        if value.number != number:
            return value
        stage = value.stages[0]
        return replace(value, stages=(replace(stage, end_ns=stage.start_ns + 10**9 * S),
                                      *value.stages[1:]))

    recorded = read(trace=trace)
    name = next(t.stages[0].name for t in log.traces if t.number == number)
    assert f'{name}: 1 durations are left out: longer than 600 s' in recorded.notes
    assert max(recorded.samples[name].duration_ns) < S
