"""A correction of the system clock within a bag, or wrong receipts, cost a replay nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reflex_ros.bag import values
from reflex_ros.bag.encode import TOPICS, Encoder
from reflex_ros.bag.encode_flow import FlowEncoder
from reflex_ros.bag.files import BagFiles, BagTopic
from reflex_ros.bag.read import BagReader
from reflex_ros.core.clock import MS, S
from reflex_ros.core.clock_steps import find_steps
from reflex_ros.core.errors import LayoutError
from reflex_ros.core.types import JOINT_NAMES
from reflex_ros.stages import replay_source, replay_straight
from reflex_ros.study.episode import EpisodeSpec, run_episode

AT_NS = 1600 * MS
"""When the clock steps, after the first tick."""
DELAY_NS = 7 * MS
STEPS = [(by, by) for by in (-3 * S, -500 * MS, 500 * MS, 3600 * S)]
ODD = [(-3 * S, 0), (0, 3600 * S), (0, -3 * S), (500 * MS, 0)]


@pytest.fixture(scope='module')
def log():
    return run_episode(EpisodeSpec(duration_s=4.0, seed=1)).log


@pytest.fixture(scope='module')
def encoders():
    return Encoder(), FlowEncoder()


@pytest.fixture(scope='module')
def make(log, encoders, tmp_path_factory):
    """Return a bag whose stamps and receipts move by so much after ``AT_NS``."""
    encoder, flow = encoders

    def make(stamp_step, receipt_step, *, storage='mcap', receipt=None):
        begin_ns = log.ticks[0].stamp_ns + AT_NS
        topics = [BagTopic(name, encoder.schemas[kind.__name__]) for kind, name in TOPICS]
        topics.append(BagTopic('/joint_states', flow.schemas['JointState']))
        folder = tmp_path_factory.mktemp('run') / 'bag'
        files = BagFiles(folder, topics, storage=storage)
        files.open()

        def moved(at_ns, step_ns=stamp_step):
            return at_ns + (step_ns if at_ns >= begin_ns else 0)

        rows = [(t.stamp_ns, '/control_tick', replace(t, stamp_ns=moved(t.stamp_ns)))
                for t in log.ticks]
        rows += [(t.stamp_ns, '/joint_states', t) for t in log.ticks]
        rows += [(t.stamp_ns, '/sim_truth', replace(t, stamp_ns=moved(t.stamp_ns), events=tuple(
            replace(e, stamp_ns=moved(e.stamp_ns)) for e in t.events))) for t in log.truths]
        names = ('stamp_ns', 'newest_stamp_ns', 'observation_stamp_ns', 'first_command_stamp_ns')
        rows += [(t.stamp_ns, '/chunk_trace', replace(
            t, **{name: moved(getattr(t, name)) for name in names})) for t in log.traces]
        for at_ns, topic, value in sorted(rows, key=lambda row: row[0]):
            data = (flow.joint_state(moved(at_ns), JOINT_NAMES, value.measured)
                    if topic == '/joint_states' else encoder.encode(value))
            got_ns = moved(at_ns + DELAY_NS, receipt_step) if receipt is None else receipt
            files.write(topic, got_ns, data)
        files.close()
        return folder

    return make


def seen(folder):
    """Return what a replay takes from a bag: states, ticks, and every event with its times."""
    recorded = replay_source.read_recorded(folder)
    with BagReader(folder) as reader:
        events = []
        for message in recorded.events(reader):
            truth = values.sim_truth(reader.decode(message))
            events.append((message.stamp_ns, values.header_stamp(message.data), truth.number,
                           tuple(e.stamp_ns for e in truth.events)))
    return recorded, events


@pytest.fixture(scope='module')
def whole(make):
    return seen(make(0, 0))


def is_as(found, whole):
    (one, events), (other, others) = found, whole
    return (events == others and np.array_equal(one.states.at_ns, other.states.at_ns)
            and np.array_equal(one.states.position, other.states.position)
            and [t.stamp_ns for t in one.ticks] == [t.stamp_ns for t in other.ticks]
            and (one.start_ns, one.stop_ns) == (other.start_ns, other.stop_ns))


@pytest.mark.parametrize(('stamps', 'receipts'), [*STEPS, *ODD])
def test_a_step_costs_a_replay_nothing(make, whole, stamps, receipts):
    found = seen(make(stamps, receipts))
    assert len(whole[1]) > 90 and whole[0].steps is None and whole[0].notes == ()
    assert any(times for _, _, _, times in whole[1])
    assert is_as(found, whole)
    assert any('stepped by' in note for note in found[0].notes) == bool(stamps)
    assert any('received far from' in note for note in found[0].notes) == (
        abs(receipts - stamps) >= S)


@pytest.mark.parametrize(('stamps', 'receipts'), [*STEPS, *ODD])
def test_a_step_costs_a_replay_nothing_can_fail(make, whole, stamps, receipts, monkeypatch):
    """Whoever does not see it loses events, or misplaces them."""
    monkeypatch.setattr(replay_source, 'find_steps', lambda *_: find_steps([], []))
    monkeypatch.setattr(replay_source, 'LONGEST_NS', 1 << 62)
    assert not is_as(seen(make(stamps, receipts)), whole)


def test_a_step_in_a_bag_of_sqlite_costs_nothing(make, whole):
    assert is_as(seen(make(-3 * S, -3 * S, storage='sqlite3')), whole)


def test_first_commands_of_traces_are_straight(make, log):
    recorded = replay_source.read_recorded(make(-3 * S, -3 * S))
    by_id = {t.chunk_id: t for t in recorded.traces}
    for trace in log.traces:
        assert by_id[trace.chunk_id].first_command_stamp_ns == trace.first_command_stamp_ns
        assert by_id[trace.chunk_id].newest_stamp_ns in (0, trace.newest_stamp_ns)


def test_a_bag_without_receipts_is_replayed_by_its_stamps_and_says_so(make, whole):
    recorded, events = seen(make(0, 0, receipt=0))
    assert [row[1:] for row in events] == [row[1:] for row in whole[1]]
    assert [note for note in recorded.notes if 'received far from' in note]


def test_where_the_order_of_writing_is_lost_no_event_is(make, whole, monkeypatch):
    def lost(folder):
        raise LayoutError('compressed')

    monkeypatch.setattr(replay_straight, 'written_order', lost)
    recorded, events = seen(make(-3 * S, -3 * S))
    assert len(events) >= len(whole[1]) - 2
    assert [row[0] for row in events] == sorted(row[0] for row in events)
