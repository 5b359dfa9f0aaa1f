"""What encoder and policy say of themselves on ``/diagnostics``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reflex_ros.ros.diagnostics import Diagnosis, Level

if TYPE_CHECKING:
    from reflex_ros.core.types import StageStatus

STATUS_S = 0.1
"""Period of ``stage_status``."""


def stage_diagnosis(status: StageStatus) -> Diagnosis:
    """Return the state of a stage from its own sign of life."""
    if not status.ring_ok:
        return Diagnosis(Level.ERROR, 'ring lost: waiting for a new encoder')
    level = Level.OK if status.outputs and not status.reason else Level.WARN
    busy_ms = (status.sent_ns - status.busy_since_ns) / 1e6 if status.busy_since_ns else 0.0
    return Diagnosis(
        level, status.reason or status.state,
        {'outputs': status.outputs, 'dropped': status.dropped, 'busy_ms': busy_ms,
         'epoch': status.epoch},
    )
