"""A correction of the clock within a run: summary, picture, page and view are as without it."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from reflex_ros.analysis.figures import analyse
from reflex_ros.bag import values
from reflex_ros.bag.files import BagFiles, BagTopic
from reflex_ros.bag.read import BagReader
from reflex_ros.bag.schema import Schema, typestore_of
from reflex_ros.core.clock import MS, S
from reflex_ros.report import page_frames, run_data, view
from reflex_ros.report.page_frames import shots_of
from reflex_ros.report.run_data import load_run, strip_files
from reflex_ros.report.series import series
from reflex_ros.report.summary import write_summary

AT_NS = 1700 * MS
"""When the clock steps, after the first receipt."""
EARLY_NS = 10**15
"""No stamp of ROS time is earlier, no steady time and no duration is as late."""
STEPS_MS = (-500, 3_600_000)
UNSURE = ('delays/observation_to_command_ms', 'delays/observation_age_ms')


def times_of(message):
    """Yield every ``builtin_interfaces/Time`` in a message."""
    if hasattr(message, 'nanosec'):
        yield message
        return
    for value in vars(message).values():
        for item in value if isinstance(value, list) else [value]:
            if hasattr(item, '__msgtype__'):
                yield from times_of(item)


def age(message, moved):
    """Correct the age of an observation as the bridge would have told it."""
    if getattr(message, 'observation_age_ns', -1) >= 0:
        now_ns = values.stamp_of(message.header.stamp)
        message.observation_age_ns = moved(now_ns) - moved(now_ns - message.observation_age_ns)


def step(bag, folder, step_ns):
    """Copy a bag into a run folder, with every ROS time after ``AT_NS`` moved."""
    with BagReader(bag) as reader:
        store = typestore_of((i.type, i.definition) for i in reader.topics.values())
        files = BagFiles(folder / 'bag', [
            BagTopic(name, Schema(i.type, i.definition, ''), i.qos)
            for name, i in reader.topics.items()])
        files.open()
        begin_ns = 0

        def moved(at_ns):
            return at_ns + (step_ns if at_ns >= begin_ns else 0)

        for message in reader.messages(*reader.topics):
            begin_ns = begin_ns or message.stamp_ns + AT_NS
            value = store.deserialize_cdr(message.data, message.type)
            age(value, moved)
            for time in times_of(value):
                at_ns = values.stamp_of(time)
                if at_ns > EARLY_NS:
                    time.sec, time.nanosec = divmod(moved(at_ns), S)
            files.write(message.topic, moved(message.stamp_ns),
                        bytes(store.serialize_cdr(value, message.type)))
        files.close()
    return folder


@pytest.fixture(scope='module')
def make(stalled_bag, tmp_path_factory):
    made = {}

    def make(step_ms):
        if step_ms not in made:
            made[step_ms] = step(stalled_bag, tmp_path_factory.mktemp('run'), step_ms * MS)
        return made[step_ms]

    return make


def require_same_summary(one, other):
    was, now = write_summary(one), write_summary(other)
    for key in was.keys() - {'reaction_ms', 'observation_to_command_ms', 'left_out'}:
        assert now[key] == was[key], key
    assert now['reaction_ms']['kind'] == was['reaction_ms']['kind']
    for key in ('reaction_ms', 'observation_to_command_ms'):
        assert was[key]['n'] - 10 <= now[key]['n'] <= was[key]['n']
        assert 0 < now[key]['p50'] <= now[key]['p99'] <= 1.5 * was[key]['p99']
    assert was['left_out'] == []
    assert any(text.startswith('ROS time stepped by') for text in now['left_out'])


@pytest.mark.parametrize('step_ms', STEPS_MS)
def test_the_summary_is_as_without_it_and_names_it(make, step_ms):
    require_same_summary(make(0), make(step_ms))


def test_the_picture_shows_the_same_frames_at_the_same_times(make):
    one, other = load_run(make(0)), load_run(make(-500))
    assert [t.stamp_ns for t in one.truths] == [t.stamp_ns for t in other.truths]
    assert len(one.frames) > 8 and len(one.frames) == len(other.frames)
    for (was_ns, was), (now_ns, now) in zip(one.frames, other.frames, strict=True):
        assert was_ns == now_ns and np.array_equal(was, now)


def require_same_page(one, other):
    was, now = analyse(one), analyse(other)
    assert shots_of(was) == shots_of(now) and any(shots_of(was).values())
    points = [ms for ms in series(now)['reaction_ms'] if ms is not None]
    assert len(points) > 20 and 0 < min(points) <= max(points) < 10_000
    for stall in now.stalls:
        assert all(-5000 < s.start_ms <= s.end_ms < 5000 for c in stall.chains for s in c.steps)


def test_the_page_shows_the_same_frames_and_no_reaction_that_cannot_be(make):
    require_same_page(make(0), make(-500))


class Sink(defaultdict):
    """Keeps rows by entity, in the order of their stamps."""

    def __init__(self, *args, **kwargs):
        super().__init__(list)

    def scalar(self, entity, stamp_ns, value):
        self[entity].append((stamp_ns, float(value)))

    def text(self, entity, stamp_ns, text, *, level):
        self[entity].append((stamp_ns, text))

    def state(self, entity, stamp_ns, state):
        self[entity].append((stamp_ns, state))

    def image(self, entity, stamp_ns, data, *, media):
        self[entity].append((stamp_ns, data))

    def about(self, *args):
        """Take what stands beside the rows."""

    def close(self):
        """End."""


@pytest.fixture
def shown(make, monkeypatch, tmp_path):
    """Return the function that gives what a viewer gets of a run, and the notes."""
    monkeypatch.setattr(view, 'load_rerun', lambda: None)

    def shown(step_ms):
        sink = Sink()
        monkeypatch.setattr(view, 'RerunSink', lambda *_, **__: sink)
        done = view.export(make(step_ms), tmp_path / 'x.rrd')
        return {name: sorted(rows) for name, rows in sink.items()}, done.notes

    return shown


def require_same_view(one, other):
    (was, _), (now, notes) = one, other
    assert was.keys() == now.keys() and len(was) > 30
    for name in was.keys() - set(UNSURE):
        assert was[name] == now[name], name
    for name in UNSURE:
        assert set(now[name]) <= set(was[name]) and len(now[name]) > 0.8 * len(was[name]), name
    assert any(note.startswith('ROS time stepped by') for note in notes)


@pytest.mark.parametrize('step_ms', STEPS_MS)
def test_the_view_is_as_without_it(shown, step_ms):
    require_same_view(shown(0), shown(step_ms))


def test_each_of_them_can_fail(make, shown, monkeypatch):
    """Whoever leaves the stamps as they are shows another run."""
    whole = shown(0)
    monkeypatch.setattr(view, 'straight_axis', lambda path: None)
    with pytest.raises(AssertionError):
        require_same_view(whole, shown(-500))
    monkeypatch.setattr(run_data, 'straighten', lambda run: run)
    with pytest.raises(AssertionError):
        require_same_summary(make(0), make(3_600_000))
    monkeypatch.setattr('reflex_ros.analysis.figures.straighten', lambda run: run)
    with pytest.raises(AssertionError):
        require_same_page(make(0), make(3_600_000))


def test_kept_frames_of_a_run_without_images_stand_where_they_were_taken(make, tmp_path):
    """Of two clocks that showed a stamp, the first did: later ones were not kept."""
    steps = analyse(make(-500)).run.steps
    assert steps is not None
    at_ns = steps.first_ns + AT_NS
    for name in (at_ns - 300 * MS, at_ns + 600 * MS, 'none'):
        (tmp_path / f'{name}.png').touch()
    assert [stamp for stamp, _ in strip_files(tmp_path, steps)] == [
        at_ns - 300 * MS, at_ns + 1100 * MS]
    assert [stamp for stamp, _ in strip_files(tmp_path, None)] == [
        at_ns - 300 * MS, at_ns + 600 * MS]
    assert strip_files(None, steps) == []
    assert page_frames.strip_files is strip_files
