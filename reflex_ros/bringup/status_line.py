"""The live status: a line that is rewritten on a terminal and printed now and then elsewhere."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TextIO

import numpy as np

from reflex_ros.core.clock import MS, S
from reflex_ros.core.errors import LayoutError
from reflex_ros.core.ledger import (
    ARM_STATE_CODES,
    CAUSE_CODES,
    COVERED,
    IN_MOTION,
    VERDICT_CODES,
    LedgerReader,
)

if TYPE_CHECKING:
    from pathlib import Path

    from reflex_ros.core.clock import Clock
    from reflex_ros.core.ledger import RecordArray

LIVE_NS = S // 2
PLAIN_NS = 5 * S
_BYTES_PER_LIVE = 8 << 20
"""A longer ledger is read less often: reading takes time that the control loop may need."""


class Delays(Protocol):
    """L and Δ as the bridge estimates them."""

    @property
    def latency_ns(self) -> int:
        """L: inference start to acceptance."""

    @property
    def delta_ns(self) -> int:
        """Δ: observation to first command."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What the ledger says so far.

    Attributes:
        ticks: Ticks since the first executed chunk, or all before there is one.
        verdicts: Share of each verdict among them, by name, only those that occur.
        stalled: In-motion ticks that no live chunk covered. ``cause``: the most frequent one.
        arm_state: State of the arm at the newest tick, '' before the first.
        first_chunk_ns: Steady due instant of the first executed chunk, 0 before.
        period_ns: Control period.
        last_cause: Cause of the newest tick.
    """

    ticks: int = 0
    verdicts: tuple[tuple[str, float], ...] = ()
    stalled: int = 0
    cause: str = ''
    arm_state: str = ''
    first_chunk_ns: int = 0
    period_ns: int = 20 * MS
    last_cause: str = ''


def progress(records: RecordArray, period_ns: int) -> Progress:
    """Return what the records of a growing ledger say."""
    if not len(records):
        return Progress(period_ns=period_ns)
    executed = records['chunk_id'] > 0
    first = int(np.argmax(executed)) if executed.any() else 0
    since = records[first:]
    counts = since['count']
    ticks = int(counts.sum())
    verdicts = np.bincount(since['verdict'], weights=counts, minlength=len(VERDICT_CODES))
    stalls = ((since['flags'] & IN_MOTION) != 0) & ((since['flags'] & COVERED) == 0)
    causes = np.bincount(since['cause'][stalls], weights=counts[stalls], minlength=1)
    return Progress(
        ticks=ticks,
        verdicts=tuple(
            (code.value, share / ticks)
            for code, share in zip(VERDICT_CODES, verdicts, strict=True) if share
        ),
        stalled=int(counts[stalls].sum()),
        cause=CAUSE_CODES[int(np.argmax(causes))].value if stalls.any() else '',
        arm_state=ARM_STATE_CODES[int(records['arm_state'][-1])].value,
        first_chunk_ns=int(records['due_ns'][first]) if executed.any() else 0,
        period_ns=period_ns,
        last_cause=CAUSE_CODES[int(records['cause'][-1])].value,
    )


def format_status(elapsed_s: float, now: Progress, delays: Delays | None) -> str:
    """Return the status in one line."""
    parts = [f'{elapsed_s:6.1f} s', f'{now.ticks} ticks']
    ranked = sorted(now.verdicts, key=lambda item: -item[1])
    parts += [f'{name} {100 * share:.1f} %' for name, share in ranked]
    parts.append(f'stalls {now.stalled}' + (f' ({now.cause})' if now.cause else ''))
    if now.arm_state:
        parts.append(now.arm_state)
    if delays is not None:
        pair = (('L', delays.latency_ns), ('Δ', delays.delta_ns))
        parts += [_delay(name, value, now.period_ns) for name, value in pair]
    return '  '.join(parts)


def _delay(name: str, value_ns: int, period_ns: int) -> str:
    ticks = -(-value_ns // period_ns)
    return f'{name} {value_ns / MS:.0f} ms = {ticks} ticks'


class LedgerWatch:
    """Reads the ledger of a run while it grows.

    Args:
        path: File, which may not exist yet.
        clock: Steady time.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._reader: LedgerReader | None = None
        self._next_ns = 0
        self._progress = Progress()

    def latest(self) -> Progress:
        """Return the progress as of now."""
        self._next_ns = 0
        return self.progress()

    def progress(self) -> Progress:
        """Return the newest progress, at most half a second old for a ledger of usual size."""
        now_ns = self._clock.mono_ns()
        if now_ns < self._next_ns:
            return self._progress
        self._next_ns = now_ns + LIVE_NS
        try:
            if self._reader is None:
                self._reader = LedgerReader(self._path)
            records = self._reader.records()
        except (OSError, LayoutError):
            return self._progress
        self._next_ns += LIVE_NS * (records.nbytes // _BYTES_PER_LIVE)
        self._progress = progress(records, self._reader.header.period_ns)
        return self._progress


class Console:
    """Prints lines and keeps one live line below them.

    Args:
        stream: Where to.
        clock: Steady time.
        width: Width of the live line; None asks the terminal, and without one there is no live
            line but a printed one every five seconds.
    """

    def __init__(self, stream: TextIO, clock: Clock, *, width: int | None = None) -> None:
        self._stream = stream
        self._clock = clock
        self._is_live = stream.isatty() if width is None else width > 0
        self._width = width or _terminal_width()
        self._live = ''
        self._next_ns = 0

    def line(self, text: str) -> None:
        """Print a line above the live one."""
        self._clear()
        print(text, file=self._stream, flush=True)
        self._draw()

    def status(self, text: str) -> None:
        """Show a status; on a terminal it replaces the last one."""
        if self._is_live:
            if text != self._live:
                self._clear()
                self._live = text
                self._draw()
        elif self._clock.mono_ns() >= self._next_ns:
            self._next_ns = self._clock.mono_ns() + PLAIN_NS
            print(text, file=self._stream, flush=True)

    def end(self) -> None:
        """Keep the last status and go on below it."""
        if self._is_live and self._live:
            print(file=self._stream, flush=True)
        self._live = ''

    def _clear(self) -> None:
        if self._is_live and self._live:
            self._stream.write('\r\x1b[2K')

    def _draw(self) -> None:
        if self._is_live and self._live:
            self._stream.write(self._live[: self._width - 1])
            self._stream.flush()


def _terminal_width() -> int:
    return shutil.get_terminal_size((100, 24)).columns
