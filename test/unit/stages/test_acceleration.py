"""How a stage runs its network: chosen or refused by name, warmed up, counted, and finished.

Recordings are replaced by replays over the same buffers, lanes by ones that write down what
happens; the ring is a real one.
"""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest
import torch

from reflex_ros.core.clock import MS, ManualClock, S, SystemClock
from reflex_ros.core.errors import ConfigError, ModelError
from reflex_ros.core.probe import ClockProbe
from reflex_ros.core.types import JOINT_NAMES, KvBlock, StateSource
from reflex_ros.infer import device, lanes
from reflex_ros.infer.graph import Graphs, ReplayRecorder
from reflex_ros.ring.reader import RingReader
from reflex_ros.ring.store_cpu import CpuStore
from reflex_ros.ring.writer import RingWriter
from reflex_ros.stages import acceleration, snapshot_load
from reflex_ros.stages.assemble import Shared, make_encoder, make_policy
from reflex_ros.stages.models import InferRequest

CLOCK = SystemClock()
T0 = 1_700_000_000 * S
STATE = np.array([0.1, 0.9, -1.1, 0.05, 0.4, -0.1, 0.03])


@pytest.mark.parametrize(('wanted', 'reason', 'chosen'), [
    ('auto', '', 'cuda'), ('auto', 'no GPU', 'cpu'), ('cpu', '', 'cpu'), ('cuda', '', 'cuda')])
def test_the_device_is_what_there_is(wanted, reason, chosen):
    assert device.choose_device(wanted, why_not=lambda: reason) == chosen


def test_a_gpu_that_was_asked_for_and_is_absent_is_an_error_that_says_why():
    with pytest.raises(ConfigError, match="policy.device: got 'cuda'.*no driver at all"):
        device.choose_device('cuda', why_not=lambda: 'no driver at all')


@pytest.mark.parametrize(('wanted', 'where', 'kind'), [
    ('auto', 'cpu', 'traced'), ('auto', 'cuda', 'cuda_graph'), ('eager', 'cpu', 'eager'),
    ('eager', 'cuda', 'eager'), ('traced', 'cpu', 'traced'), ('cuda_graph', 'cuda', 'cuda_graph')])
def test_the_way_is_what_was_asked_for(wanted, where, kind):
    assert device.choose_acceleration(wanted, where).kind == kind


@pytest.mark.parametrize(('wanted', 'where', 'why'), [
    ('cuda_graph', 'cpu', 'on the CPU'), ('traced', 'cuda', 'on the GPU')])
def test_a_way_that_the_device_has_not_is_an_error_that_says_why(wanted, where, why):
    with pytest.raises(ConfigError, match=f"policy.acceleration: got '{wanted}'.*{why}"):
        device.choose_acceleration(wanted, where)


def test_without_a_gpu_the_reason_is_told():
    reason = device.why_no_cuda()
    assert bool(reason) != torch.cuda.is_available()


class Rig:
    """Encoder and policy of one process; everything is recorded where ``recorded``."""

    def __init__(self, params):
        self.params, self.lines = params, []
        self.shared = Shared()
        told = {'shared': self.shared, 'progress': self.lines.append}
        self.parts = [make_encoder(params, CLOCK, namespace=f'/a{id(self)}', **told)]
        self.parts.append(make_policy(params, CLOCK, namespace='/', **told))
        self.encoder, self.model = self.parts[0].encoder, self.parts[1].model
        self.encoder.instruction('fold the towel', 1, ClockProbe(CLOCK))
        self.number = 0

    def chunk(self, seed=0):
        self.number += 1
        cameras = self.params['camera.names']
        block = KvBlock(self.number, T0, 1, cameras, (T0,) * len(cameras))
        if self.encoder.state_joints:
            block = KvBlock(self.number, T0, 1, cameras, (T0,) * len(cameras),
                            state_source=StateSource.MEASURED, state_at_ns=T0, state=STATE,
                            joint_names=JOINT_NAMES)
        drawn = np.random.default_rng(seed)
        images = {name: drawn.integers(0, 256, (48, 72, 3), np.uint8) for name in cameras}
        block = self.encoder.encode(block, images, ClockProbe(CLOCK))
        return self.model.infer(InferRequest(block, 1, STATE, T0), ClockProbe(CLOCK))

    def close(self):
        for part in reversed(self.parts):
            part.close()


