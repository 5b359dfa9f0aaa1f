"""All figures of a run by the names that budgets use, each with its interval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import degrees
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from reflex_ros.analysis.cameras import Camera, cameras_of, skews_ms
from reflex_ros.analysis.collect import UNNUMBERED, unnumbered_missing
from reflex_ros.analysis.intervals import (
    NOTHING,
    Estimate,
    clustered,
    exact,
    greatest,
    proportion,
    quantile,
)
from reflex_ros.analysis.run import RecordedRun, load_run
from reflex_ros.analysis.stalls import Stall, find_stalls
from reflex_ros.analysis.straight import straighten
from reflex_ros.core.clock import MS, S
from reflex_ros.core.ledger import (
    ARM_STATE_CODES,
    CAUSE_CODES,
    COVERED,
    GAP,
    IN_MOTION,
    VERDICT_CODES,
    RecordArray,
)
from reflex_ros.core.summary import LedgerSummary, samples, summarise
from reflex_ros.core.types import ArmState, Cause, Fate, Verdict

SHARE, COUNT = 'share', 'count'
START = 'start_s'
_NONE = CAUSE_CODES.index(Cause.NONE)


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a figure is: unit, and in words. Of every figure less is better."""

    unit: str
    text: str


MEANINGS = MappingProxyType({
    START: Meaning('s', 'first tick to the first that followed a plan; none if none did'),
    'stall_ratio': Meaning(SHARE, 'ticks in motion that no live chunk covered'),
    'stalled_chunks': Meaning(SHARE, 'chunk changes with such a tick'),
    'uncovered_share': Meaning(SHARE, 'inference time that no plan covered'),
    'reaction_p50_ms': Meaning('ms', 'reaction, median'),
    'reaction_p95_ms': Meaning('ms', 'reaction, 95 %'),
    'observation_to_command_p50_ms': Meaning('ms', 'newest frame to its first command, median'),
    'observation_to_command_p95_ms': Meaning('ms', 'newest frame to its first command, 95 %'),
    'staleness_p50_ms': Meaning('ms', 'age of the oldest frame behind a command, median'),
    'staleness_p95_ms': Meaning('ms', 'age of the oldest frame behind a command, 95 %'),
    'seam_deg': Meaning('deg', 'largest joint step at a chunk change, 95 %'),
    'seam_max_deg': Meaning('deg', 'largest joint step at a chunk change'),
    'seam_deg_s': Meaning('deg/s', 'largest velocity step at a chunk change, 95 %'),
    'tracking_error_deg': Meaning('deg', 'command before minus measured, largest joint, 95 %'),
    'tracking_error_max_deg': Meaning('deg', 'command before minus measured, largest joint'),
    'tick_late_p99_ms': Meaning('ms', 'lateness of a control tick, 99 %'),
    'camera_skew_p95_ms': Meaning('ms', 'spread of the frames of an observation, 95 %'),
    'camera_missing_share': Meaning(SHARE, 'camera frames that are missing'),
    'message_missing_share': Meaning(SHARE, 'numbered messages that are missing'),
    'rejected_share': Meaning(SHARE, 'chunks that were rejected'),
    'faults': Meaning(COUNT, 'stalls and stops that nobody asked for'),
    'unexplained_ticks': Meaning(COUNT, 'ticks neither fresh nor ramping without a cause'),
    'gap_ticks': Meaning(COUNT, 'due ticks that nobody ran or recorded'),
})
"""Figures that every report has; ``<stage>_p50_ms`` and ``<stage>_p95_ms`` join them."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Messages that are missing on one topic.

    Attributes:
        topic, publisher: Whose; the publisher is '' where a topic has one.
        messages, missing, duplicates, restarts: Counts. ``gaps``: (first, last) missing number.
    """

    topic: str
    publisher: str
    messages: int
    missing: int
    duplicates: int
    restarts: int
    gaps: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Analysis:
    """Everything a report says.

    Attributes:
        run: The run. ``summary``: its figures by the definitions of the ledger.
        figures: All figures by name. ``stalls``: oldest first.
        cameras: Every camera. ``lost``: every numbered topic.
        notes: What is missing, in words; empty for a whole bag.
    """

    run: RecordedRun
    summary: LedgerSummary
    figures: Mapping[str, Estimate]
    stalls: tuple[Stall, ...]
    cameras: tuple[Camera, ...]
    lost: tuple[Lost, ...]
    notes: tuple[str, ...]

    @property
    def faults(self) -> dict[str, int]:
        """Stalls and stops that nobody asked for, by cause; the most frequent first."""
        names = [name for stall in self.stalls for name in stall.fault_names]
        return {n: names.count(n) for n in sorted(set(names), key=lambda n: -names.count(n))}

    @property
    def never_tracked(self) -> Stall | None:
        """The whole run as one stall if the arm never followed a plan, else None."""
        return next((stall for stall in self.stalls if stall.is_never_tracked), None)


