"""What the bridge says of itself on ``/diagnostics``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reflex_ros.core.types import Verdict
from reflex_ros.ros.diagnostics import Diagnosis, Level
from reflex_ros.stages.accounts import explain

if TYPE_CHECKING:
    from reflex_ros.arm.protocol import Arm
    from reflex_ros.core.types import ControlTick
    from reflex_ros.stages.bridge import Bridge

_LEVELS = ((Verdict.FRESH, Level.OK), (Verdict.LIMITED, Level.OK), (Verdict.RAMPING, Level.OK),
           (Verdict.HELD, Level.WARN), (Verdict.STOPPED, Level.ERROR))


def tick_diagnosis(tick: ControlTick | None) -> Diagnosis:
    """Return the state of the control loop from its newest tick."""
    if tick is None:
        return Diagnosis(Level.STALE, 'no tick yet')
    is_fresh = tick.verdict in (Verdict.FRESH, Verdict.LIMITED)
    return Diagnosis(
        dict(_LEVELS)[tick.verdict],
        tick.verdict.value if is_fresh else f'{tick.verdict.value}: {explain(tick.cause)}',
        {'index': tick.index, 'late_ms': tick.late_ns / 1e6, 'cause': tick.cause.value,
         'observation_age_ms': tick.observation_age_ns / 1e6,
         'tracking_error_rad': tick.tracking_error, 'epoch': tick.epoch},
    )


def arm_diagnosis(arm: Arm, bridge: Bridge | None) -> Diagnosis:
    """Return the state of the arm and its bus."""
    if bridge is None:
        return Diagnosis(Level.STALE, 'not configured')
    faults, stats = arm.faults(), arm.stats()
    level = Level.ERROR if faults else Level.WARN if stats.failed_frames else Level.OK
    return Diagnosis(
        level, ', '.join(faults) or bridge.states.state.value,
        {'feedback_age_ms': stats.feedback_age_ns / 1e6, 'frames': stats.frames,
         'sent_commands': stats.sent_commands, 'failed_frames': stats.failed_frames,
         'foreign_frames': stats.foreign_frames, 'is_shadow': stats.is_shadow,
         'latency_ms': bridge.latency.value_ns / 1e6, 'delta_ms': bridge.delta.value_ns / 1e6},
    )
