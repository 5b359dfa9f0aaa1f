"""Exports a recorded run for a viewer: streaming, also from a damaged bag."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from reflex_ros.analysis.collect import JOINTS
from reflex_ros.analysis.source import Source, has_data, open_source
from reflex_ros.bag.read import BagMessage
from reflex_ros.bag.run_folder import RunFolder
from reflex_ros.core.errors import ConfigError, ReflexError
from reflex_ros.core.ledger import LedgerReader
from reflex_ros.core.types import JOINT_NAMES
from reflex_ros.report import view_rerun
from reflex_ros.report.run_data import strip_files
from reflex_ros.report.view_rerun import RerunSink, load_rerun
from reflex_ros.report.view_rows import OURS, Rows
from reflex_ros.report.view_straight import StraightAxis, straight_axis

SUFFIX = '.rrd'
STRIP = 'camera/strip'
EACH = 200
"""Messages between two looks at the progress."""

Progress = Callable[[int, int], None]
"""Is told messages done and messages in all; 0 in all where a damaged bag does not say."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What was exported.

    Attributes:
        path: The recording. ``ticks``: control ticks in it.
        messages: Messages read. ``frames``: frames by camera.
        notes: What is missing, in words.
    """

    path: Path
    messages: int
    ticks: int
    frames: dict[str, int]
    notes: tuple[str, ...]


def export(path: Path, output: Path | None = None, *, progress: Progress | None = None
           ) -> Exported:
    """Write a bag or a run folder as a Rerun recording.

    Args:
        path: Bag or run folder, whole or damaged.
        output: File; None for ``view.rrd`` in a run folder, else beside the bag.
        progress: Is told how far it is.

    Raises:
        ConfigError: There is no such run or nothing to show in it, Rerun is not installed, or
            the file cannot be written. No file is left then.
    """
    load_rerun()
    if output is not None and output.suffix != SUFFIX:
        raise ConfigError(f'file {output} is not written: got the ending {output.suffix!r}, '
                          f'expected {SUFFIX!r}, so that no bag is overwritten. Name another.')
    job = _Job(path, progress or (lambda done, total: None))
    target = output or job.default_output
    part = target.with_name(f'.{target.name}.part')
    try:
        part.write_bytes(b'')
        job.write(part)
        part.replace(target)
    except (OSError, RuntimeError) as error:  # the latter from the viewer's writer: a full disk
        got = getattr(error, 'strerror', None) or ' '.join(str(error).split())
        raise ConfigError(
            f'file {target} cannot be written: got {got}, expected a folder with room that may be '
            'written. Name another file.') from error
    finally:
        part.unlink(missing_ok=True)
        job.close()
    return Exported(target, job.messages, job.ticks, job.frames, tuple(job.notes))


def export_and_say(path: Path, output: Path | None, *, is_shown: bool) -> None:
    """Export, say what is in it and what is missing, and open it in the viewer if asked to."""
    result = export(path, output, progress=progress_bar())
    cameras = ', '.join(f'{n} of {name}' for name, n in sorted(result.frames.items()))
    print(f'{result.path}: {result.ticks} ticks, frames: {cameras or "none"}')
    for note in result.notes:
        print(f'  missing: {note}')
    if is_shown:
        view_rerun.open_viewer(result.path)


def progress_bar(width: int = 30) -> Progress | None:
    """Return a bar on standard error, None where that is no terminal."""
    if not sys.stderr.isatty():
        return None

    def show(done: int, total: int) -> None:
        filled = min(width, width * done // total) if total else 0
        text = f'{100 * done // total:3d} %' if total else f'{done} messages'
        end = '\n' if total and done >= total else ''
        print(f'\r[{"#" * filled}{"." * (width - filled)}] {text}', end=end, file=sys.stderr,
              flush=True)

    return show


class _Job:
    """One export."""

    def __init__(self, path: Path, progress: Progress) -> None:
        self.path = path
        self.notes: list[str] = []
        self.messages = self.ticks = 0
        self.frames: dict[str, int] = {}
        self._progress = progress
        self._run = RunFolder(path)
        self._is_run = self._run.ledger.is_file() or bool(self._run.bags)
        self._sources = list(self._open())
        self._bad: dict[str, int] = {}
        self._reasons: dict[str, str] = {}
        self._topics: dict[str, str] = {}
        self._axis: StraightAxis | None = None

    @property
    def default_output(self) -> Path:
        """The file where none is named."""
        if self._is_run:
            return self.path / f'view{SUFFIX}'
        path = self.path.resolve()
        return path.with_suffix(SUFFIX) if path.is_file() else path.with_name(path.name + SUFFIX)

    def write(self, part: Path) -> None:
        """Write everything into a file."""
        digest = hashlib.sha256(str(self.path.resolve()).encode()).hexdigest()
        sink = RerunSink(part, name=self.path.resolve().name, recording_id=digest[:32])
        try:
            names = self._joint_names()
            self._axis = straight_axis(self.path)
            rows = Rows(sink, joint_names=names, axis=self._axis)
            self._read(rows)
            self._complete(rows)
            self.ticks, self.frames = rows.ticks, rows.frames
            self._check()
            self._note(rows)
            sink.about(self._about(), tuple(sorted(rows.frames)), names)
        finally:
            sink.close()

    def close(self) -> None:
        """Close the bags."""
        for source in self._sources:
            source.close()

    def _open(self) -> Iterator[Source]:
        for bag in self._run.bags if self._is_run else (self.path,):
            if self._is_run and not has_data(bag):
                self.notes.append(f'{bag.name}: no bag data')
                continue
            yield open_source(bag)

    def _joint_names(self) -> tuple[str, ...]:
        """Return the names in the first plan: ticks have none, and two arms have more."""
        for source in self._sources:
            for message in source.messages(lambda _, kind: kind == OURS + 'Plan'):
                try:
                    names = source.decode(message).trajectory.joint_names
                except Exception:  # the library raises anything for damaged bytes
                    continue
                if len(names):
                    return tuple(map(str, names))
        return JOINT_NAMES

    def _read(self, rows: Rows) -> None:
        total = sum(count for source in self._sources for topic, count in source.counts.items()
                    if rows.wants(topic, source.types[topic]))
        for source in self._sources:
            for message in self._messages(source, rows):
                self.messages += 1
                if self._is_first_of_its_kind(message):
                    self._take(rows, source, message)
                if self.messages % EACH == 0:
                    self._progress(self.messages, total)
            source.close()
        rows.end()
        self._progress(self.messages, total)

    def _messages(self, source: Source, rows: Rows) -> Iterator[BagMessage]:
        if self._axis is None:
            return source.messages(rows.wants)
        names = [topic for topic, kind in source.types.items() if rows.wants(topic, kind)]
        return self._axis.messages(source, names, self.notes)

    def _take(self, rows: Rows, source: Source, message: BagMessage) -> None:
        try:
            rows.take(message.topic, message.type, source.decode(message))
        except Exception as error:  # the library raises anything for damaged bytes
            self._leave_out(message.topic, ' '.join(str(error).split())[:160])

    def _leave_out(self, topic: str, why: str) -> None:
        self._bad[topic] = self._bad.get(topic, 0) + 1
        self._reasons.setdefault(topic, why)

    def _is_first_of_its_kind(self, message: BagMessage) -> bool:
        """Return whether a message is of the one suite that is shown; False for other joints."""
        if message.type != JOINTS and not message.type.startswith(OURS):
            return True
        topic = self._topics.setdefault(message.type, message.topic)
        if topic == message.topic:
            return True
        if message.type != JOINTS:
            raise ConfigError(
                f'bag holds two suites: got {topic} and {message.topic}, expected one namespace. '
                'Record each arm into a bag of its own.')
        self._leave_out(message.topic, f'the state shown is that of {topic}')
        return False

    def _complete(self, rows: Rows) -> None:
        """Take from the run folder what its bags do not have."""
        if not self._is_run:
            return
        if not rows.ticks and self._run.ledger.is_file():
            try:
                ledger = LedgerReader(self._run.ledger)
                records = ledger.records()
                if self._axis is not None:
                    records['stamp_ns'] -= self._axis.steps.shifts_ns(records['due_ns'])
                rows.ledger(records, ledger.header.period_ns)
                self.notes.append('no control_tick: ticks are those of the ledger, without '
                                  'setpoints')
            except (ReflexError, ValueError) as error:
                self.notes.append(f'{self._run.ledger.name}: {error}')
        if not rows.frames:
            steps = self._axis.steps if self._axis is not None else None
            for stamp_ns, picture in strip_files(self._run.strip, steps):
                rows.frame(STRIP, stamp_ns, picture.read_bytes(), media='image/png')

    def _check(self) -> None:
        if self.ticks or self.frames or self.messages > sum(self._bad.values()):
            return
        topics = sorted({topic for source in self._sources for topic in source.types})
        got = f'only {", ".join(topics)}' if topics else 'nothing that can be read'
        noted = ' '.join(note for source in self._sources for note in source.notes[:2])
        raise ConfigError(
            f'nothing to view in {self.path}: got {got:.300}, expected control_tick, plan or '
            'images as the recorder of reflex_ros writes them. Give the bag or folder of a run.'
            + (f' Noted: {noted:.300}' if noted else ''))

    def _note(self, rows: Rows) -> None:
        if self._axis is not None:
            self.notes += self._axis.notes
        for source in self._sources:
            self.notes += source.notes
        self.notes += [f'{topic}: {count} messages are left out: {self._reasons[topic]}'
                       for topic, count in sorted(self._bad.items())]
        topics = {topic for source in self._sources for topic, kind in source.types.items()
                  if rows.wants(topic, kind) and kind.startswith('sensor_msgs/msg/') and
                  kind.endswith('Image')}
        self.notes += [f'{topic}: no frame' for topic in sorted(topics)
                       if not rows.frames.get(rows.camera(topic))]
        if not self.ticks:
            self.notes.append('no ticks: neither verdicts nor causes')
        if not self.frames:
            self.notes.append('no images were recorded')

    def _about(self) -> str:
        lines = [f'# {self.path.resolve().name}', '',
                 f'{self.ticks} ticks, {self.messages} messages.', '']
        lines += [f'* {name}: {count} frames' for name, count in sorted(self.frames.items())]
        if self.notes:
            lines += ['', '## What is missing', '', *(f'* {note}' for note in self.notes)]
        return '\n'.join(lines) + '\n'
