"""[bag] Recorded messages as rows of a viewer, without a viewer."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from reflex_ros.core.clock import MS, S
from reflex_ros.core.types import JOINT_NAMES
from reflex_ros.report.view_rows import OURS, FrameGaps, Rows, compressed

T0 = 1_000 * S


class Kept:
    """Keeps the rows."""

    def __init__(self):
        self.rows = []

    def scalar(self, entity, stamp_ns, value):
        self.rows.append((entity, stamp_ns, value))

    def state(self, entity, stamp_ns, state):
        self.rows.append((entity, stamp_ns, state))

    def text(self, entity, stamp_ns, text, *, level):
        self.rows.append((entity, stamp_ns, f'{level} {text}'))

    def image(self, entity, stamp_ns, data, *, media):
        self.rows.append((entity, stamp_ns, media))

    def of(self, entity):
        return [row[1:] for row in self.rows if row[0] == entity]


def time(ns):
    return SimpleNamespace(sec=ns // S, nanosec=ns % S)


def header(ns):
    return SimpleNamespace(stamp=time(ns))


def plan(stamp_ns, values, *, step_ns=20 * MS):
    points = [SimpleNamespace(time_from_start=time(i * step_ns), positions=[v] * 7)
              for i, v in enumerate(values)]
    trajectory = SimpleNamespace(header=header(stamp_ns), points=points, joint_names=JOINT_NAMES)
    return SimpleNamespace(header=header(stamp_ns), trajectory=trajectory, arm_state='tracking',
                           latency_ns=50 * MS, delta_ns=90 * MS)


def test_a_plan_is_shown_until_the_next_one_replaces_it():
    kept = Kept()
    rows = Rows(kept)
    rows.take('/plan', OURS + 'Plan', plan(T0, [1.0, 1.0, 1.0, 1.0]))
    rows.take('/plan', OURS + 'Plan', plan(T0 + 40 * MS, [2.0, 2.0]))
    rows.end()
    assert kept.of('joints/joint1/plan') == [
        (T0, 1.0), (T0 + 20 * MS, 1.0), (T0 + 40 * MS, 2.0), (T0 + 60 * MS, 2.0)]
    assert kept.of('ticks/arm_state') == [(T0, 'tracking')]
    assert kept.of('delays/latency_ms') == [(T0, 50.0), (T0 + 40 * MS, 50.0)]


def test_a_stamp_that_was_damaged_is_refused():
    with pytest.raises(ValueError, match='no time of a run'):
        Rows(Kept()).take('/plan', OURS + 'Plan', plan(0, []))


def test_missing_frames_are_counted_by_the_usual_distance():
    gaps = FrameGaps()
    stamps = [T0 + i * 40 * MS for i in (0, 1, 2, 3, 4, 5, 9, 10)]
    assert [gaps.add(stamp)[0] for stamp in stamps] == [0, 0, 0, 0, 0, 0, 3, 0]


def test_jitter_is_no_missing_frame():
    gaps, rng = FrameGaps(), np.random.default_rng(1)
    stamps = T0 + np.arange(200) * 40 * MS + rng.integers(-8, 9, 200) * MS
    assert sum(gaps.add(int(stamp))[0] for stamp in stamps) == 0


def test_two_topics_never_share_a_camera():
    rows = Rows(Kept())
    names = [rows.camera(t) for t in ('/camera/main/image_raw', '/run/camera/wrist/image_raw',
                                      '/camera/main/image_raw/compressed', '/usb_cam/image_raw')]
    assert names == ['camera/main', 'camera/wrist', 'camera/camera/main/image_raw/compressed',
                     'camera/usb_cam']
    assert rows.camera('/camera/main/image_raw') == 'camera/main'


def test_pictures_pass_as_they_are_and_raw_ones_become_jpeg():
    png = SimpleNamespace(format='png', data=b'\x89PNG....')
    assert compressed(png) == (b'\x89PNG....', 'image/png')
    raw = SimpleNamespace(encoding='rgb8', width=4, height=2, step=12, data=np.zeros(24, np.uint8))
    data, media = compressed(raw)
    assert media == 'image/jpeg' and data[:3] == b'\xff\xd8\xff'


@pytest.mark.parametrize('message', [
    SimpleNamespace(format='h264', data=b'\0\0\0\1'),
    SimpleNamespace(encoding='16UC1', width=1, height=1, step=2, data=np.zeros(2, np.uint8)),
])
def test_a_picture_that_is_not_shown_is_refused(message):
    with pytest.raises(ValueError, match='is not shown'):
        compressed(message)
