"""Rows into a Rerun recording (``.rrd``), written as they come."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reflex_ros.core.errors import ConfigError
from reflex_ros.core.types import JOINT_NAMES, Verdict

VERSION = '0.41'
TIMELINE = 'ros_time'
LIVE_FLUSH_S = 5.0
BATCH_ROWS = 512
"""Values of a series that are held before they are written: ten seconds at 50 Hz."""
COLORS = ((Verdict.FRESH, 0x009E73FF), (Verdict.LIMITED, 0x56B4E9FF), (Verdict.HELD, 0xD55E00FF),
          (Verdict.RAMPING, 0xC9C9C9FF), (Verdict.STOPPED, 0x4D4D4DFF))
LINES = (('state', 0x999999FF, 'state'), ('measured', 0x0072B2FF, 'measured'),
         ('plan', 0x009E73FF, 'plan'), ('setpoint', 0xE69F00FF, 'setpoint'),
         ('command', 0xD55E00FF, 'command'))


def load_rerun() -> Any:
    """Return the module ``rerun``.

    Raises:
        ConfigError: It is not installed, or of a version that lacks what is used.
    """
    remedy = "Install it: pip install 'rerun-sdk==0.41.0' (requirements/view.txt)."
    try:
        import rerun
    except ImportError as error:
        raise ConfigError(f'viewer Rerun cannot be used: got {error}, expected rerun-sdk '
                          f'{VERSION}. {remedy}') from error
    if not (hasattr(rerun, 'StateChange') and hasattr(rerun, 'RecordingStream')):
        version = getattr(rerun, '__version__', 'an unknown version')
        raise ConfigError(f'viewer Rerun cannot be used: got version {version}, expected '
                          f'{VERSION}. {remedy}')
    return rerun


@dataclass(frozen=True, slots=True)
class Viewer:
    """Where a live view goes.

    Attributes:
        url: Of a running viewer, e.g. ``rerun+http://127.0.0.1:9876/proxy``; '' for none.
        is_spawned: Whether a viewer is started here.
    """

    url: str = ''
    is_spawned: bool = False


class RerunSink:
    """Writes one recording; see ``view_rows.Sink``. Not thread-safe.

    Args:
        path: File to write, None for none.
        name: Name of the recording.
        recording_id: Its identity; equal for exports that a viewer should merge, '' for a new one.
        viewer: A viewer that gets the same.

    Attributes:
        held: Values of series that are not written yet.
    """

    def __init__(self, path: Path | None, *, name: str, recording_id: str,
                 viewer: Viewer | None = None) -> None:
        self._rr = load_rerun()
        self._stream = self._rr.RecordingStream('reflex_ros', recording_id=recording_id or None)
        self._is_live = viewer is not None
        self._open(path, viewer or Viewer())
        # one timeline: neither the time of the export nor the number of the row is of interest
        self._stream.set_log_time_enabled(False)
        self._stream.set_log_tick_enabled(False)
        self._stream.send_recording_name(name)
        self._series: dict[str, tuple[list[int], list[float]]] = {}
        self._names: set[str] = set()
        self.held = 0
        self._style()

    def _open(self, path: Path | None, viewer: Viewer) -> None:
        """Connect to the viewer and open the file.

        Raises:
            ConfigError: There is neither.
        """
        sinks = [] if path is None else [self._rr.FileSink(path)]
        if viewer.is_spawned:
            self._stream.spawn(connect=False)
        if viewer.is_spawned or viewer.url:
            sinks.append(self._rr.GrpcSink(viewer.url or None))
        if not sinks:
            raise ConfigError('live view goes nowhere: got neither a viewer nor a file, expected '
                              'one. Give --spawn, --connect URL or --output FILE.rrd.')
        self._stream.set_sinks(*sinks)

    def write_out(self) -> None:
        """Write what is held: a live view is not to wait for a batch."""
        for entity in list(self._series):
            self._write(entity)

    def scalar(self, entity: str, stamp_ns: int, value: float) -> None:
        """Take a value of a series."""
        self._name(entity)
        times, numbers = self._series.setdefault(entity, ([], []))
        times.append(stamp_ns)
        numbers.append(value)
        self.held += 1
        if len(times) >= BATCH_ROWS:
            self._write(entity)

    def state(self, entity: str, stamp_ns: int, state: str) -> None:
        """Take a state that holds from now on."""
        self._log(entity, stamp_ns, self._rr.StateChange(state=state))

    def text(self, entity: str, stamp_ns: int, text: str, *, level: str) -> None:
        """Take a log line."""
        self._log(entity, stamp_ns, self._rr.TextLog(text, level=level))

    def image(self, entity: str, stamp_ns: int, data: bytes, *, media: str) -> None:
        """Take a compressed picture."""
        self._log(entity, stamp_ns, self._rr.EncodedImage(contents=data, media_type=media))

    def about(self, text: str, cameras: tuple[str, ...],
              joints: tuple[str, ...] = JOINT_NAMES) -> None:
        """Write what stands beside the recording, and which views it opens with."""
        document = self._rr.TextDocument(text, media_type='text/markdown')
        self._stream.log('about', document, static=True, strict=True)
        self._stream.send_blueprint(_blueprint(cameras, joints))

    def close(self) -> None:
        """Write what is held and close the file; a second call does nothing."""
        stream, self._stream = self._stream, None
        if stream is None:
            return
        for entity in list(self._series):
            self._write(entity, stream)
        if self._is_live:
            with suppress(Exception):  # the viewer may have been closed long ago
                stream.flush(timeout_sec=LIVE_FLUSH_S)
        else:
            stream.flush()
        stream.disconnect()

    def _log(self, entity: str, stamp_ns: int, value: Any) -> None:
        self._stream.set_time(TIMELINE, timestamp=np.datetime64(stamp_ns, 'ns'))
        self._stream.log(entity, value, strict=True)

    def _write(self, entity: str, stream: Any = None) -> None:
        times, numbers = self._series.pop(entity)
        self.held -= len(times)
        (stream or self._stream).send_columns(
            entity,
            indexes=[self._rr.TimeColumn(TIMELINE, timestamp=np.array(times, 'datetime64[ns]'))],
            columns=self._rr.Scalars.columns(scalars=np.array(numbers, np.float64)), strict=True)

    def _name(self, entity: str) -> None:
        """Give a joint's line its colour, when it is first seen."""
        if entity in self._names or not entity.startswith('joints/'):
            return
        self._names.add(entity)
        for kind, color, name in LINES:
            if entity.endswith(f'/{kind}'):
                self._stream.log(entity, self._rr.SeriesLines(colors=color, names=name),
                                 static=True, strict=True)

    def _style(self) -> None:
        for verdict, color in COLORS:
            self._stream.log(f'ticks/late_ms/{verdict.value}', self._rr.SeriesPoints(
                colors=color, markers='square', names=verdict.value, marker_sizes=2.0),
                static=True, strict=True)
        self._stream.log('ticks/verdict', self._rr.StateConfiguration(
            values=[v.value for v, _ in COLORS], colors=[c for _, c in COLORS]),
            static=True, strict=True)


