"""Whether a ledger is true: every due tick once, every reason given, every command seen arriving.

The ticks are counted three ways that share nothing: steady time over the period, the sum of the
verdicts, and the joint frames (0x155) that arrived at the simulator's socket plus the ticks that
the ledger records as not sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reflex_ros.core.ledger import (
    CAUSE_CODES,
    SENT,
    VERDICT_CODES,
    LedgerReader,
    RecordArray,
)
from reflex_ros.core.types import Cause, Verdict
from reflex_ros.sim.can_tap import read_tap

JOINT_FRAME = 0x155
TOLERATED_FRAMES = 2
"""A command may be under way at either end of the window."""


@dataclass(frozen=True, slots=True)
class Audit:
    """What the ledger claims and what was counted independently of it.

    Attributes:
        ticks: Sum of the verdicts. ``expected_ticks``: steady time over the period.
        unexplained: Ticks that are neither fresh nor ramping and have no cause.
        not_sent: Ticks recorded as not sent. ``received``: joint frames at the simulator in the
            same time, -1 without a tap.
        window_ticks: Ticks judged for liveness, from the first executed chunk on.
        live_share: Share of the window's non-ramping ticks that were fresh or limited.
        ramping: Ramping ticks of the window.
    """

    ticks: int
    expected_ticks: int
    unexplained: int
    not_sent: int
    received: int
    window_ticks: int
    live_share: float
    ramping: int

    @property
    def is_complete(self) -> bool:
        """Whether every due tick has exactly one verdict and one cause."""
        return self.ticks == self.expected_ticks and self.unexplained == 0

    @property
    def is_sent_true(self) -> bool:
        """Whether the commands that arrived are those that the ledger says were sent."""
        gap = abs(self.received + self.not_sent - self.ticks)
        return self.received >= 0 and gap <= TOLERATED_FRAMES


def audit(folder: Path, *, window: int = 1500) -> Audit:
    """Return the audit of a run folder.

    Args:
        folder: Folder with ``ledger.bin`` and, for simulated runs, ``can_tap.bin``.
        window: Most ticks judged for liveness.

    Raises:
        LayoutError: ``ledger.bin`` is no ledger.
    """
    reader = LedgerReader(folder / 'ledger.bin')
    records = reader.records()
    counts = records['count'].astype(np.int64)
    judged = _window(records, window)
    ramping = _is(judged, Verdict.RAMPING)
    live = _is(judged, Verdict.FRESH) | _is(judged, Verdict.LIMITED)
    steady = judged['count'][~ramping].sum()
    fresh = _is(records, Verdict.FRESH)
    silent = records['cause'] == CAUSE_CODES.index(Cause.NONE)
    return Audit(
        ticks=int(counts.sum()),
        expected_ticks=_expected(reader, records),
        unexplained=int(counts[~(fresh | _is(records, Verdict.RAMPING)) & silent].sum()),
        not_sent=int(counts[(records['flags'] & SENT) == 0].sum()),
        received=_received(folder / 'can_tap.bin', reader, records),
        window_ticks=int(judged['count'].sum()),
        live_share=float(judged['count'][live].sum() / steady) if steady else float('nan'),
        ramping=int(judged['count'][ramping].sum()),
    )


def _is(records: RecordArray, verdict: Verdict) -> np.ndarray:
    return np.asarray(records['verdict'] == VERDICT_CODES.index(verdict))


def _window(records: RecordArray, ticks: int) -> RecordArray:
    """Return the records from the first that executed a chunk, at most ``ticks`` ticks."""
    executed = np.flatnonzero(records['chunk_id'] > 0)
    if not len(executed):
        return records[:0]
    rest = records[executed[0]:]
    return rest[np.cumsum(rest['count']) <= ticks]


def _expected(reader: LedgerReader, records: RecordArray) -> int:
    """Return steady time over the period, from the first due instant to the last."""
    if not len(records):
        return 0
    span_ns = int(records['due_ns'][-1]) - int(records['due_ns'][0])
    return round(span_ns / reader.header.period_ns) + int(records['count'][-1])


def _received(tap: Path, reader: LedgerReader, records: RecordArray) -> int:
    if not tap.is_file() or not len(records):
        return -1
    _, frames = read_tap(tap)
    first_ns = int(records['due_ns'][0])
    last_ns = int(records['due_ns'][-1]) + reader.header.period_ns
    at = frames['mono_ns']
    wanted = (frames['can_id'] == JOINT_FRAME) & (at >= first_ns) & (at < last_ns)
    return int(wanted.sum())


def format_audit(found: Audit) -> str:
    """Return the audit in words, for the terminal."""
    lines = [
        'Is the ledger true?',
        f'  {_mark(found.ticks == found.expected_ticks)} {found.expected_ticks} periods of steady '
        f'time, {found.ticks} verdicts',
        f'  {_mark(found.unexplained == 0)} {found.unexplained} ticks without a reason',
    ]
    if found.received >= 0:
        lines.append(
            f'  {_mark(found.is_sent_true)} {found.received} commands arrived at the arm, '
            f'{found.not_sent} ticks recorded as not sent')
    return '\n'.join(lines) + '\n'


def _mark(is_true: bool) -> str:
    return 'yes' if is_true else 'NO '
