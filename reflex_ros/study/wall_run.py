"""A run of the nodes in wall time, judged like an episode of the virtual clock.

The world of the simulator starts with its node, long before the arm moves. *World time* counts
from there; it is found again in a bag by the jumps of the target, which the seed decides. What is
judged of a run lasts from one jump to another, so that both clocks are asked for the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reflex_ros.analysis.run import RecordedRun, load_run
from reflex_ros.core.clock import MS, S
from reflex_ros.core.errors import ConfigError, StaleError
from reflex_ros.core.ledger import CAUSE_CODES, COVERED, IN_MOTION, RecordArray
from reflex_ros.core.summary import samples
from reflex_ros.core.types import Cause
from reflex_ros.sim.live import EPISODE_S
from reflex_ros.sim.tasks import make_task
from reflex_ros.stages.replay_costs import TRANSPORT_FRAME
from reflex_ros.stages.replay_source import POLICY_STAGES, read_recorded
from reflex_ros.study.benchmark import CAMERA_PERIOD_NS, judge
from reflex_ros.study.wall_phase import Times, phases_ms, reactions_ms

if TYPE_CHECKING:
    from reflex_ros.core.types import ChunkTrace, SimEvent, SimTruth
    from reflex_ros.sim.tasks.target import Segment
    from reflex_ros.study.episode import EpisodeSpec

Line = dict[str, Any]

SETTLED_NS = 1 * S
"""From the first tick in motion to the first jump that is judged."""
ANSWER_NS = 1500 * MS
"""An event is asked about only if the run goes on for so long behind it."""
INSTANT_NS = 5 * MS
MATCH_NS = 12 * MS
"""Jumps of a run lie so near to those of its seed: two steps of the physics and a late wake-up."""
MATCH_M = 0.01
FEWEST_JUMPS = 3
LEAST_FRAMES = 0.95
"""Share of the true states of the judged part without which it is not judged."""
KEPT_SAMPLES = 100
BEFORE_NS = 100 * MS
WIRING = MappingProxyType({
    'run': ('folder', 'instruction'), 'arm': ('port', 'transport', 'host'),
    'policy': ('seed', 'checkpoint'),
    'simulator': ('seed', 'task', 'camera_width', 'camera_height'),
})
"""Parameters that only processes have, or that an episode is given otherwise."""


@dataclass(frozen=True, slots=True)
class Course:
    """Where the target of a seed goes.

    Attributes:
        segments: Its motions. ``jumps_ns``: world time at which each but the first shows, rising.
    """

    segments: tuple[Segment, ...]
    jumps_ns: Times

    def target(self, world_ns: int) -> npt.NDArray[np.float64]:
        """Return where the target is at a world time, float64[3] m."""
        number = int(np.searchsorted(self.jumps_ns, world_ns, 'right'))
        return self.segments[number].at(world_ns / S)[0]


def course(task: str, seed: int, step_ns: int) -> Course:
    """Return the course of a live world.

    Args:
        task: One whose target jumps. ``seed``: of the world. ``step_ns``: of its physics.

    Raises:
        ConfigError: The target of the task does not jump.
    """
    made: Any = make_task(task, duration_s=EPISODE_S)
    made.reset(np.random.default_rng(seed))
    segments = tuple(getattr(made, 'segments', ()))
    if len(segments) < FEWEST_JUMPS:
        raise ConfigError(f'task {task}: got a target that does not jump, expected task jump, '
                          'whose jumps tell world time. Choose it.')
    starts = [round(segment.start_s * S) for segment in segments[1:]]
    return Course(segments, np.array([-(-start // step_ns) * step_ns for start in starts]))


def zero_stamp(stamps_ns: Sequence[int], jumps_ns: Times) -> int:
    """Return the ROS time of world time 0.

    Args:
        stamps_ns: ROS times of recorded jumps; some may be missing.
        jumps_ns: World times of all jumps.

    Raises:
        ConfigError: They are not the jumps of this course.
    """
    stamps = np.sort(np.array(stamps_ns, np.int64))
    if len(stamps) < FEWEST_JUMPS:
        raise ConfigError(f'jumps of a run: got {len(stamps)}, expected at least {FEWEST_JUMPS} '
                          'to know them by. Run it for longer.')
    worst, zero = min((int(np.abs(_apart(stamps - first, jumps_ns)).max()), int(first))
                      for first in stamps[0] - jumps_ns)
    if worst > MATCH_NS:
        raise ConfigError(f'jumps of a run: got one {worst / MS:.0f} ms from those of its seed, '
                          f'expected at most {MATCH_NS / MS:.0f} (ms). It is another world.')
    return zero + round(float(np.median(_apart(stamps - zero, jumps_ns))))


def _apart(times: Times, jumps_ns: Times) -> Times:
    """Return how much later each time is than the jump nearest to it."""
    after = np.clip(np.searchsorted(jumps_ns, times), 1, len(jumps_ns) - 1)
    low, high = times - jumps_ns[after - 1], times - jumps_ns[after]
    return np.where(np.abs(low) < np.abs(high), low, high)


@dataclass(frozen=True, slots=True)
class Part:
    """What is judged of a run: from one jump to another, world time, ns."""

    begin_ns: int
    end_ns: int


def part_of(jumps_ns: Times, moving_ns: int, until_ns: int) -> Part:
    """Return the part between the first and the last jump of the time in motion.

    Args:
        jumps_ns: World times of all jumps.
        moving_ns, until_ns: World times from and up to which the arm was in motion.

    Raises:
        ConfigError: There is nothing between two jumps.
    """
    own = jumps_ns[(jumps_ns >= moving_ns + SETTLED_NS) & (jumps_ns <= until_ns)]
    if len(own) < FEWEST_JUMPS or own[-1] - own[0] <= ANSWER_NS:
        raise ConfigError(f'run in wall time: got {len(own)} jumps in '
                          f'{(until_ns - moving_ns) / S:.1f} s of motion, expected at least '
                          f'{FEWEST_JUMPS}. Run it for longer.')
    return Part(int(own[0]), int(own[-1]))


# ---- figures, the same for both clocks -------------------------------------------------------


def figures_of(task: str, truths: Sequence[SimTruth], traces: Sequence[ChunkTrace],
               records: RecordArray, *, zero_ns: int, part: Part, tolerance_m: float) -> Line:
    """Return what a part of a run comes to, in JSON types.

    Args:
        task: Name of the task. truths, traces, records: The run.
        zero_ns: ROS time of world time 0. part: What is judged.
        tolerance_m: Distance that counts as followed.
    """
    own = [t for t in truths if part.begin_ns <= t.stamp_ns - zero_ns < part.end_ns]
    verdict = judge(task, own, tolerance_m=tolerance_m)
    events = [e for t in own for e in t.events
              if e.name == 'jump' and e.stamp_ns - zero_ns < part.end_ns - ANSWER_NS]
    stamps = records['stamp_ns'] - zero_ns
    ticks = records[(stamps >= part.begin_ns) & (stamps < part.end_ns)]
    motion = (ticks['flags'] & IN_MOTION) != 0
    stalled = motion & ((ticks['flags'] & COVERED) == 0)
    late = ticks['cause'] == CAUSE_CODES.index(Cause.TICK_LATE)
    instants = zero_ns + np.arange(part.begin_ns, part.end_ns - ANSWER_NS, INSTANT_NS)
    waits = reactions_ms(traces, instants)
    counts = Counter(round(float(wait)) for wait in waits[np.isfinite(waits)])
    found = samples(records, traces, events=events)
    return {
        'success': [bool(s) for s in verdict.successes],
        'error_mm': [round(1e3 * e, 3) for e in verdict.errors_m],
        'jump_reaction_ms': [round(one, 3) for one in found['event_reaction']],
        'jump_phase_ms': phases_of(traces, events), 'jumps': len(events),
        'reaction_counts': {str(ms): counts[ms] for ms in sorted(counts)},
        'unanswered': int(np.isnan(waits).sum()),
        'chunks': sum(part.begin_ns <= t.first_command_stamp_ns - zero_ns < part.end_ns
                      for t in traces),
        'ticks': int(ticks['count'].sum()), 'motion_ticks': int(ticks['count'][motion].sum()),
        'stalled_ticks': int(ticks['count'][stalled].sum()),
        'late_ticks': int(ticks['count'][late].sum()),
        'seconds': round((part.end_ns - part.begin_ns) / S, 3),
    }


def phases_of(traces: Sequence[ChunkTrace], events: Sequence[SimEvent]) -> list[float | None]:
    """Return the phase of each event that has a reaction, ms; None before the first chunk."""
    stamps = np.array([event.stamp_ns for event in events], np.int64)
    phases = phases_ms(traces, stamps)[np.isfinite(reactions_ms(traces, stamps))]
    return [round(float(one), 3) if np.isfinite(one) else None for one in phases]


def jump_stamps(truths: Sequence[SimTruth]) -> list[int]:
    """Return the ROS times of the jumps."""
    return [event.stamp_ns for truth in truths for event in truth.events if event.name == 'jump']


# ---- a run folder ----------------------------------------------------------------------------


def read_wall_run(folder: Path, spec: EpisodeSpec) -> Line:
    """Return what a run folder comes to: figures, where it lies in the world, stage times.

    Args:
        folder: Of a run of the nodes. spec: The episode that it was meant to be.

    Raises:
        ConfigError: It is a run of something else, or too short.
        StaleError: True states are missing, so that nobody can say how it went.
    """
    run = load_run(folder)
    wrong = differing(spec, run.settings)
    if wrong:
        raise ConfigError(f'run {folder}: got {", ".join(wrong)}, expected the parameters of the '
                          'episode. Give the nodes the same ones.')
    step_ns = round(S / float(run.settings['simulator.physics_rate_hz']))
    where = course(spec.task, spec.seed, step_ns)
    truths = run.recorded.truths
    zero_ns = zero_stamp(jump_stamps(truths), where.jumps_ns)
    off_m = off_course_m(truths, where, zero_ns)
    if off_m > MATCH_M:
        raise ConfigError(f'run {folder}: got a target {1e3 * off_m:.0f} mm off the course of '
                          f'seed {spec.seed}, expected at most {1e3 * MATCH_M:.0f} (mm). It is '
                          'another world.')
    executed, moving = _times(run, zero_ns)
    part = part_of(where.jumps_ns, int(moving[0]), int(moving[-1]))
    check_frames(folder, truths, zero_ns, part)
    return {
        'world': {'enter_ns': int(executed[0]) - BEFORE_NS, 'begin_ns': part.begin_ns,
                  'end_ns': part.end_ns, 'camera_phase_ns': camera_phase_ns(run),
                  'off_course_mm': round(1e3 * off_m, 3)},
        'figures': figures_of(spec.task, truths, run.traces, run.records, zero_ns=zero_ns,
                              part=part, tolerance_m=spec.tolerance_m),
        'stages_ms': stages_ms(run),
    }


def check_frames(folder: Path, truths: Sequence[SimTruth], zero_ns: int, part: Part) -> None:
    """Refuse a part of which true states are missing."""
    got = sum(part.begin_ns <= truth.stamp_ns - zero_ns < part.end_ns for truth in truths)
    wanted = (part.end_ns - part.begin_ns) / CAMERA_PERIOD_NS
    if got < LEAST_FRAMES * wanted:
        raise StaleError(f'run {folder}: got {got} of {wanted:.0f} true states of the part that '
                         'is judged, expected nearly all. See why its camera fell silent.')


def differing(spec: EpisodeSpec, settings: Mapping[str, Any]) -> list[str]:
    """Return the parameters of a run that are not those of an episode, but for wiring."""
    found = []
    for name, value in sorted(spec.parameters().items()):
        group, _, key = name.partition('.')
        wanted = list(value) if isinstance(value, tuple) else value
        if key not in WIRING.get(group, ()) and settings.get(name, wanted) != wanted:
            found.append(f'{name} {settings[name]!r} instead of {wanted!r}')
    return found


def off_course_m(truths: Sequence[SimTruth], where: Course, zero_ns: int) -> float:
    """Return how far the recorded target was from the course at most; near jumps do not count."""
    worst = 0.0
    for truth in truths:
        world_ns = truth.stamp_ns - zero_ns
        if np.abs(_apart(np.array([world_ns]), where.jumps_ns))[0] > MATCH_NS:
            off = np.linalg.norm(where.target(world_ns) - truth.target_position)
            worst = max(worst, float(off))
    return worst


def _times(run: RecordedRun, zero_ns: int) -> tuple[Times, Times]:
    """Return the world times of the ticks with a chunk and of those in motion."""
    stamps = run.records['stamp_ns'] - zero_ns
    executed = stamps[run.records['chunk_id'] > 0]
    moving = stamps[(run.records['flags'] & IN_MOTION) != 0]
    if not len(executed) or not len(moving):
        raise ConfigError(f'run {run.path}: got no tick in motion, expected some. Look into its '
                          'logs.')
    return executed, moving


def camera_phase_ns(run: RecordedRun) -> int:
    """Return by how much the frames came after every second tick, in [0, 40 ms)."""
    first_ns = int(run.records['stamp_ns'][0])
    angles = [2j * np.pi * ((t.stamp_ns - first_ns) % CAMERA_PERIOD_NS) / CAMERA_PERIOD_NS
              for t in run.recorded.truths]
    mean = float(np.angle(np.exp(np.array(angles)).mean())) / (2 * np.pi)
    return round(mean * CAMERA_PERIOD_NS) % CAMERA_PERIOD_NS


def stages_ms(run: RecordedRun) -> dict[str, list[float]]:
    """Return the durations of each stage and way while the arm was in motion, ms, rising.

    Of many the ones at evenly spaced ranks are kept.
    """
    stamps = run.records['stamp_ns'][(run.records['flags'] & IN_MOTION) != 0]
    low, high = int(stamps[0]), int(stamps[-1])
    found: dict[str, list[int]] = {}
    for source in run.sources:
        for name, calls in read_recorded(source.path).samples.items():
            found.setdefault(name, []).extend(
                duration for at, duration in zip(calls.at_ns, calls.duration_ns, strict=True)
                if low <= at <= high)
    found[TRANSPORT_FRAME] = [way for trace in run.traces
                              if low <= trace.observation_stamp_ns <= high
                              for way in _frame_way(trace, run.offset_ns)]
    return {name: thinned(calls) for name, calls in sorted(found.items()) if calls}


def _frame_way(trace: ChunkTrace, offset_ns: int) -> list[int]:
    """Return how long the frame of a chunk was under way until its encoding began."""
    starts = [stage.start_ns for stage in trace.stages
              if stage.name not in (*POLICY_STAGES, 'delay_pad')]
    way_ns = min(starts, default=0) + offset_ns - trace.observation_stamp_ns
    return [way_ns] if starts and way_ns >= 0 else []


def thinned(durations_ns: Sequence[int], kept: int = KEPT_SAMPLES) -> list[float]:
    """Return the durations, ms, rising; of more than ``kept`` those at evenly spaced ranks."""
    ordered = sorted(durations_ns)
    if len(ordered) > kept:
        ordered = [ordered[int((i + 0.5) / kept * len(ordered))] for i in range(kept)]
    return [round(one / MS, 3) for one in ordered]