def open_viewer(path: Path, *, command: Sequence[str] = (sys.executable, '-m', 'rerun'),
                wait_s: float = 3.0) -> None:
    """Open a recording in a viewer that goes on without us.

    Args:
        path: The recording.
        command: What starts the viewer.
        wait_s: A viewer that ends with an error within this time, s, has failed.

    Raises:
        ConfigError: It failed.
    """
    with tempfile.TemporaryFile('w+') as said:
        viewer = subprocess.Popen([*command, str(path)], stderr=said, start_new_session=True)
        try:
            code = viewer.wait(wait_s)
        except subprocess.TimeoutExpired:
            return
        said.seek(0)
        if code:
            raise ConfigError(
                f'viewer of {path} ended: got exit code {code} '
                f'({" ".join(said.read().split())[-200:]}), expected a window. Open the file '
                'with rerun on a machine with a screen.')


def _blueprint(cameras: tuple[str, ...], joints: tuple[str, ...]) -> Any:
    import rerun.blueprint as rrb

    states = [f'/ticks/{name}' for name in ('verdict', 'cause', 'arm_state')]
    plots = [rrb.TimeSeriesView(origin=f'/joints/{name}', name=name) for name in joints]
    views = [rrb.Spatial2DView(origin=f'/{name}', name=name) for name in cameras]
    return rrb.Blueprint(rrb.Vertical(
        rrb.StateTimelineView(name='verdict, cause, arm', contents=states),
        rrb.Horizontal(rrb.TimeSeriesView(name='ticks, ms late', origin='/ticks/late_ms'),
                       rrb.TimeSeriesView(name='delays, ms', origin='/delays')),
        rrb.Horizontal(rrb.Grid(*plots, name='joints, rad and m'),
                       *([rrb.Vertical(*views, name='cameras')] if views else [])),
        rrb.Horizontal(rrb.TextLogView(name='stalls, causes, chunks', origin='/log'),
                       rrb.TextDocumentView(name='about', origin='/about')),
        row_shares=[2, 2, 5, 2]), collapse_panels=True)
