"""[ci] Recorded work: same buffers, same addresses, no waiting, nothing recorded twice.

The graph is replaced by running the work again under a watch that refuses what a graph cannot do.
"""

from __future__ import annotations

import pytest
import torch

from reflex_ros.core.clock import MS, ManualClock
from reflex_ros.infer.graph import GraphError, Graphs, ReplayRecorder


class Double:
    """Writes twice the input into the output; faults can be planted."""

    def __init__(self):
        self.source, self.out = torch.zeros(4), torch.zeros(4)
        self.fault = ''
        self.kept = []

    def work(self):
        made = self.source * 2
        if self.fault == 'sync' and float(made.sum()) < 0:
            made = -made
        if self.fault == 'host':
            made = made + torch.tensor([1.0, 2.0, 3.0, 4.0])
        if self.fault == 'keep':
            self.kept.append(made)
        if self.fault == 'more':
            made = made + 1
        self.out.copy_(made)


def test_a_replay_reads_and_writes_the_buffers_of_the_recording():
    double = Double()
    replay = ReplayRecorder().record(double.work)
    for value in (1.0, 5.0):
        double.source.fill_(value)
        replay()
        assert double.out.tolist() == [2 * value] * 4


@pytest.mark.parametrize('fault', ['sync', 'host', 'keep'])
def test_work_that_no_graph_can_hold_is_refused_can_fail(fault):
    double = Double()
    double.fault = fault
    with pytest.raises(GraphError, match='cannot be recorded'):
        ReplayRecorder().record(double.work)


def test_a_buffer_that_moved_is_noticed_can_fail():
    double = Double()
    replay = ReplayRecorder().record(double.work)
    old, double.source = double.source, torch.ones(4)
    with pytest.raises(GraphError, match='addresses'):
        replay()
    double.source = old
    replay()


def test_other_operations_than_recorded_are_noticed_can_fail():
    double = Double()
    replay = ReplayRecorder().record(double.work)
    double.fault = 'more'
    with pytest.raises(GraphError, match='operations'):
        replay()


def test_memory_that_grows_from_run_to_run_is_noticed_can_fail():
    sizes, out = [8], torch.zeros(1)

    def work():
        out.copy_(torch.zeros(sizes[0]).sum())

    replay = ReplayRecorder().record(work)
    sizes[0] = 16
    with pytest.raises(GraphError, match='made'):
        replay()


class SlowRecorder(ReplayRecorder):
    """Each recording takes 200 ms of a clock that is set by hand."""

    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def record(self, work):
        self.clock.advance(200 * MS)
        return super().record(work)


def test_warm_up_records_everything_and_tells_its_progress():
    clock, lines, double = ManualClock(), [], Double()
    graphs = Graphs(SlowRecorder(clock), clock=clock, progress=lines.append)
    graphs.warm([('a', double.work), ('b', double.work)])
    assert [line.split(',')[0] for line in lines] == [
        'warm-up: replay 1 of 2 (a)', 'warm-up: replay 2 of 2 (b)']
    assert '0.4 s' in lines[1]
    for key in 'abab':
        graphs.run(key, double.work)
    counts = graphs.counts
    assert (counts.recorded, counts.late, counts.replayed) == (2, 0, 4)
    assert counts.warm_ns == 400 * MS


def test_a_recording_after_the_warm_up_is_counted_can_fail():
    double = Double()
    graphs = Graphs(ReplayRecorder(), clock=ManualClock())
    graphs.warm([('a', double.work)])
    graphs.run('b', double.work)
    graphs.run('b', double.work)
    assert (graphs.counts.recorded, graphs.counts.late) == (2, 1)