def analyse(path: Path | str) -> Analysis:
    """Read and analyse a run folder or a bag.

    Raises:
        ConfigError: It holds no ticks, or is no bag.
        LayoutError: It is of another version.
    """
    return analyse_run(load_run(path))


def analyse_run(run: RecordedRun) -> Analysis:
    """Analyse a run that was read, on an axis without the steps of the clock."""
    run = straighten(run)
    summary = summarise(run.records, run.traces, period_ns=run.period_ns, events=run.events)
    stalls, cameras = find_stalls(run), cameras_of(run.recorded)
    lost = _lost(run)
    figures = _figures(run, summary, stalls, cameras, lost)
    return Analysis(run, summary, MappingProxyType(figures), stalls, cameras, lost,
                    (*run.notes, *_missing_notes(run, summary, lost, cameras)))


def meaning(name: str) -> Meaning:
    """Return what a figure is; those of stages are named by pattern."""
    known = MEANINGS.get(name)
    if known is not None:
        return known
    stage, share, unit = name.rsplit('_', 2)
    return Meaning(unit, f'stage {stage}, {"median" if share == "p50" else "95 %"}')


def _figures(run: RecordedRun, summary: LedgerSummary, stalls: Iterable[Stall],
             cameras: Iterable[Camera], lost: Iterable[Lost]) -> dict[str, Estimate]:
    times = samples(run.records, run.traces, events=run.events)
    window = _window(run.records)
    figures = {
        START: _start(run, window),
        **_liveness(run, summary, window),
        # no other figure stands in for reactions that were left out
        **_both('reaction', times['event_reaction' if run.lost_events
                                  else summary.reaction_name]),
        **_both('observation_to_command', times['observation_to_command']),
        **_motion(run, window),
        'camera_skew_p95_ms': quantile(skews_ms(run.recorded), 0.95),
        'camera_missing_share': _camera_share(cameras),
        'message_missing_share': _message_share(lost),
        'rejected_share': proportion(summary.fates[Fate.REJECTED.value],
                                     sum(summary.fates.values())),
        'faults': exact(sum(s.is_fault for s in stalls), summary.ticks),
        'unexplained_ticks': exact(_unexplained(run.records), summary.ticks),
        'gap_ticks': exact(summary.gap_ticks + max(0, summary.expected_ticks - summary.ticks),
                           summary.expected_ticks),
    }
    for name, values in times.items():
        if name.startswith('stage:'):
            figures |= _both(name.removeprefix('stage:'), values)
    return figures


def _both(name: str, values: npt.ArrayLike) -> dict[str, Estimate]:
    return {f'{name}_p50_ms': quantile(values, 0.5), f'{name}_p95_ms': quantile(values, 0.95)}


def _window(records: RecordArray) -> RecordArray:
    """Return the records from the first ``tracking`` tick on."""
    tracking = records['arm_state'] == ARM_STATE_CODES.index(ArmState.TRACKING)
    return records[int(np.argmax(tracking)) if tracking.any() else len(records):]


def _start(run: RecordedRun, window: RecordArray) -> Estimate:
    """Return how long the arm did not track at first; it happened once, so without interval."""
    if not len(window):
        return NOTHING
    return greatest([(int(window['due_ns'][0]) - int(run.records['due_ns'][0])) / S])


def _liveness(run: RecordedRun, summary: LedgerSummary,
              window: RecordArray) -> dict[str, Estimate]:
    motion = (window['flags'] & IN_MOTION) != 0
    stalled = motion & ((window['flags'] & COVERED) == 0)
    count = window['count'].astype(np.int64)
    second = (window['due_ns'] - window['due_ns'][:1]) // S if len(window) else np.empty(0, int)
    blocks = int(second[-1]) + 1 if len(second) else 0
    ratio = clustered(
        np.bincount(second, weights=count * stalled, minlength=blocks),
        np.bincount(second, weights=count * motion, minlength=blocks))
    changes = summary.chunk_changes
    uncovered, inferences = summary.uncovered_share, summary.inferences
    return {
        'stall_ratio': ratio,
        'stalled_chunks': proportion(
            round(summary.stalled_chunks * changes) if changes else 0, changes),
        'uncovered_share': _uncovered(run, uncovered, inferences),
    }