@pytest.fixture
def rig(family_checkpoint, family_params, monkeypatch):
    made = []

    def make(family='pi05', *, recorded=False, **changes):
        folder = family_checkpoint(family, action_std=0.1, name=f'made{len(made)}')
        right = acceleration.make_graphs
        if recorded:
            changes = {'policy__traced': False, 'policy__num_denoise_steps': 2, **changes}
            monkeypatch.setattr(acceleration, 'make_graphs',
                                lambda *args: right(*args, recorder=ReplayRecorder()))
        made.append(Rig(family_params(family, folder, **changes)))
        monkeypatch.setattr(acceleration, 'make_graphs', right)
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize('family', ['pi0', 'smolvla'])
def test_stages_by_recordings_make_the_chunks_of_stages_without(rig, family):
    recorded, plain = rig(family, recorded=True), rig(family, policy__num_denoise_steps=2)
    for seed in range(2):
        np.testing.assert_allclose(recorded.chunk(seed), plain.chunk(seed), rtol=0, atol=2e-5)
    for part in recorded.parts:
        facts = part.accelerated.facts()
        assert facts['late_recordings'] == 0 and facts['eager_calls'] == 0
        assert facts['recordings'] > 0 and facts['replays'] >= 2 and facts['warm_up_s'] > 0
    assert recorded.parts[1].accelerated.facts()['denoise_ms'] > 0
    assert any('warm-up: replay 1 of' in line for line in recorded.lines)


def test_a_camera_that_was_not_expected_is_a_late_recording_can_fail(rig):
    recorded = rig('pi0', recorded=True)
    block = recorded.parts[1].model
    block._recorded.graphs.run(('free', 1), lambda: None)
    assert recorded.parts[1].accelerated.facts()['late_recordings'] == 1


def test_what_runs_is_told_in_one_line(rig):
    parts = rig('pi0').parts
    told = str(parts[1].accelerated)
    assert told.startswith('acceleration: device=cpu acceleration=traced lane=thread denoise_ms=')
    assert 'recordings' not in told
    assert 'acceleration=traced' in parts[0].loaded.about


def test_the_old_switch_still_chooses_on_the_cpu(family_params, family_checkpoint):
    folder = family_checkpoint('pi0')
    for traced, kind in ((True, 'traced'), (False, 'eager')):
        params = family_params('pi0', folder, policy__traced=traced)
        assert snapshot_load.chosen_acceleration(params).kind == kind


@pytest.mark.parametrize(('cache', 'where', 'kind'), [
    ('naive', 'cpu', 'eager'), ('naive', 'cuda', 'eager'), ('full', 'cuda', 'eager'),
    ('full', 'cpu', 'traced'), ('partitioned', 'cuda', 'cuda_graph')])
def test_what_is_told_is_what_the_cache_allows(family_params, family_checkpoint, monkeypatch,
                                               cache, where, kind):
    params = family_params('pi0', family_checkpoint('pi0'), policy__cache=cache)
    monkeypatch.setattr(snapshot_load, 'choose_device', lambda _: where)
    chosen = snapshot_load.chosen_acceleration(params)
    assert chosen.kind == kind
    assert (f'policy.cache is {cache}' in chosen.reason) == (kind == 'eager')
    if kind == 'eager':
        asked = {**params, 'policy.acceleration': 'cuda_graph' if where == 'cuda' else 'traced'}
        with pytest.raises(ConfigError, match=f"with policy.cache '{cache}'"):
            snapshot_load.chosen_acceleration(asked)


class NotedLane:
    """A lane that writes down when it is entered, finished and left."""

    name, kind = 'noted', 'noted'

    def __init__(self, events):
        self.events = events

    @contextmanager
    def entered(self):
        self.events.append('enter')
        yield
        self.events.append('leave')

    def finish(self):
        self.events.append('finish')


class Careless(NotedLane):
    """Never waits for its work."""

    def finish(self):
        pass


