"""The words of the suite: every choice, state, verdict and cause, as enums of plain text."""

from __future__ import annotations

from enum import Enum


class StateSource(str, Enum):
    """Where the state that conditioned an inference came from."""

    NONE = 'none'
    MEASURED = 'measured'
    PREDICTED = 'predicted'


class Entry(str, Enum):
    """Which row of a new chunk is executed first.

    ``RESTART``: row 0 at the first tick after acceptance. ``ALIGNED``: the row that is due.
    """

    RESTART = 'restart'
    ALIGNED = 'aligned'


class Stitch(str, Enum):
    """How a new chunk joins the running one."""

    REPLACE = 'replace'
    BLEND = 'blend'
    RTC = 'rtc'


class Mode(str, Enum):
    """Execution mode, a preset of the switches in ``core.schedule``."""

    SYNC = 'sync'
    ASYNC_NAIVE = 'async_naive'
    REFLEX = 'reflex'


class ArmState(str, Enum):
    """State of the arm as the bridge sees it; transitions in ``arm.states``."""

    DISCONNECTED = 'disconnected'
    CONNECTED = 'connected'
    CHECKED = 'checked'
    ENABLED = 'enabled'
    RAMP_IN = 'ramp_in'
    TRACKING = 'tracking'
    HOLDING = 'holding'
    FAULTED = 'faulted'


class Verdict(str, Enum):
    """What one due tick was; listed by precedence, first match wins."""

    STOPPED = 'stopped'
    RAMPING = 'ramping'
    HELD = 'held'
    LIMITED = 'limited'
    FRESH = 'fresh'


class Cause(str, Enum):
    """Why a tick was not fresh; listed by precedence, first match wins."""

    ARM_FAULT = 'arm_fault'
    OPERATOR = 'operator'
    INSTRUCTION = 'instruction'
    CLOCK = 'clock'
    TICK_LATE = 'tick_late'
    NODE_DEAD = 'node_dead'
    RING_LOST = 'ring_lost'
    STATE_STALE = 'state_stale'
    TRACKING = 'tracking'
    CHUNK_REJECTED = 'chunk_rejected'
    SYNC_WAIT = 'sync_wait'
    TRANSPORT = 'transport'
    DENOISE_LATE = 'denoise_late'
    ENCODE_LATE = 'encode_late'
    CAMERA_LATE = 'camera_late'
    CAMERA_FROZEN = 'camera_frozen'
    PLAN_END = 'plan_end'
    LIMIT = 'limit'
    WARMUP = 'warmup'
    NONE = 'none'


class Fate(str, Enum):
    """What became of a chunk."""

    EXECUTED = 'executed'
    SUPERSEDED = 'superseded'
    REJECTED = 'rejected'


class RejectReason(str, Enum):
    """Why a chunk was rejected."""

    NONE = 'none'
    NOT_FINITE = 'not_finite'
    JOINT_NAMES = 'joint_names'
    EPOCH = 'epoch'
    ALL_ROWS_PAST = 'all_rows_past'
    SEAM = 'seam'
    CLOCK = 'clock'
    ARM_STATE = 'arm_state'
    STALE = 'stale'
    MALFORMED = 'malformed'
