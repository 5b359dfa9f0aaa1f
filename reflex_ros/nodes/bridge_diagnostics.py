"""What the bridge says of itself on ``/diagnostics``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reflex_ros.arm.checks import rate_warnings
from reflex_ros.arm.faults import explain
from reflex_ros.core.clock import MS
from reflex_ros.core.types import ArmState, Verdict
from reflex_ros.ros.diagnostics import Diagnosis, Level
from reflex_ros.stages.accounts import advise
from reflex_ros.stages.build import channels_from

if TYPE_CHECKING:
    from collections.abc import Callable

    from reflex_ros.arm.protocol import Arm, BusStats
    from reflex_ros.core.clock import Clock
    from reflex_ros.core.types import ControlTick
    from reflex_ros.nodes.bridge_topics import BridgeTopics
    from reflex_ros.ros.clock_exchange import ClockAsker
    from reflex_ros.stages.bridge import Bridge
    from reflex_ros.stages.build import Params

BACKLOG = 100
"""Messages that may wait to be published; more are two thirds of a second of the loop at 50 Hz."""
STANDSTILL_NS = 500 * MS
"""A loop whose newest tick is older stands still."""
_LEVELS = ((Verdict.FRESH, Level.OK), (Verdict.LIMITED, Level.OK), (Verdict.RAMPING, Level.OK),
           (Verdict.HELD, Level.WARN), (Verdict.STOPPED, Level.ERROR))


def hardware(params: Params) -> str:
    """Return what the bridge drives: its CAN channels."""
    several = channels_from(params)
    return f'piper:{"+".join(several.values()) or params["arm.channel"]}'


def sources(arm: Arm, bridge: Bridge, topics: BridgeTopics, *, link: ClockAsker,
            clock: Clock) -> dict[str, Callable[[], Diagnosis]]:
    """Return what the bridge's diagnostics ask, by part of the node."""
    return {
        'tick': lambda: tick_diagnosis(topics.last_tick, clock.mono_ns()),
        'arm': lambda: arm_diagnosis(arm, bridge),
        'bus': lambda: bus_diagnosis(arm.stats()),
        'link': link.diagnose,
        'topics': lambda: topics_diagnosis(topics.outbox.backlog, topics.outbox.dropped),
    }


def topics_diagnosis(backlog: int, dropped: int) -> Diagnosis:
    """Return how far publishing is behind the control loop, and what was lost over it."""
    values = {'backlog': backlog, 'dropped': dropped}
    if not dropped and backlog <= BACKLOG:
        return Diagnosis(Level.OK, 'published as they come', values)
    return Diagnosis(Level.WARN, 'publishing waits for a reader; the arm is not affected. Look '
                     'for a process that was stopped or hangs.', values)


def tick_diagnosis(tick: ControlTick | None, now_ns: int) -> Diagnosis:
    """Return the state of the control loop from its newest tick, at a steady instant."""
    if tick is None:
        return Diagnosis(Level.STALE, 'no tick yet')
    age_ns = now_ns - tick.due_ns
    if age_ns > STANDSTILL_NS:
        return Diagnosis(Level.ERROR, f'the control loop stands still for {age_ns / 1e9:.1f} s: '
                         'nothing is sent, the arm holds. Restart the bridge.')
    is_fresh = tick.verdict in (Verdict.FRESH, Verdict.LIMITED)
    return Diagnosis(
        dict(_LEVELS)[tick.verdict],
        tick.verdict.value if is_fresh else f'{tick.verdict.value}: {advise(tick.cause)}',
        {'index': tick.index, 'late_ms': tick.late_ns / 1e6, 'cause': tick.cause.value,
         'observation_age_ms': tick.observation_age_ns / 1e6,
         'tracking_error_rad': tick.tracking_error, 'epoch': tick.epoch},
    )


def arm_diagnosis(arm: Arm, bridge: Bridge | None) -> Diagnosis:
    """Return the state of the arm, its faults with what to do, and what its check found.

    A fault is latched: it is told until the arm is recovered, also if its cause is gone.
    """
    if bridge is None:
        return Diagnosis(Level.STALE, 'not configured')
    faults, report = arm.faults(), bridge.report
    notes = [bridge.contact, bridge.overload(), *(report.warnings if report else ())]
    warnings = [note for note in notes if note]
    is_faulted = bridge.states.state is ArmState.FAULTED
    level = Level.ERROR if faults or is_faulted else Level.WARN if warnings else Level.OK
    words = [*map(explain, faults)] or (_latched(bridge.states.reason) if is_faulted else warnings)
    return Diagnosis(
        level, ' '.join([bridge.states.state.value + (':' if words else ''), *words]),
        {'firmware': report.firmware if report else '', 'is_shadow': arm.stats().is_shadow,
         'latency_ms': bridge.latency.value_ns / 1e6, 'delta_ms': bridge.delta.value_ns / 1e6},
    )


def _latched(reason: str) -> list[str]:
    """Return why an arm is at fault whose fault is in force no more."""
    codes = reason.split(', ')
    told = [explain(code) for code in codes]
    return ['It was', *(told if told != codes else [reason or 'a fault.']),
            'It is over; recover goes on from here.']


def bus_diagnosis(stats: BusStats) -> Diagnosis:
    """Return the state of the CAN bus with its table of rates by id."""
    slow = rate_warnings(stats.rates_hz) if stats.rates_hz else ()
    is_well = not (stats.failed_frames or stats.foreign_frames or stats.blocked_frames or slow)
    return Diagnosis(
        Level.ERROR if not stats.is_connected else Level.OK if is_well else Level.WARN,
        'closed' if not stats.is_connected else ' '.join(slow) or
        ('open' if is_well else 'frames failed, were blocked, or came from another program'),
        {'feedback_age_ms': stats.feedback_age_ns / 1e6, 'frames': stats.frames,
         'sent_commands': stats.sent_commands, 'failed_frames': stats.failed_frames,
         'blocked_frames': stats.blocked_frames, 'foreign_frames': stats.foreign_frames,
         'decode_errors': stats.decode_errors, 'reconnects': stats.reconnects,
         **{f'hz_{can_id:x}': rate for can_id, rate in sorted(stats.rates_hz.items())}},
    )
