"""Shows a running graph in a viewer: the rows of an export, as they come."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reflex_ros.core.clock import MS, Clock, S, SystemClock
from reflex_ros.core.errors import ConfigError
from reflex_ros.report.view import SUFFIX
from reflex_ros.report.view_rerun import RerunSink, Viewer, load_rerun
from reflex_ros.report.view_rows import Rows

FLUSH_NS, DISCOVER_NS = 200 * MS, 1 * S
"""How old a value may be when the viewer gets it; how soon a new camera is found."""
SPIN_S = 0.05
Until = Callable[['Followed'], bool]


@dataclass(slots=True)
class Followed:
    """What was shown so far.

    Attributes:
        messages: Messages taken. ``ticks``: control ticks among them.
        frames: Frames by camera. ``left_out``: messages by topic that could not be shown.
    """

    messages: int = 0
    ticks: int = 0
    frames: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)


def follow(viewer: Viewer, *, output: Path | None = None, namespace: str = '',
           duration_s: float = 0.0, until: Until | None = None,
           clock: Clock | None = None) -> Followed:
    """Show a running graph until it is interrupted or the time is over.

    Args:
        viewer: Where to. ``output``: file that gets the same, None for none.
        namespace: Of the graph.
        duration_s: Time to show, s; 0 = until interrupted.
        until: Asked after each message whether it is enough.
        clock: Steady clock.

    Raises:
        ConfigError: Rerun is not installed, there is neither viewer nor file, or the file cannot
            be written.
    """
    load_rerun()
    if output is not None and output.suffix != SUFFIX:
        raise ConfigError(f'file {output} is not written: got the ending {output.suffix!r}, '
                          f'expected {SUFFIX!r}. Name another.')
    try:
        sink = RerunSink(output, name='live', recording_id='', viewer=viewer)
    except (OSError, RuntimeError) as error:
        raise ConfigError(f'viewer cannot be reached or file written: got {error}, expected a '
                          'viewer at that address and a folder with room.') from error
    live = _Live(sink, clock or SystemClock())
    try:
        with contextlib.suppress(KeyboardInterrupt):
            live.run(namespace, round(duration_s * S), until or (lambda found: False))
    finally:
        live.rows.end()
        sink.close()
    return live.found


def describe(found: Followed) -> str:
    """Return in words what was shown."""
    cameras = ', '.join(f'{n} of {name}' for name, n in sorted(found.frames.items()))
    lines = [f'{found.messages} messages, {found.ticks} ticks, frames: {cameras or "none"}']
    lines += [f'  left out: {n} of {topic}' for topic, n in sorted(found.left_out.items())]
    if not found.messages:
        lines.append('  nothing was heard: check --namespace and --domain')
    return '\n'.join(lines)


class _Live:
    """One graph in one viewer."""

    def __init__(self, sink: RerunSink, clock: Clock) -> None:
        self.found, self.rows = Followed(), Rows(sink)
        self._sink, self._clock = sink, clock
        self._shown: tuple[str, ...] | None = None

    def run(self, namespace: str, duration_ns: int, until: Until) -> None:
        """Take messages until it is enough."""
        from reflex_ros.ros.listen import Listener  # ROS last: the errors above need none

        start_ns = flushed_ns = self._clock.mono_ns()
        found_ns = 0
        with Listener(self._take, self.rows.wants, namespace=namespace) as listener:
            while not until(self.found):
                now_ns = self._clock.mono_ns()
                if duration_ns and now_ns - start_ns >= duration_ns:
                    return
                if now_ns - found_ns >= DISCOVER_NS:
                    listener.discover()
                    self._arrange()
                    found_ns = now_ns
                if now_ns - flushed_ns >= FLUSH_NS:
                    self._sink.write_out()
                    flushed_ns = now_ns
                listener.spin(SPIN_S)

    def _take(self, topic: str, kind: str, message: Any) -> None:
        try:
            self.rows.take(topic, kind, message)
        except Exception:  # one strange message must not end the view
            self.found.left_out[topic] = self.found.left_out.get(topic, 0) + 1
        self.found.messages += 1
        self.found.ticks, self.found.frames = self.rows.ticks, self.rows.frames

    def _arrange(self) -> None:
        """Give each camera its view, when one appears."""
        cameras = tuple(sorted(self.rows.frames))
        if cameras != self._shown:
            self._shown = cameras
            self._sink.about('# live\n', cameras)
