"""What encoder and policy say of themselves on ``/diagnostics``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from reflex_ros.core.clock import S
from reflex_ros.ros.diagnostics import Diagnosis, Level

if TYPE_CHECKING:
    from reflex_ros.core.types import CameraStatus, StageStatus

STATUS_S = 0.1
"""Period of ``stage_status``."""
NOTHING: Mapping[str, object] = MappingProxyType({})
SILENT_NS = S // 2
"""A camera that was silent for longer is named."""


def stage_diagnosis(status: StageStatus,
                    facts: Mapping[str, object] = NOTHING) -> Diagnosis:
    """Return the state of a stage from its own sign of life.

    Args:
        status: Sign of life.
        facts: How the stage computes, see ``stages.acceleration``; shown as they are.
    """
    if not status.ring_ok:
        return Diagnosis(Level.ERROR, 'ring lost: waiting for a new encoder')
    silent = [_silence(camera, status.sent_ns) for camera in status.cameras
              if status.sent_ns - camera.last_received_ns > SILENT_NS]
    is_well = status.outputs and not status.reason and not silent
    busy_ms = (status.sent_ns - status.busy_since_ns) / 1e6 if status.busy_since_ns else 0.0
    return Diagnosis(
        Level.OK if is_well else Level.WARN, ', '.join(silent) or status.reason or status.state,
        {'outputs': status.outputs, 'dropped': status.dropped, 'busy_ms': busy_ms,
         'epoch': status.epoch, **facts},
    )


def _silence(camera: CameraStatus, now_ns: int) -> str:
    """Return which camera is silent and for how long."""
    if not camera.last_received_ns:
        return f'camera {camera.camera}: no image yet'
    return f'camera {camera.camera}: no image for {(now_ns - camera.last_received_ns) / S:.1f} s'