def _uncovered(run: RecordedRun, share: float, inferences: int) -> Estimate:
    """Return the uncovered share; its interval comes from the inferences as blocks."""
    if not inferences:
        return exact(share, 0)
    durations = [(t.accepted_ns - t.inference_start_ns, t.covered_ns) for t in run.traces
                 if t.fate is not Fate.REJECTED and t.accepted_ns > t.inference_start_ns > 0]
    blocks = clustered([d - min(max(c, 0), d) for d, c in durations], [d for d, _ in durations])
    return Estimate(share, min(share, blocks.low), max(share, blocks.high), inferences)


def _motion(run: RecordedRun, window: RecordArray) -> dict[str, Estimate]:
    start_ns = int(window['stamp_ns'][0]) if len(window) else 0
    used = [t for t in run.traces if t.fate is Fate.EXECUTED and len(window)
            and t.first_command_stamp_ns >= start_ns > 0]
    seam = [degrees(t.seam_position) for t in used]
    ages = window['observation_age_ns']
    ages = ages[(ages >= 0) & ((window['flags'] & COVERED) != 0)] / MS
    tracking = window['arm_state'] == ARM_STATE_CODES.index(ArmState.TRACKING)
    error = np.degrees(window['tracking_error'][tracking].astype(np.float64))
    late = run.records['late_ns'][(run.records['flags'] & GAP) == 0] / MS
    return {
        'staleness_p50_ms': quantile(ages, 0.5), 'staleness_p95_ms': quantile(ages, 0.95),
        'seam_deg': quantile(seam, 0.95), 'seam_max_deg': greatest(seam),
        'seam_deg_s': quantile([degrees(t.seam_velocity) for t in used], 0.95),
        'tracking_error_deg': quantile(error, 0.95), 'tracking_error_max_deg': greatest(error),
        'tick_late_p99_ms': quantile(late, 0.99),
    }


def _unexplained(records: RecordArray) -> int:
    calm = [VERDICT_CODES.index(v) for v in (Verdict.FRESH, Verdict.RAMPING)]
    silent = (records['cause'] == _NONE) & ~np.isin(records['verdict'], calm)
    return int(records['count'][silent].sum())


def _camera_share(cameras: Iterable[Camera]) -> Estimate:
    seen = [(c.missing, c.frames) for c in cameras if c.missing >= 0]
    missing = sum(m for m, _ in seen)
    return proportion(missing, missing + sum(n for _, n in seen))


def _message_share(lost: Iterable[Lost]) -> Estimate:
    missing = messages = 0
    for entry in lost:
        missing, messages = missing + entry.missing, messages + entry.messages
    return proportion(missing, missing + messages)


def _lost(run: RecordedRun) -> tuple[Lost, ...]:
    return tuple(
        Lost(topic, publisher, n.messages, n.missing, n.duplicates, n.restarts, tuple(n.gaps))
        for (topic, publisher), n in sorted(run.recorded.numbers.items()))


def _missing_notes(run: RecordedRun, summary: LedgerSummary, lost: Iterable[Lost],
                   cameras: Iterable[Camera]) -> list[str]:
    notes = [f'{entry.topic}{f" of {entry.publisher}" if entry.publisher else ""}: '
             f'{entry.missing} messages are missing' for entry in lost if entry.missing]
    notes += [f'{camera.name}: {camera.missing} frames are missing'
              for camera in cameras if camera.missing > 0]
    unnumbered = sorted(t for t, kind in run.recorded.types.items() if kind in UNNUMBERED)
    notes += [f'{topic}: {missing} messages are missing' for topic in unnumbered
              if (missing := unnumbered_missing(run.recorded, topic))]
    if summary.expected_ticks > summary.ticks:
        notes.append(f'{summary.expected_ticks - summary.ticks} of {summary.expected_ticks} due '
                     'ticks were not recorded; ratios are those of the rest')
    return notes
