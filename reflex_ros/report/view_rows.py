"""Recorded messages as rows of a viewer: series, states, log lines and pictures on ROS time.

Nothing here knows the viewer, and nothing keeps more than the newest plan and a few frame times.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from reflex_ros.analysis.collect import IMAGES, JOINTS
from reflex_ros.analysis.stalls import EXPECTED
from reflex_ros.bag import values
from reflex_ros.core.clock import MS, S
from reflex_ros.core.ledger import CAUSE_CODES, VERDICT_CODES, RecordArray
from reflex_ros.core.types import JOINT_NAMES, Cause, ChunkTrace, ControlTick, Fate, Verdict
from reflex_ros.report.words import duration, ticks
from reflex_ros.stages.accounts import EXPLANATIONS

OURS = 'reflex_msgs/msg/'
QUIET = frozenset({Cause.NONE, Cause.LIMIT})
"""Causes that change too often for a log; the band of the verdicts shows them."""
JPEG_QUALITY = 90
GAP_PERIODS = 1.5
USUAL_FRAMES = 25
FIRST_NS, LAST_NS = S, 1 << 62
"""A stamp outside was damaged, or never set."""
MEDIA = ((b'\x89PNG', 'image/png'), (b'\xff\xd8\xff', 'image/jpeg'))


class Sink(Protocol):
    """Takes rows; stamps are ROS time in ns."""

    def scalar(self, entity: str, stamp_ns: int, value: float) -> None:
        """Take a value of a series."""

    def state(self, entity: str, stamp_ns: int, state: str) -> None:
        """Take a state that holds from now on."""

    def text(self, entity: str, stamp_ns: int, text: str, *, level: str) -> None:
        """Take a log line; levels are ``INFO``, ``WARN`` and ``ERROR``."""

    def image(self, entity: str, stamp_ns: int, data: bytes, *, media: str) -> None:
        """Take a compressed picture."""


class Axis(Protocol):
    """Tells stamps that no step of ROS time has moved; headers are on that axis already."""

    def tick(self, tick: ControlTick) -> ControlTick:
        """Return a tick on the axis."""

    def trace(self, trace: ChunkTrace) -> ChunkTrace:
        """Return a chunk trace on the axis, with 0 for a stamp that is not sure."""

    def near(self, stamp_ns: int, to_ns: int) -> int:
        """Return a stamp on the axis, of something beside another one."""


class Rows:
    """Turns messages into rows.

    Args:
        sink: Takes them.
        joint_names: Columns of the arrays in ticks and plans.
        axis: Where stamps stand; None as they are.

    Attributes:
        ticks: Ticks taken.
        frames: Frames taken, by the entity of the camera.
    """

    def __init__(self, sink: Sink, *, joint_names: tuple[str, ...] = JOINT_NAMES,
                 axis: Axis | None = None) -> None:
        self.ticks = 0
        self.frames: dict[str, int] = {}
        self._sink = sink
        self._names = joint_names
        self._axis = axis
        self._cameras: dict[str, str] = {}
        self._gaps: dict[str, FrameGaps] = {}
        self._plan: tuple[np.ndarray, np.ndarray, tuple[str, ...]] | None = None
        self._said: dict[str, str] = {}
        self._takers: MappingProxyType[str, Callable[[Any], None]] = MappingProxyType({
            OURS + 'ControlTick': self._take_tick,
            OURS + 'Plan': self._take_plan, OURS + 'ChunkTrace': self._take_trace,
            OURS + 'StallEvent': self._take_stall, OURS + 'Task': self._take_task,
            OURS + 'SimTruth': self._take_truth, JOINTS: self._take_joints,
        })

    def wants(self, topic: str, kind: str) -> bool:
        """Return whether messages of a type are shown."""
        return kind in self._takers or kind in IMAGES

    def take(self, topic: str, kind: str, message: Any) -> None:
        """Take a decoded message.

        Raises:
            ValueError: Its stamp or its picture is damaged.
            LayoutError: It is of another version.
        """
        if kind in IMAGES:
            self._take_image(topic, message)
        else:
            self._takers[kind](message)

    def end(self) -> None:
        """Give what was held back: the rest of the newest plan."""
        self._give_plan(LAST_NS)

    # ---- ticks ---------------------------------------------------------------------------------

    def _take_tick(self, msg: Any) -> None:
        tick = values.control_tick(msg)
        self.tick(tick if self._axis is None else self._axis.tick(tick))

    def tick(self, tick: ControlTick) -> None:
        """Take a tick."""
        stamp_ns = _checked(tick.stamp_ns)
        for kind in ('setpoint', 'command', 'measured'):
            self._joints(kind, stamp_ns, self._names, getattr(tick, kind))
        self._verdict(stamp_ns, tick.verdict, tick.cause, late_ns=tick.late_ns)
        sink = self._sink
        sink.scalar('ticks/tracking_error_deg', stamp_ns, np.degrees(tick.tracking_error))
        if tick.observation_age_ns >= 0:
            sink.scalar('delays/observation_age_ms', stamp_ns, tick.observation_age_ns / MS)

    def ledger(self, records: RecordArray, period_ns: int) -> None:
        """Take the records of a ledger, where no bag has ticks."""
        for row in records:
            stamp_ns = _checked(int(row['stamp_ns']))
            for kind in ('command', 'measured'):
                self._joints(kind, stamp_ns, self._names, row[kind])
            verdict, cause = VERDICT_CODES[row['verdict']], CAUSE_CODES[row['cause']]
            # a record of a gap stands for several due ticks
            for step in range(int(row['count'])):
                self._verdict(stamp_ns + step * period_ns, verdict, cause,
                              late_ns=int(row['late_ns']))

    def _verdict(self, stamp_ns: int, verdict: Verdict, cause: Cause, *, late_ns: int) -> None:
        self.ticks += 1
        self._sink.scalar(f'ticks/late_ms/{verdict.value}', stamp_ns, late_ns / MS)
        self._on_change('ticks/verdict', stamp_ns, verdict.value)
        if self._on_change('ticks/cause', stamp_ns, cause.value) and cause not in QUIET:
            self._sink.text('log/causes', stamp_ns, f'{verdict.value}, {cause.value}: '
                            f'{EXPLANATIONS.get(cause.value, "")}', level=_level(cause))

    def _on_change(self, entity: str, stamp_ns: int, state: str) -> bool:
        if self._said.get(entity) == state:
            return False
        self._said[entity] = state
        self._sink.state(entity, stamp_ns, state)
        return True

    def _joints(self, kind: str, stamp_ns: int, names: tuple[str, ...], row: Any) -> None:
        for name, value in zip(names, row, strict=False):
            if np.isfinite(value):
                self._sink.scalar(f'joints/{name}/{kind}', stamp_ns, float(value))

    # ---- plan, chunks, words -------------------------------------------------------------------

    def _take_plan(self, msg: Any) -> None:
        stamp_ns = _checked(values.stamp_of(msg.header.stamp))
        self._give_plan(stamp_ns)
        start_ns = values.stamp_of(msg.trajectory.header.stamp)
        if self._axis is not None:
            start_ns = self._axis.near(start_ns, stamp_ns)
        points = msg.trajectory.points
        self._plan = (
            np.array([start_ns + values.stamp_of(p.time_from_start) for p in points], np.int64),
            np.array([p.positions for p in points], np.float64),
            tuple(map(str, msg.trajectory.joint_names)))
        self._on_change('ticks/arm_state', stamp_ns, str(msg.arm_state))
        for name in ('latency', 'delta'):
            self._sink.scalar(f'delays/{name}_ms', stamp_ns, getattr(msg, f'{name}_ns') / MS)

    def _give_plan(self, until_ns: int) -> None:
        """Give the points of the newest plan that came before the next plan replaced it."""
        if self._plan is None:
            return
        times_ns, positions, names = self._plan
        self._plan = None
        for time_ns, row in zip(times_ns, positions, strict=True):
            if FIRST_NS <= time_ns < until_ns:
                self._joints('plan', int(time_ns), names, row)

    def _take_trace(self, msg: Any) -> None:
        trace = values.chunk_trace(msg)
        if self._axis is not None:
            trace = self._axis.trace(trace)
        stamp_ns = _checked(trace.stamp_ns)
        if trace.fate is Fate.REJECTED:
            self._sink.text('log/chunks', stamp_ns, f'chunk {trace.chunk_id} rejected '
                            f'({trace.reason.value}): {trace.text}', level='WARN')
        first_ns = trace.first_command_stamp_ns
        if first_ns >= FIRST_NS:
            if FIRST_NS <= trace.newest_stamp_ns <= first_ns:
                self._sink.scalar('delays/observation_to_command_ms', first_ns,
                                  (first_ns - trace.newest_stamp_ns) / MS)
            self._sink.scalar('ticks/seam_deg', first_ns, np.degrees(trace.seam_position))

    def _take_stall(self, msg: Any) -> None:
        stall = values.stall_event(msg)
        text = (f'stall of {ticks(stall.ticks)}, {duration(stall.duration_ns / MS)}, '
                f'{stall.cause.value}: {stall.text}')
        self._sink.text('log/stalls', _checked(stall.stamp_ns), text, level=_level(stall.cause))

    def _take_task(self, msg: Any) -> None:
        self._sink.text('log/task', _checked(values.stamp_of(msg.header.stamp)),
                        f'epoch {msg.epoch}: {msg.instruction}', level='INFO')

    def _take_truth(self, msg: Any) -> None:
        for event in msg.events:
            self._sink.text('log/events', _checked(values.stamp_of(event.stamp)),
                            f'simulated event: {event.name}', level='INFO')

    def _take_joints(self, msg: Any) -> None:
        stamp_ns = _checked(values.stamp_of(msg.header.stamp))
        self._joints('state', stamp_ns, tuple(map(str, msg.name)), msg.position)

    # ---- cameras -------------------------------------------------------------------------------

    def camera(self, topic: str) -> str:
        """Return the entity of an image topic; two topics never share one."""
        name = topic.removesuffix('/compressed').removesuffix('/image_raw').strip('/')
        name = name.rsplit('camera/', 1)[-1] or name
        if self._cameras.setdefault(name, topic) != topic:
            name = topic.strip('/')
        return f'camera/{name}'

    def frame(self, entity: str, stamp_ns: int, data: bytes, *, media: str) -> None:
        """Take a compressed frame, and say so where frames are missing before it."""
        _checked(stamp_ns)
        gaps = self._gaps.setdefault(entity, FrameGaps())
        missing, away_ns = gaps.add(stamp_ns)
        if missing:
            self._sink.text('log/cameras', stamp_ns, f'{entity}: no frame for '
                            f'{duration(away_ns / MS)}, {missing} missing', level='WARN')
        self.frames[entity] = self.frames.get(entity, 0) + 1
        self._sink.image(entity, stamp_ns, data, media=media)

    def _take_image(self, topic: str, msg: Any) -> None:
        data, media = compressed(msg)
        self.frame(self.camera(topic), values.stamp_of(msg.header.stamp), data, media=media)


class FrameGaps:
    """Finds missing frames of one camera from the usual distance of its newest ones."""

    def __init__(self) -> None:
        self._last_ns = 0
        self._steps: deque[int] = deque(maxlen=USUAL_FRAMES)

    def add(self, stamp_ns: int) -> tuple[int, int]:
        """Return how many frames are missing before this one, and ns since the last one."""
        step_ns, self._last_ns = stamp_ns - self._last_ns, stamp_ns
        if step_ns == stamp_ns or step_ns <= 0:
            return 0, 0
        usual_ns = float(np.median(self._steps)) if len(self._steps) > 2 else float(step_ns)
        self._steps.append(step_ns)
        return (round(step_ns / usual_ns) - 1 if step_ns > GAP_PERIODS * usual_ns else 0), step_ns


def compressed(msg: Any) -> tuple[bytes, str]:
    """Return an image message as (PNG or JPEG bytes, media type); raw ones become JPEG.

    Raises:
        ValueError: It is neither, or it has an encoding that is not shown.
    """
    if not hasattr(msg, 'encoding'):
        data = bytes(msg.data)
        for magic, media in MEDIA:
            if data.startswith(magic):
                return data, media
        raise ValueError(f'format {msg.format!r} is not shown, only PNG and JPEG')
    pixels = values.image(msg)
    if pixels is None:
        raise ValueError(f'encoding {msg.encoding!r} is not shown, only rgb8, bgr8 and mono8')
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(pixels).save(out, 'JPEG', quality=JPEG_QUALITY)
    return out.getvalue(), 'image/jpeg'


def _level(cause: Cause) -> str:
    return 'INFO' if cause in EXPECTED else 'ERROR'


def _checked(stamp_ns: int) -> int:
    if not FIRST_NS <= stamp_ns < LAST_NS:
        raise ValueError(f'stamp {stamp_ns} ns is no time of a run')
    return stamp_ns