def unfinished(rig, monkeypatch, lane):
    """Return which steps were taken while work was under way."""
    events, found = [], []
    kind = lane(events)
    monkeypatch.setattr(snapshot_load, 'make_lanes',
                        lambda *_, **__: {lanes.ENCODER: kind, lanes.POLICY: kind})
    one = rig('pi0')

    def watched(owner, name):
        right = getattr(owner, name)

        def call(*args, **kwargs):
            if events and events[-1] != 'finish':
                found.append(name)
            return right(*args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    watched(RingWriter, 'commit')
    watched(RingReader, 'release')
    monkeypatch.setattr(CpuStore, 'frame', tensor_frame(CpuStore.frame))
    one.chunk()
    return found, events


def tensor_frame(right):
    """Return views as torch tensors, as a store on a GPU has them."""
    def frame(self, slot):
        return torch.from_numpy(np.array(right(self, slot), copy=True))
    return frame


def test_nothing_is_published_or_given_back_before_the_lane_is_done(rig, monkeypatch):
    found, events = unfinished(rig, monkeypatch, NotedLane)
    assert found == []
    assert events.count('enter') == events.count('leave') == 2


def test_a_lane_that_is_not_waited_for_is_noticed_can_fail(rig, monkeypatch):
    found, _ = unfinished(rig, monkeypatch, Careless)
    assert found == ['commit', 'release']


def test_lanes_of_the_cpu_are_the_threads():
    made = lanes.make_lanes('cpu', is_serial=True)
    assert sorted(made) == ['encoder', 'policy']
    with made['encoder'].entered():
        made['encoder'].finish()
    assert made['policy'].kind == 'thread'


class FakeStreams:
    """Stands in for ``torch.cuda``: streams with priorities, events that sleep."""

    def __init__(self):
        self.log = []

    def stream(self, _, *, priority=0):
        made = type('Stream', (), {'priority': priority})()
        return made

    def install(self, monkeypatch):
        outer = self

        class Event:
            def __init__(self, *, blocking):
                assert blocking, 'a thread that spins takes a core from the control loop'

            def record(self, stream):
                outer.log.append(('record', stream.priority))

            def synchronize(self):
                outer.log.append(('wait',))

        class Stream:
            priority_range = staticmethod(lambda: (0, -5))

            def __init__(self, _, *, priority):
                self.priority = priority

        @contextmanager
        def current(stream):
            outer.log.append(('on', stream.priority))
            yield

        monkeypatch.setattr(torch.cuda, 'Event', Event)
        monkeypatch.setattr(torch.cuda, 'Stream', Stream)
        monkeypatch.setattr(torch.cuda, 'stream', current)


def test_the_policy_has_the_higher_priority_and_a_finish_sleeps(monkeypatch):
    streams = FakeStreams()
    streams.install(monkeypatch)
    made = lanes.make_lanes('cuda')
    for name in ('encoder', 'policy'):
        with made[name].entered():
            pass
        made[name].finish()
    assert streams.log == [('on', 0), ('record', 0), ('wait',),
                           ('on', -5), ('record', -5), ('wait',)]


def test_taking_turns_they_share_one_stream(monkeypatch):
    FakeStreams().install(monkeypatch)
    made = lanes.make_lanes('cuda', is_serial=True)
    assert made['encoder'] is made['policy']


def test_a_rounded_prefix_is_measured_and_told_or_refused(rig):
    told = rig('pi0', policy__prefix_dtype='fp8', policy__fp8_max_error_rad=1.0)
    assert 'fp8 prefix: largest action error' in told.parts[0].loaded.about
    with pytest.raises(ModelError, match='fp8 prefix cannot be used: got action errors of joint'):
        rig('pi0', policy__prefix_dtype='fp8', policy__fp8_max_error_rad=0.0)


def test_a_median_is_that_of_the_clock():
    clock = ManualClock()
    steps = iter((5, 1, 3))
    spent = acceleration.median_ms(lambda: clock.advance(next(steps) * MS),
                                   lanes.HostLane('x'), clock, calls=3)
    assert spent == 3.0


def test_no_recordings_where_none_were_chosen():
    chosen = device.Acceleration('cpu', 'eager', 'asked for')
    assert acceleration.make_graphs(chosen, CLOCK) is None
    assert isinstance(
        acceleration.make_graphs(chosen, CLOCK, recorder=ReplayRecorder()), Graphs)
